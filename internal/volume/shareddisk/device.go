package shareddisk

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/podnas/podnas/internal/volume/xfs"
)

const (
	mib = 1 << 20
	// minSize is the least that mkfs.xfs takes, and the end, where the beat is.
	minSize = 300*mib + mib
)

// device is the disk. It implements target.
//
// The file system ends on a whole MiB, and the beat is the first block of the MiB behind it. So who reads the superblock
// finds the beat, whatever size the disk has by now for this machine or for another one. The last blocks of the disk are
// not for it, as mkfs.xfs writes zeros there.
type device struct {
	file *os.File // with O_DIRECT: the kernel keeps nothing of it
	path string
	// mountPoint is where it is mounted, with the kernel's path.
	mountPoint string

	block []byte // aligned as O_DIRECT wants it; of the one that reads
	out   []byte // of the one that writes
	at    int64  // where the beat is written
}

// openDevice opens the disk at a path, which may be a link.
func openDevice(path, mountPoint string) (*device, error) {
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		return nil, &os.PathError{Op: "stat", Path: path, Err: err}
	}
	if st.Mode&unix.S_IFMT != unix.S_IFBLK {
		return nil, errors.New("it is no block device")
	}
	if _, err := os.Stat(fmt.Sprintf("/sys/dev/block/%d:%d/partition", unix.Major(st.Rdev), unix.Minor(st.Rdev))); err == nil {
		return nil, errors.New("it is a partition, and reservations are of whole disks: give the disk itself")
	}
	f, err := os.OpenFile(path, os.O_RDWR|unix.O_DIRECT, 0)
	if errors.Is(err, unix.EPERM) || errors.Is(err, unix.EACCES) {
		err = fmt.Errorf("%w: it needs a privileged pod (deploy/overlays/ha)", err)
	}
	if errors.Is(err, unix.ENXIO) || errors.Is(err, unix.ENODEV) {
		err = fmt.Errorf("%w: %w", err, errRemoved)
	}
	if err != nil {
		return nil, err
	}
	// The mount point itself may be a dead mount.
	if parent, err := filepath.EvalSymlinks(filepath.Dir(mountPoint)); err == nil {
		mountPoint = filepath.Join(parent, filepath.Base(mountPoint))
	}
	d := &device{file: f, path: path, mountPoint: mountPoint, block: aligned(beatSize), out: aligned(beatSize)}
	if size, err := d.size(); err != nil || size < minSize {
		_ = f.Close() // nothing was written
		return nil, errors.Join(err, fmt.Errorf("it has %d bytes, and an XFS needs at least %d", size, minSize))
	}
	return d, nil
}

// aligned returns memory as O_DIRECT wants it.
func aligned(size int) []byte {
	b, err := unix.Mmap(-1, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		panic(err) // there is no memory
	}
	return b
}

func (d *device) close() error {
	_, _ = unix.Munmap(d.block), unix.Munmap(d.out) // they are what Mmap returned
	return d.file.Close()
}

// size returns the present size of the disk, as this machine knows it.
func (d *device) size() (int64, error) {
	size, err := d.file.Seek(0, io.SeekEnd)
	if err != nil {
		return 0, fmt.Errorf("size of the disk: %w", err)
	}
	return size, nil
}

// room returns the size of the file system that fits on the disk.
func (d *device) room() (int64, error) {
	size, err := d.size()
	return size/mib*mib - mib, err
}

// placeOf returns where the beat is behind a file system of a size.
func placeOf(fs int64) int64 { return (fs + mib - 1) / mib * mib }

// read implements target. Whatever is not podnas's own is a permanentError. Another process may be making the file system
// between one read and the next: it first says so, then writes it, then says that it is done. So what was read is
// right after at most two of these steps.
func (d *device) read() (b beat, empty bool, err error) {
	for range 3 {
		b, empty, err = d.readOnce()
		var permanent permanentError
		if !errors.As(err, &permanent) {
			break
		}
	}
	return b, empty, err
}

func (d *device) readOnce() (b beat, empty bool, err error) {
	super, err := d.superblock()
	if err != nil && !errors.Is(err, xfs.ErrNone) {
		return beat{}, false, err
	}
	ours := err == nil && super.Label == xfs.Label && !super.Making
	if ours {
		d.at = placeOf(super.Size)
		if err := d.fits(super.Size); err != nil {
			return beat{}, false, err
		}
		b, ok, err := d.beatAt(d.at)
		if err != nil || ok && !b.Growing {
			return b, false, err
		}
	}
	// The file system is not there yet, or a process has died while it made it larger: then the beat is where the disk ends.
	room, err := d.room()
	if err != nil {
		return beat{}, false, err
	}
	d.at = placeOf(room)
	b, ok, err := d.beatAt(d.at)
	switch {
	case err != nil || ours:
		return b, false, err
	case ok && b.Making:
		return b, true, nil
	case ok:
		return b, false, permanentError{fmt.Errorf("the file system of podnas on it is damaged: its superblock is gone: %s; or restore a backup", repair(d.path, b.Name))}
	}
	return beat{}, true, d.checkEmpty(super)
}

func (d *device) superblock() (xfs.Superblock, error) {
	if _, err := d.file.ReadAt(d.block, 0); err != nil {
		return xfs.Superblock{}, fmt.Errorf("read the disk: %w", err)
	}
	return xfs.DecodeSuperblock(d.block)
}

// fits checks that the disk is as large here as where the file system has grown.
func (d *device) fits(fs int64) error {
	size, err := d.size()
	if err == nil && size < placeOf(fs)+beatSize {
		err = fmt.Errorf("the disk has %d bytes on this machine, and its file system %d: have the machine look at its size again", size, fs)
	}
	return err
}

func (d *device) beatAt(at int64) (b beat, ok bool, err error) {
	if _, err := d.file.ReadAt(d.block, at); err != nil {
		return beat{}, false, fmt.Errorf("read the disk: %w", err)
	}
	b, ok = decodeBeat(d.block)
	return b, ok, nil
}

// checkEmpty wants nothing but zeros at both ends: anything else may be somebody's only copy of it.
func (d *device) checkEmpty(super xfs.Superblock) error {
	size, err := d.size()
	if err != nil {
		return err
	}
	block := aligned(mib)
	defer unix.Munmap(block) //nolint:errcheck // it is what Mmap returned
	for _, at := range []int64{0, size/beatSize*beatSize - mib} {
		if _, err := d.file.ReadAt(block, at); err != nil {
			return fmt.Errorf("read the disk: %w", err)
		}
		if len(bytes.Trim(block, "\x00")) == 0 {
			continue
		}
		what := "something that is not podnas's"
		if super.Size != 0 {
			what = fmt.Sprintf("an XFS with the label %q", super.Label)
		}
		return permanentError{fmt.Errorf("it contains %s; podnas does not change it: use another disk, or, if nobody needs what is on it, empty it (wipefs --all, and write zeros to its first and its last MiB)", what)}
	}
	return nil
}

// write implements target.
func (d *device) write(b *beat) error { return d.writeAt(b, d.at) }

func (d *device) writeAt(b *beat, at int64) error {
	copy(d.out, b.encode())
	_, err := d.file.WriteAt(d.out, at)
	if errors.Is(err, unix.EBADE) {
		return errConflict
	}
	if err != nil {
		return fmt.Errorf("write to the disk: %w", err)
	}
	return nil
}

// removed implements target. The kernel gives a disk that it has removed the size 0.
func (d *device) removed() error {
	if size, err := d.size(); err != nil || size > 0 {
		return nil
	}
	return errRemoved
}

// unused implements target. A mount is an exclusive use, as that by a device mapper is.
func (d *device) unused() error {
	f, err := os.OpenFile(d.path, os.O_RDONLY|unix.O_EXCL, 0)
	if errors.Is(err, unix.EBUSY) {
		return errMounted
	}
	if err != nil {
		return err
	}
	return f.Close()
}

// Package faultydisk makes file systems on disks that fail when a test wants them to, and
// tells what is on the disk then. It needs root, losetup, and the kernel's and the
// mkfs program of each file system.
package faultydisk

import (
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Kind is how a file system is made.
type Kind struct {
	Name string
	fs   string
	size int64 // bytes
	mkfs []string
	// holds: what mkfs has laid out, with it the journal, can be written while the disk
	// fails, and nothing else.
	holds bool
	// losesBlocks: the file system may not tell of a block of its own that could not be
	// written, see docs/internals/durability.md.
	losesBlocks bool
}

// Loses reports whether the error of reading something that was synced may be that the file system has
// lost a block of its own: where a file's data is, EIO, what is in a directory, EUCLEAN, or an inode whose
// checksum is not that of the block, EBADMSG.
func (k Kind) Loses(err error) bool {
	return k.losesBlocks && (errors.Is(err, syscall.EIO) || errors.Is(err, syscall.EUCLEAN) || errors.Is(err, syscall.EBADMSG))
}

// Kinds are all that are served by the native engine.
func Kinds() []Kind {
	ext4 := []string{"mkfs.ext4", "-q", "-F", "-b", "4096"}
	xfs := []string{"mkfs.xfs", "-q", "-f", "-K", "-s", "size=4096"}
	btrfs := []string{"mkfs.btrfs", "-q", "-f", "-K"}
	return []Kind{
		{"ext4", "ext4", 96 << 20, append(ext4, "-E", "nodiscard,lazy_itable_init=0"), true, false},
		{"ext4 and its journal", "ext4", 96 << 20, append(ext4, "-E", "lazy_journal_init=1"), false, false},
		{"ext4 without a journal", "ext4", 96 << 20, append(ext4, "-E", "nodiscard,lazy_itable_init=0", "-O", "^has_journal"), true, true},
		{"XFS", "xfs", 304 << 20, xfs, true, false},
		{"XFS and its log", "xfs", 304 << 20, xfs, false, false},
		{"btrfs", "btrfs", 256 << 20, btrfs, false, false},
	}
}

// Disk is a mounted file system.
type Disk struct {
	testing.TB
	Kind Kind
	Dir  string // where it is mounted

	image      string // the file that it is in
	device     string
	fail, mend func()
}

// Fail has the disk fail, until Mend.
func (d *Disk) Fail() { d.fail() }

// Mend has it work again.
func (d *Disk) Mend() { d.mend() }

// room is what the tmpfs has more than the image's size, in bytes.
const room = 16 << 20

// NewThin makes a disk whose image is in a tmpfs. When it fails, the tmpfs is full, and
// nothing can be written where there is nothing yet, as in a thin pool that is full. It
// lasts until the test ends.
func NewThin(t testing.TB, kind Kind) *Disk {
	t.Helper()
	d, store := newDisk(t, kind)
	d.run(kind.mkfs[0], append(kind.mkfs[1:], d.image)...)
	if kind.holds { // all of it is there at first
		d.run("fallocate", "--length", fmt.Sprint(kind.size), d.image)
	} else if kind.fs == "xfs" { // mkfs has written the log
		at, length := XFSLog(t, d.image)
		d.run("fallocate", "--punch-hole", "--offset", fmt.Sprint(at), "--length", fmt.Sprint(length), d.image)
	}
	d.device = d.loop(d.image)
	d.mount()
	t.Cleanup(d.unmount)
	if kind.holds { // and then what is free is not
		d.run("fstrim", d.Dir)
	}
	resize := func(size int64) error {
		return unix.Mount("tmpfs", store, "tmpfs", unix.MS_REMOUNT, fmt.Sprintf("size=%d", size))
	}
	d.fail = func() {
		err := error(unix.EINVAL)
		for errors.Is(err, unix.EINVAL) { // it takes more than when it was asked
			var st unix.Statfs_t
			d.must(unix.Statfs(store, &st))
			err = resize(int64(st.Blocks-st.Bfree) * st.Bsize)
		}
		d.must(err)
	}
	d.mend = func() { d.must(resize(kind.size + room)) }
	return d
}

// NewFlakey makes a disk on the device mapper's target "flakey". When it fails, nothing
// can be written. It lasts until the test ends.
func NewFlakey(t testing.TB, kind Kind) *Disk {
	t.Helper()
	_ = exec.Command("modprobe", "dm-flakey").Run() // where it is not built in
	misc, err := os.ReadFile("/proc/misc")
	if err == nil && !strings.Contains(string(misc), "device-mapper") {
		err = errors.New("this kernel has no device mapper")
	}
	if err == nil {
		_, err = exec.LookPath("dmsetup")
	}
	if err != nil && os.Getenv("PODNAS_TEST_XFS") != "" { // in the guest, which has both
		t.Fatal(err)
	} else if err != nil {
		t.Skipf("%v; `make vm` runs this test", err)
	}
	d, _ := newDisk(t, kind)
	d.run(kind.mkfs[0], append(kind.mkfs[1:], d.image)...)
	loop := d.loop(d.image)
	name := fmt.Sprint("podnas-faulty-", os.Getpid())
	table := func(up, down int) string {
		return fmt.Sprintf("0 %d flakey %s 0 %d %d 1 error_writes", kind.size/512, loop, up, down)
	}
	d.run("dmsetup", "create", name, "--table", table(1, 0))
	t.Cleanup(func() { d.run("dmsetup", "remove", name) })
	d.run("dmsetup", "mknodes", name) // there may be no udev
	d.device = "/dev/mapper/" + name
	// One command: while the disk is suspended, who has a file open there over NFS can
	// start none, since that closes the file.
	const reload = `dmsetup suspend --nolockfs --noflush "$0" && dmsetup load "$0" --table "$1" && dmsetup resume "$0"`
	d.fail = func() { d.run("sh", "-c", reload, name, table(0, 1)) }
	d.mend = func() { d.run("sh", "-c", reload, name, table(1, 0)) }
	d.mount()
	t.Cleanup(d.unmount)
	return d
}

// newDisk makes the file that the disk is in, in a tmpfs.
func newDisk(t testing.TB, kind Kind) (d *Disk, store string) {
	t.Helper()
	_ = exec.Command("modprobe", "loop").Run() // where it is not built in
	for _, program := range []string{kind.mkfs[0], "losetup"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("no disk of this kind: %v", err)
		}
	}
	d, store = &Disk{TB: t, Kind: kind, Dir: t.TempDir()}, t.TempDir()
	d.must(unix.Mount("tmpfs", store, "tmpfs", 0, fmt.Sprintf("size=%d", kind.size+room)))
	t.Cleanup(func() { d.must(unix.Unmount(store, 0)) })
	d.image = filepath.Join(store, "image")
	d.must(os.WriteFile(d.image, nil, 0o600))
	d.must(os.Truncate(d.image, kind.size))
	return d, store
}

// loop makes a block device of an image.
func (d *Disk) loop(image string) string {
	d.Helper()
	path := strings.TrimSpace(d.run("losetup", "--sector-size", "4096", "--find", "--show", image))
	device, err := os.Open(path)
	d.must(err)
	d.Cleanup(func() { device.Close() })
	d.run("losetup", "--detach", path) // when nobody has it open any longer
	// A page at a time: of a write that is cut short, loop.c says that it was done.
	d.must(os.WriteFile(filepath.Join("/sys/block", filepath.Base(path), "queue/max_sectors_kb"), []byte("4"), 0))
	return path
}

func (d *Disk) mount() {
	d.Helper()
	err := unix.Mount(d.device, d.Dir, d.Kind.fs, 0, "")
	if errors.Is(err, unix.ENODEV) {
		d.Skipf("this kernel has no %s", d.Kind.fs)
	}
	d.must(err)
}

func (d *Disk) unmount() {
	d.Helper()
	if err := unix.Unmount(d.Dir, 0); !errors.Is(err, unix.EINVAL) { // it is not mounted
		d.must(err)
	}
}

// Cut cuts the file system off from its disk, and mounts it again: what is there then was on the
// disk. btrfs, which can't be cut off, is mounted from a copy.
func (d *Disk) Cut() {
	d.Helper()
	if d.Kind.fs == "btrfs" {
		copied := filepath.Join(d.TempDir(), "image")
		d.run("cp", "--sparse=always", d.image, copied)
		d.unmount()
		d.must(forgetBtrfs()) // or the copy is an old one of this
		d.image, d.device = copied, d.loop(copied)
		d.mount()
		return
	}
	dir, err := os.Open(d.Dir)
	if err == nil {
		const shutdown, noLogFlush = 'X'<<8 | 125 | 4<<16 | 2<<30, 2 // XFS_IOC_GOINGDOWN, which ext4 has too
		err = errors.Join(unix.IoctlSetPointerInt(int(dir.Fd()), shutdown, noLogFlush), dir.Close())
	}
	if !errors.Is(err, unix.EIO) { // it has ended already
		d.must(err)
	}
	d.unmount()
	d.mount()
}

// forgetBtrfs has the kernel forget the devices of every btrfs that is not mounted.
func forgetBtrfs() error {
	control, err := os.Open("/dev/btrfs-control")
	if err != nil {
		return err
	}
	defer control.Close()
	const forget = 0x50009405 // BTRFS_IOC_FORGET_DEV, linux/btrfs.h
	var every [8 + 4088]byte  // struct btrfs_ioctl_vol_args, without a name
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, control.Fd(), forget, uintptr(unsafe.Pointer(&every))); errno != 0 {
		return errno
	}
	return nil
}

func (d *Disk) must(err error) {
	d.Helper()
	if err != nil {
		d.Fatal(err)
	}
}

func (d *Disk) run(name string, args ...string) string {
	d.Helper()
	out, err := exec.Command(name, args...).CombinedOutput()
	if err != nil {
		d.Fatalf("%s %q: %v\n%s", name, args, err, out)
	}
	return string(out)
}

// XFSLog tells where an XFS has its log.
func XFSLog(t testing.TB, image string) (at, length int64) {
	t.Helper()
	f, err := os.Open(image)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	super := make([]byte, 512) // struct xfs_dsb, fs/xfs/libxfs/xfs_format.h
	if _, err := f.ReadAt(super, 0); err != nil {
		t.Fatal(err)
	}
	size, start, blocks := int64(binary.BigEndian.Uint32(super[4:])), int64(binary.BigEndian.Uint64(super[48:])), int64(binary.BigEndian.Uint32(super[96:]))
	groupBlocks, groupLog := int64(binary.BigEndian.Uint32(super[84:])), super[124]
	return (start>>groupLog*groupBlocks + start&(1<<groupLog-1)) * size, blocks * size
}

// OwnMounts runs a test again, in a process whose mounts are its own: they end with it,
// and no other process gets them too and keeps them from being unmounted. It is false in
// that process, which has to do the test.
func OwnMounts(t *testing.T) bool {
	t.Helper()
	const inside = "PODNAS_TEST_OWN_MOUNTS"
	if os.Getuid() != 0 {
		t.Skip("only root can make a disk that fails")
	}
	if os.Getenv(inside) != "" {
		return false
	}
	run := "^" + t.Name() + "$"
	if _, subtests, ok := strings.Cut(flag.Lookup("test.run").Value.String(), "/"); ok {
		run += "/" + subtests
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.v", "-test.run", run)
	cmd.Env = append(os.Environ(), inside+"=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: unix.CLONE_NEWNS}
	out, err := cmd.CombinedOutput()
	t.Logf("in a process of its own:\n%s", out)
	if err != nil {
		t.Errorf("%v: there failed\n%s", err, failed(string(out)))
	}
	return true
}

// failed is what tests that failed have logged, of all that was printed, which may be long.
func failed(printed string) string {
	var running string
	logged, found := make(map[string]string), ""
	for line := range strings.Lines(printed) {
		text := strings.TrimSpace(line)
		if word, test, ok := strings.Cut(text, "  "); ok && strings.HasPrefix(word, "=== ") {
			running = strings.TrimSpace(test)
		} else if test, ok := strings.CutPrefix(text, "--- FAIL: "); ok {
			name, _, _ := strings.Cut(test, " ")
			found += line + logged[name]
		} else if strings.Contains(text, "_test.go:") || strings.Contains(text, "/disk.go:") {
			logged[running] += line
		}
	}
	return found
}

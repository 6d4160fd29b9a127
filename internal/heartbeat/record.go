package heartbeat

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"syscall"

	"github.com/podnas/podnas/internal/statedir"
)

// recordSize is the size of the file: a block. Overwriting it takes no room.
const recordSize = 4096

// bootIDFile has what the kernel is known by until it starts again.
const bootIDFile = "/proc/sys/kernel/random/boot_id"

// record is what the file says, of the process that has written it last.
type record struct {
	Boot   string `json:"boot"`   // of its kernel; empty: unknown
	Device uint64 `json:"device"` // of the disk, with that kernel
	Beat   uint64 `json:"beat"`   // counted
	Ended  bool   `json:"ended"`  // it has answered its last call
	// Takeover is whether it has answered no call yet, because of the process before it.
	Takeover bool `json:"takeover"`
}

// newRecord returns the record of this process, with a folder on its disk.
func newRecord(dir int) (record, error) {
	var st syscall.Stat_t
	if err := syscall.Fstat(dir, &st); err != nil {
		return record{}, fmt.Errorf("stat: %w", err)
	}
	boot, _ := os.ReadFile(bootIDFile) // without it, the next process waits
	return record{Boot: strings.TrimSpace(string(boot)), Device: st.Dev}, nil
}

// encode writes a record into a block.
func (r *record) encode(block []byte) {
	b, _ := json.Marshal(r) // numbers and a string
	for i := copy(block, b); i < len(block); i++ {
		block[i] = '\n'
	}
}

// readRecord returns what the file says. Its error is fs.ErrNotExist if there is none.
func readRecord(dir *statedir.Dir) (r record, err error) {
	f, err := dir.OpenFile(File, os.O_RDONLY, 0)
	if err != nil {
		return r, err
	}
	defer f.Close()
	block := make([]byte, recordSize)
	n, _ := f.ReadAt(block, 0) // what is not there can't be decoded
	err = json.Unmarshal(block[:n], &r)
	return r, err
}

// over reports whether the process that has written a record, or that could not be read with an error, answers nobody
// any more. The caller has the lock of the disk. With the same kernel and device, only one process can have that, and
// the one before is gone. Others had the disk with another kernel, which may not know yet that it is lost.
func (r *record) over(self *record, err error) bool {
	if err != nil {
		return errors.Is(err, fs.ErrNotExist) // a new disk
	}
	return !r.Takeover && (r.Ended || r.Boot != "" && r.Boot == self.Boot && r.Device == self.Device)
}

// overwrite writes a beat, and waits for the disk. It opens the file each time: then a file system that has become
// read-only is noticed, a file that was removed is made again, and the disk can be mounted read-only meanwhile.
func (h *Heartbeat) overwrite(beat []byte) error {
	if h.cfg.Overwrite != nil {
		return h.cfg.Overwrite(beat)
	}
	err := h.write(beat)
	if statedir.IsFull(err) { // the file system may know that by itself: btrfs wants another block for each beat
		return h.readOr(beat, err)
	}
	return err
}

func (h *Heartbeat) write(beat []byte) error {
	f, err := h.cfg.Dir.MakeFile(File, os.O_WRONLY|syscall.O_DSYNC)
	if err != nil {
		return err
	}
	var st syscall.Stat_t
	if err := syscall.Fstat(int(f.Fd()), &st); err == nil && st.Nlink > 1 { // it has another name, too, and is not to be overwritten
		_ = f.Close()
		return h.cfg.Dir.Remove(File) // the next beat makes it
	}
	_, err = f.WriteAt(beat, 0)
	return errors.Join(err, f.Close())
}

// errNothingToRead means that a full disk can't be asked whether it is ours.
var errNothingToRead = errors.New("it has no room for the heartbeat, and no file of podnas beside it that could be read")

// readOr returns the error full if a full disk answers a read, and otherwise why it does not. If somebody has removed the file,
// the reserve makes it again.
func (h *Heartbeat) readOr(beat []byte, full error) error {
	err := h.readDirectly(File)
	if !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, io.EOF) { // it is there, and has its block
		return cmp.Or(err, full)
	}
	if err := h.cfg.Dir.Write(File, beat); !statedir.IsFull(err) {
		return err
	}
	names, err := h.cfg.Dir.Names()
	if err != nil {
		return err
	}
	for _, name := range names {
		err := h.readDirectly(name)
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, io.EOF) || errors.Is(err, statedir.ErrIrregular) {
			continue
		}
		return cmp.Or(err, full)
	}
	return errNothingToRead
}

// readDirectly reads the beginning of a file from the disk, and not from memory, where the file system can do that. Its error is io.EOF
// if there is nothing in the file.
func (h *Heartbeat) readDirectly(name string) error {
	f, err := h.cfg.Dir.OpenFile(name, os.O_RDONLY|syscall.O_DIRECT, 0)
	if errors.Is(err, syscall.EINVAL) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	page, err := syscall.Mmap(-1, 0, recordSize, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE) // aligned
	if err != nil {
		return err
	}
	defer func() { _ = syscall.Munmap(page) }() // it is ours
	n, err := f.ReadAt(page, 0)
	if n > 0 || errors.Is(err, syscall.EINVAL) {
		return nil
	}
	return err
}

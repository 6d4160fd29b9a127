//go:build vm

package vm_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// beside is another file of an exerciser, that ranges are copied from and to.
type beside struct {
	f    *os.File
	want []byte
}

// runBoth is run of one of two files, with the other beside it. Which is which changes now and then.
func (x *exerciser) runBoth(dir string, names *[2]string, n int) (err error) {
	if x.rng.IntN(4) == 0 {
		names[0], names[1] = names[1], names[0]
		x.want, x.beside.want = x.beside.want, x.want
	}
	x.direct = x.rng.IntN(4) == 0
	x.logf("files %q in %s", *names, dir)
	if x.beside.f, err = os.OpenFile(filepath.Join(dir, names[1]), os.O_RDWR|os.O_CREATE, 0o644); err != nil {
		return err
	}
	err = x.run(filepath.Join(dir, names[0]), n)
	return errors.Join(err, x.beside.f.Close())
}

// stepOfRanges gives blocks to a range of the file, takes some away, copies or shares some within the file, or with the
// one beside it, or looks for them.
func (x *exerciser) stepOfRanges(f *os.File, at, n int) error {
	fd, to := int(f.Fd()), x.rng.IntN(fileMax)
	switch x.rng.IntN(8) {
	case 0:
		x.logf("allocate %d at %d", n, at)
		x.resize(max(len(x.want), at+n))
		return unix.Fallocate(fd, 0, int64(at), int64(n))
	case 1, 2:
		mode := uint32(unix.FALLOC_FL_PUNCH_HOLE | unix.FALLOC_FL_KEEP_SIZE)
		if x.rng.IntN(2) == 0 {
			mode = unix.FALLOC_FL_ZERO_RANGE
		}
		x.logf("fallocate mode %d of %d at %d", mode, n, at)
		err := unix.Fallocate(fd, mode, int64(at), int64(n))
		if errors.Is(err, unix.EOPNOTSUPP) && mode == unix.FALLOC_FL_ZERO_RANGE { // before Linux 6.17
			return nil
		}
		if mode == unix.FALLOC_FL_ZERO_RANGE {
			x.resize(max(len(x.want), at+n))
		}
		clear(x.want[min(at, len(x.want)):min(at+n, len(x.want))])
		return err
	case 3, 4, 5, 6:
		from, into := &end{f, &x.want}, &end{f, &x.want}
		switch x.rng.IntN(3) {
		case 1:
			from = &end{x.beside.f, &x.beside.want}
		case 2:
			into = &end{x.beside.f, &x.beside.want}
		}
		if x.rng.IntN(2) == 0 {
			return x.copyRange(from, into, at, to, n)
		}
		return x.cloneRange(from, into, at, to, n)
	}
	return x.findsData(f, at)
}

// end is a file of a copy, and what must be in it.
type end struct {
	f    *os.File
	want *[]byte
}

func (x *exerciser) copyRange(from, into *end, at, to, n int) error {
	n = min(n, len(*from.want)-at)
	if n <= 0 || from.f == into.f && at < to+n && to < at+n {
		return nil
	}
	x.logf("copy %d at %d of %s to %d of %s", n, at, from.f.Name(), to, into.f.Name())
	// Linux sends COPY when it has written what of the range is in memory. Before a hole that is in memory alone, the server
	// knows no such range yet, and the call returns 0.
	if err := from.f.Sync(); err != nil {
		return err
	}
	for in, out, last := int64(at), int64(to), int64(at+n); in < last; {
		if done, err := unix.CopyFileRange(int(from.f.Fd()), &in, int(into.f.Fd()), &out, int(last-in), 0); done == 0 || err != nil {
			return fmt.Errorf("copy_file_range: %d, %w", done, err)
		}
	}
	copied(from, into, at, to, n)
	return nil
}

// cloneRange shares whole blocks, or all to the end of the file where the other does not go on after that.
func (x *exerciser) cloneRange(from, into *end, at, to, n int) error {
	const block = 4096
	at, to, n = at&^(block-1), to&^(block-1), (n+block-1)&^(block-1)
	size := len(*from.want)
	if at+n > size {
		n = size - at
		if to+n < len(*into.want) {
			n &^= block - 1
		}
	}
	if n <= 0 || from.f == into.f && at < to+n && to < at+n {
		return nil
	}
	length := n
	if at+n == size && x.rng.IntN(2) == 0 {
		length = 0 // which is to the end
	}
	x.logf("clone %d (length %d) at %d of %s to %d of %s", n, length, at, from.f.Name(), to, into.f.Name())
	err := unix.IoctlFileCloneRange(int(into.f.Fd()), &unix.FileCloneRange{
		Src_fd: int64(from.f.Fd()), Src_offset: uint64(at), Src_length: uint64(length), Dest_offset: uint64(to),
	})
	if errors.Is(err, unix.EOPNOTSUPP) { // an ext4
		return nil
	}
	copied(from, into, at, to, n)
	return err
}

// copied is what a copy makes of the file.
func copied(from, into *end, at, to, n int) {
	*into.want = resized(*into.want, max(len(*into.want), to+n))
	copy((*into.want)[to:to+n], (*from.want)[at:at+n])
}

// findsData checks that there are zeros alone where lseek(2) finds no data.
func (x *exerciser) findsData(f *os.File, at int) error {
	x.logf("look for data from %d on", at)
	begins, err := unix.Seek(int(f.Fd()), int64(at), unix.SEEK_DATA)
	switch {
	case errors.Is(err, unix.ENXIO):
		begins = int64(len(x.want))
	case err != nil:
		return err
	}
	for i := at; i < min(int(begins), len(x.want)); i++ {
		if x.want[i] != 0 {
			return fmt.Errorf("SEEK_DATA from %d finds %d, and byte %d is %#x", at, begins, i, x.want[i])
		}
	}
	return nil
}

// TestTwoMounts42 has two mounts take turns with two files, as fsx does with one: all that TestTwoMounts does, with and
// without O_DIRECT, and all that version 4.2 does with ranges, on each file system. After each turn the disk has what was
// written, too. FSX is for how long, as 1h; SEED draws the same steps again.
func TestTwoMounts42(t *testing.T) {
	nativeOnly(t, "go-nfs serves version 3 alone")
	turns, long := 200, time.Duration(0)
	if short() {
		turns = 20
	}
	if s := os.Getenv("FSX"); s != "" {
		var err error
		if long, err = time.ParseDuration(s); err != nil {
			t.Fatalf("FSX: %v", err)
		}
	}
	seed := seedOf(t)
	disks := []string{"XFS", "btrfs", "ext4"}
	for _, disk := range disks {
		t.Run(disk, func(t *testing.T) {
			var s settings
			if disk != "XFS" {
				root, _ := loopDisk(t, disk, "")
				s = settings{root: root, quota: "server"}
			}
			a := newAppliance(t, s)
			a.start()
			pv := a.volume("two", "64Mi")
			mounts := []string{mountWith(t, pv, version42Options()), mountWith(t, pv, append(version42Options(), "nosharecache", "rsize=4096", "wsize=8192"))}
			x := &exerciser{rng: rand.New(rand.NewPCG(seed, 0)), beside: &beside{}}
			names := [2]string{"f", "g"}
			turn, began := 0, time.Now()
			for ; turn < turns || time.Since(began) < long/time.Duration(len(disks)); turn++ {
				if err := x.runBoth(mounts[turn%2], &names, 25); err != nil {
					t.Fatalf("turn %d: %v", turn, err)
				}
				holds(t, filepath.Join(a.dir(pv), names[0]), x.want)
				holds(t, filepath.Join(a.dir(pv), names[1]), x.beside.want)
				if t.Failed() {
					t.Fatalf("turn %d; the latest steps: %q", turn, x.steps)
				}
			}
			t.Logf("%d turns of 25 steps", turn)
		})
	}
}

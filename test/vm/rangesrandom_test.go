//go:build vm

package vm_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// stepOfRanges gives blocks to a range of the file, takes some away, copies or shares some within the file, or looks
// for them.
func (x *exerciser) stepOfRanges(f *os.File, at, n int) error {
	fd, to := int(f.Fd()), x.rng.IntN(fileMax)
	switch x.rng.IntN(6) {
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
	case 3:
		n = min(n, len(x.want)-at)
		if n <= 0 || at < to+n && to < at+n {
			return nil
		}
		x.logf("copy %d at %d to %d", n, at, to)
		for in, out, end := int64(at), int64(to), int64(at+n); in < end; {
			if done, err := unix.CopyFileRange(fd, &in, fd, &out, int(end-in), 0); done == 0 || err != nil {
				return fmt.Errorf("copy_file_range: %d, %w", done, err)
			}
		}
		x.copied(at, to, n)
		return nil
	case 4:
		const block = 4096
		at, to, n = at&^(block-1), to&^(block-1), (n+block-1)&^(block-1)
		if at+n > len(x.want) || at < to+n && to < at+n {
			return nil
		}
		x.logf("clone %d at %d to %d", n, at, to)
		err := unix.IoctlFileCloneRange(fd, &unix.FileCloneRange{Src_fd: int64(fd), Src_offset: uint64(at), Src_length: uint64(n), Dest_offset: uint64(to)})
		if errors.Is(err, unix.EOPNOTSUPP) { // an ext4
			return nil
		}
		x.copied(at, to, n)
		return err
	}
	return x.findsData(f, at)
}

// copied is what a copy within the file makes of it.
func (x *exerciser) copied(at, to, n int) {
	x.resize(max(len(x.want), to+n))
	copy(x.want[to:to+n], x.want[at:at+n])
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

// TestTwoMounts42 is TestTwoMounts with all that version 4.2 does with ranges, on each file system, as fsx does it. What
// is on the disk is compared, too.
func TestTwoMounts42(t *testing.T) {
	nativeOnly(t, "go-nfs serves version 3 alone")
	turns := 60
	if short() {
		turns = 20
	}
	for _, disk := range []string{"XFS", "btrfs", "ext4"} {
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
			seed := rand.Uint64()
			t.Logf("seed %d", seed)
			x := &exerciser{rng: rand.New(rand.NewPCG(seed, 0)), ranges: true}
			for turn := range turns {
				x.logf("mount %d", turn%2)
				if err := x.run(filepath.Join(mounts[turn%2], "f"), 25); err != nil {
					t.Fatalf("turn %d: %v", turn, err)
				}
				holds(t, filepath.Join(a.dir(pv), "f"), x.want)
			}
		})
	}
}

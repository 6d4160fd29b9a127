//go:build vm

package vm_test

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// fileMax is small, so that operations meet.
const fileMax = 256 << 10

// exerciser does random things with a file, as fsx does, and knows what must be
// in it.
type exerciser struct {
	rng   *rand.Rand
	want  []byte
	steps []string // the latest, to be told when something is wrong

	beside *beside // also what only version 4.2 has: rangesrandom_test.go
	direct bool    // with O_DIRECT, and without mappings
}

func (x *exerciser) logf(format string, args ...any) {
	x.steps = append(x.steps, fmt.Sprintf(format, args...))
	x.steps = x.steps[max(0, len(x.steps)-40):]
}

// run opens the file, does n things and closes it.
func (x *exerciser) run(name string, n int) error {
	flags := os.O_RDWR | os.O_CREATE
	if x.direct {
		flags |= unix.O_DIRECT
	}
	x.logf("open, O_DIRECT %v", x.direct)
	f, err := os.OpenFile(name, flags, 0o644)
	if err != nil {
		return err
	}
	defer f.Close()
	for range n {
		if err := x.step(f); err != nil {
			return fmt.Errorf("%w; the latest steps: %q", err, x.steps)
		}
	}
	if err := x.verify(f, 0, len(x.want)); err != nil {
		return fmt.Errorf("%w; the latest steps: %q", err, x.steps)
	}
	x.logf("close")
	return f.Close()
}

func (x *exerciser) step(f *os.File) error {
	at := x.rng.IntN(fileMax)
	n := 1 + x.rng.IntN(min(fileMax-at, 1<<x.rng.IntN(17)))
	if x.beside != nil && x.rng.IntN(2) == 0 {
		return x.stepOfRanges(f, at, n)
	}
	switch x.rng.IntN(11) {
	case 0, 1, 2:
		x.logf("write %d at %d", n, at)
		b := make([]byte, n)
		for i := range b {
			b[i] = byte(x.rng.Uint32())
		}
		x.resize(max(len(x.want), at+n))
		copy(x.want[at:], b)
		_, err := f.WriteAt(b, int64(at))
		return err
	case 3:
		x.logf("truncate %d", at)
		x.resize(at)
		return f.Truncate(int64(at))
	case 4:
		x.logf("fsync")
		return f.Sync()
	case 5:
		if at+n > len(x.want) || x.direct {
			return nil
		}
		x.logf("mapped write %d at %d", n, at)
		m, err := unix.Mmap(int(f.Fd()), 0, len(x.want), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
		if err != nil {
			return err
		}
		for i := at; i < at+n; i++ {
			m[i] ^= 0x55
			x.want[i] ^= 0x55
		}
		return unix.Munmap(m)
	case 6:
		x.logf("forget what is cached")
		if err := f.Sync(); err != nil {
			return err
		}
		return unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED)
	case 7:
		if at+n > len(x.want) || x.direct {
			return nil
		}
		x.logf("mapped read %d at %d", n, at)
		m, err := unix.Mmap(int(f.Fd()), 0, at+n, unix.PROT_READ, unix.MAP_SHARED)
		if err != nil {
			return err
		}
		return errors.Join(differs(m[at:], x.want[at:at+n], at), unix.Munmap(m))
	}
	if at >= len(x.want) {
		return nil
	}
	n = min(n, len(x.want)-at)
	x.logf("read %d at %d", n, at)
	return x.verify(f, at, n)
}

func (x *exerciser) resize(n int) { x.want = resized(x.want, n) }

func resized(b []byte, n int) []byte {
	return append(b[:min(n, len(b))], make([]byte, max(0, n-len(b)))...)
}

func (x *exerciser) verify(f *os.File, at, n int) error {
	b := make([]byte, n)
	if _, err := f.ReadAt(b, int64(at)); err != nil {
		return err
	}
	if err := differs(b, x.want[at:at+n], at); err != nil {
		return err
	}
	if st, err := f.Stat(); err != nil || st.Size() != int64(len(x.want)) {
		return fmt.Errorf("the size is %d, want %d (%v)", st.Size(), len(x.want), err)
	}
	return nil
}

// differs says where what is at an offset is not what it should be.
func differs(got, want []byte, at int) error {
	for i := range got {
		if got[i] != want[i] {
			return fmt.Errorf("byte %d is %#x, %#x was written", at+i, got[i], want[i])
		}
	}
	return nil
}

// TestRandomOperations: several files, each with random writes, reads,
// truncations and mappings, all at once.
func TestRandomOperations(t *testing.T) {
	a := serve(t)
	pv := a.volume("random", "128Mi")
	mnt := mount(t, pv)
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	var wg sync.WaitGroup
	until := time.Now().Add(8 * time.Second)
	for i := range uint64(4) {
		wg.Go(func() {
			name := fmt.Sprint(i)
			x := &exerciser{rng: rand.New(rand.NewPCG(seed, i))}
			for time.Now().Before(until) {
				if err := x.run(filepath.Join(mnt, name), 50); err != nil {
					t.Error(err)
					return
				}
				if b, err := os.ReadFile(filepath.Join(a.dir(pv), name)); err != nil || !bytes.Equal(b, x.want) {
					t.Errorf("on the disk the file is not what was written (%v); the latest steps: %q", err, x.steps)
				}
			}
		})
	}
	wg.Wait()
}

// TestTwoMounts: two mounts that share no cache take turns with a file. Whoever
// opens it sees what the other had written when it closed it.
func TestTwoMounts(t *testing.T) {
	nativeOnly(t, "it only takes its time")
	a := serve(t)
	pv := a.volume("two", "128Mi")
	mounts := []string{mount(t, pv)}
	pv.Spec.MountOptions = append(pv.Spec.MountOptions, "nosharecache", "rsize=4096", "wsize=8192")
	mounts = append(mounts, mount(t, pv))
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	x := &exerciser{rng: rand.New(rand.NewPCG(seed, 0))}
	for turn := range 60 {
		mnt := mounts[turn%2]
		x.logf("mount %d", turn%2)
		if err := x.run(filepath.Join(mnt, "f"), 10); err != nil {
			t.Fatalf("turn %d: %v", turn, err)
		}
		// Names: made here, opened and removed there.
		name := fmt.Sprint("n-", turn)
		mustWrite(t, filepath.Join(mnt, name), []byte(name))
		holds(t, filepath.Join(mounts[(turn+1)%2], name), []byte(name))
		if err := os.Remove(filepath.Join(mounts[(turn+1)%2], name)); err != nil {
			t.Error(err)
		}
	}
}

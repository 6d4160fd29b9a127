package space

import (
	"errors"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/podnas/podnas/quota"
	"github.com/podnas/podnas/server/disk"
)

// The limits are what a client is told.
func TestLimitIsTold(t *testing.T) {
	disk := Room{Size: 1 << 40, Free: 1 << 29, Available: 1 << 29, Files: 1 << 20, FreeFiles: 1000}
	for _, test := range []struct {
		name                         string
		limit                        quota.Limit
		used, inodes                 int64
		size, free, files, freeFiles uint64
	}{
		{"room in the volume", quota.Limit{Bytes: 1 << 20, Inodes: 100}, 1 << 19, 40, 1 << 20, 1 << 19, 100, 60},
		{"no limit of inodes", quota.Limit{Bytes: 1 << 20, Inodes: 0}, 1 << 19, 40, 1 << 20, 1 << 19, 1040, 1000},
		{"room on the disk", quota.Limit{Bytes: 1 << 50, Inodes: 5000}, 1 << 19, 40, 1 << 50, 1 << 29, 5000, 1000},
		{"past the limit", quota.Limit{Bytes: 1 << 20, Inodes: 30}, 1 << 21, 40, 1 << 20, 0, 30, 0},
		{"below nothing", quota.Limit{Bytes: 1 << 20, Inodes: 30}, -1, -1, 1 << 20, 1 << 20, 30, 30},
		{"no room at all", quota.Limit{Bytes: -1, Inodes: -1}, 1, 1, 0, 0, 1001, 1000},
	} {
		a, room := NewAccount(test.limit), disk
		a.used.store(Amount{test.used, test.inodes})
		a.LimitTo(&room)
		want := Room{Size: test.size, Free: test.free, Available: test.free, Files: test.files, FreeFiles: test.freeFiles}
		if room != want {
			t.Errorf("%s: %+v, want %+v", test.name, room, want)
		}
	}
}

// aboutLargest are sizes, offsets and counts around what 63 bits hold, as a client's 64
// bits become numbers with a sign, and around where disks end.
func aboutLargest(random *rand.Rand) int64 {
	around := []uint64{1 << 63, 1 << 63, 1 << 62, 1<<44 - 4096, 1 << 32, 1 << 20, 0}
	at := around[random.IntN(len(around))] + random.Uint64N(256<<10) - 128<<10
	if random.IntN(8) == 0 {
		at = math.MaxInt64 - random.Uint64N(3)
	}
	return int64(at)
}

// TestSums: sums of what clients name stop at the largest number.
func TestSums(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 3))
	p := Prices{Inode: 512, PerName: true}
	for range 100_000 {
		size, count := aboutLargest(random), int(random.Uint64N(256<<10))
		if size < 0 {
			if err := checkRange(size, count); !errors.Is(err, unix.EINVAL) {
				t.Fatalf("%d bytes at %d: %v", count, size, err)
			}
			continue
		}
		if r := roundUp(size); r < 0 || r%blockSize != 0 || r < size-blockSize || r > size && r-size >= blockSize {
			t.Fatalf("%d is rounded up to %d", size, r)
		}
		if n := blocksOf(size, count); n < int64(count) || n > int64(count)+2*blockSize {
			t.Fatalf("%d bytes at %d are in %d bytes of blocks", count, size, n)
		}
		if err := checkRange(size, count); (err != nil) != (uint64(size)+uint64(count) > math.MaxInt64) {
			t.Fatalf("%d bytes at %d: %v", count, size, err)
		}
		st := unix.Stat_t{Mode: unix.S_IFREG, Nlink: 1, Size: size, Blocks: aboutLargest(random)}
		if bytes, ahead := p.of(&st); bytes < 0 || ahead < 0 {
			t.Fatalf("%+v is charged %d, with %d ahead", st, bytes, ahead)
		}
		a := NewAccount(quota.Limit{Bytes: max(aboutLargest(random), 0)})
		for range 4 { // many at once
			n := addSizes(blocksOf(size, count), size)
			if a.claim(Amount{bytes: n}) && a.taken.bytes.Load() > a.limit.bytes.Load() {
				t.Fatalf("%d more of %d are let in", n, a.limit.bytes.Load())
			}
		}
	}
}

// TestBlocksStay: what is written over existing blocks takes no room, so they may not be
// cut away, and given to others, before it is written.
func TestBlocksStay(t *testing.T) {
	f, err := os.Create(filepath.Join(t.TempDir(), "file"))
	mustDo(t, err)
	defer f.Close()
	a := NewAccount(quota.Limit{Bytes: 1 << 20})
	a.Attach(f, nil)
	var st unix.Stat_t
	mustDo(t, unix.Fstat(int(f.Fd()), &st))
	c := a.Enter(disk.InodeOf(&st))
	defer c.Leave("")
	c.blocks.RLock() // as overwrite does
	cut := make(chan error)
	go func() { cut <- c.Resize(int(f.Fd()), 0, func() error { return f.Truncate(0) }) }()
	select {
	case err := <-cut:
		c.blocks.RUnlock()
		t.Error(err, "the file is cut while somebody relies on its blocks")
	case <-time.After(50 * time.Millisecond):
		c.blocks.RUnlock()
		mustDo(t, <-cut)
	}
}

// TestFillHoldsNoLock: what gives blocks to a range may take long, and others write meanwhile, also where they find no
// room; what it takes is taken from its beginning on.
func TestFillHoldsNoLock(t *testing.T) {
	const limit = 64 << 20
	dir := t.TempDir()
	f, err := os.Create(filepath.Join(dir, "file"))
	mustDo(t, err)
	defer f.Close()
	other, err := os.Create(filepath.Join(dir, "other"))
	mustDo(t, err)
	defer other.Close()
	a := NewAccount(quota.Limit{Bytes: limit})
	root, err := os.Open(dir)
	mustDo(t, err)
	defer root.Close()
	a.Attach(root, nil)
	var st unix.Stat_t
	mustDo(t, unix.Fstat(int(f.Fd()), &st))
	c := a.Enter(disk.InodeOf(&st))
	defer c.Leave("")
	mustDo(t, unix.Fstat(int(other.Fd()), &st))
	d := a.Enter(disk.InodeOf(&st))
	defer d.Leave("")
	for name, alone := range map[string]bool{"with room": false, "alone": true} {
		before := a.Held().Reserved
		most := int64(limit / 2)
		if alone { // what is reserved with the lock for itself
			a.ceiling.store(Amount{})
		}
		mustDo(t, c.Fill(int(f.Fd()), 0, most, AnyRoom, func() error {
			wrote := make(chan error, 1)
			go func() {
				_, err := d.Write(int(other.Fd()), make([]byte, 1<<20), 0, &unix.Stat_t{})
				_, full := d.Write(int(other.Fd()), make([]byte, limit), 1<<20, &unix.Stat_t{})
				if !errors.Is(full, unix.EDQUOT) {
					err = errors.Join(err, errors.New("there is room for what is taken"))
				}
				wrote <- errors.Join(err, other.Truncate(0))
			}()
			select {
			case err := <-wrote:
				if err != nil {
					t.Errorf("%s: %v", name, err)
				}
			case <-time.After(10 * time.Second):
				t.Errorf("%s: others wait", name)
			}
			return nil
		}))
		if after := a.Held().Reserved; after != before {
			t.Errorf("%s: %+v stays reserved", name, after.minus(before))
		}
	}
}

func mustDo(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

package volume

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/podnas/podnas/quota"
)

func TestInodesFor(t *testing.T) {
	const mib, gib = 1 << 20, 1 << 30
	ext4 := Space{Size: 10 * gib, Inodes: 10 * gib / (16 << 10)} // as mkfs makes it
	news := Space{Size: 10 * gib, Inodes: 10 * gib / (4 << 10)}  // mkfs.ext4 -T news
	large := Space{Size: 10 * gib, Inodes: 10 * gib / (1 << 20)} // mkfs.ext4 -T largefile
	xfs := Space{Size: 10 * gib, Inodes: 10 * gib / (2 << 10)}
	btrfs := Space{Size: 10 * gib}
	for _, tt := range []struct {
		name          string
		disk          Space
		size          int64
		bytesPerInode int64
		overcommit    float64
		want          int64
	}{
		{"XFS", xfs, gib, 0, 0, gib / 4096},
		{"btrfs", btrfs, gib, 0, 0, gib / 4096},
		{"XFS, promised", xfs, gib, 0, 1, gib / 4096},
		{"small", xfs, mib, 0, 0, 1024},
		{"one byte", xfs, 1, 0, 0, 1024},
		{"largest", btrfs, math.MaxInt64, 0, 0, math.MaxInt64 / 4096},
		{"largest, asked for the most", btrfs, math.MaxInt64, MinBytesPerInode, 0, math.MaxInt64 / MinBytesPerInode},
		{"ext4: twice its share", ext4, gib, 0, 0, gib / 8192},
		{"ext4, promised: its share", ext4, gib, 0, 1, gib / 16384},
		{"ext4, promised twice: its share", ext4, gib, 0, 2, gib / 16384},
		{"ext4 with many inodes", news, gib, 0, 0, gib / 4096},
		{"ext4 with few inodes", large, gib, 0, 0, 2048},
		{"ext4, all of it", ext4, 10 * gib, 0, 0, int64(ext4.Inodes)},
		{"ext4, more than it has", ext4, 100 * gib, 0, 0, int64(ext4.Inodes)},
		{"asked for fewer", xfs, gib, 64 << 10, 0, gib / 65536},
		{"asked for more", ext4, gib, 2048, 1, gib / 2048},
		{"asked for more than there are", ext4, 10 * gib, 2048, 0, int64(ext4.Inodes)},
		{"asked for next to none", xfs, gib, gib, 0, 1024},
	} {
		if got := tt.disk.inodesFor(tt.size, tt.bytesPerInode, tt.overcommit); got != tt.want {
			t.Errorf("%s: %d inodes for %s, want %d", tt.name, got, FormatSize(tt.size), tt.want)
		}
	}
}

// Volumes of a disk whose sizes are promised once are not promised more inodes than
// it has, but for those that are small.
func TestPromisedInodes(t *testing.T) {
	disk, sum := Space{Size: 100 << 30, Inodes: 100 << 30 / (16 << 10)}, int64(0)
	for size := int64(64 << 20); size < disk.Size/4; size *= 2 {
		sum += disk.inodesFor(size, 0, 1)
	}
	if sum > int64(disk.Inodes) || sum == 0 {
		t.Errorf("%d of %d are promised", sum, disk.Inodes)
	}
}

// The limit is the kernel's from when the volume is made, and grows with it.
func TestInodeLimit(t *testing.T) {
	root, k := t.TempDir(), newKernel(t)
	s, _ := k.boot(t, root)
	holds := func(when string, want int64) {
		t.Helper()
		v, err := s.Get("v")
		mustDo(t, err)
		if u, err := k.Usage(v.Project); err != nil || v.Inodes != want || u.Limit != v.limit() {
			t.Errorf("%s: the record says %d, the kernel %+v, %v, want %d", when, v.Inodes, u.Limit, err, want)
		}
	}
	_, err := s.Create(t.Context(), Spec{Name: "v", Size: 4 << 20, BytesPerInode: 2048})
	mustDo(t, err)
	holds("made", 2048)
	_, err = s.Resize(t.Context(), "v", 8<<20, 0)
	mustDo(t, err)
	holds("raised", 4096)
	_, err = s.Resize(t.Context(), "v", 8<<20, 1024)
	mustDo(t, err)
	holds("given more inodes", 8192)
	if _, err = s.Resize(t.Context(), "v", 8<<20, 4096); !errors.Is(err, ErrShrink) {
		t.Errorf("given fewer inodes: %v, want ErrShrink", err)
	}
	if _, err = s.Resize(t.Context(), "v", 8<<20, 16); !errors.Is(err, ErrInvalid) {
		t.Errorf("an inode for each 16 bytes: %v, want ErrInvalid", err)
	}
	holds("refused", 8192)
	v, err := s.Get("v")
	mustDo(t, err)
	mustDo(t, k.SetLimit(v.Project, quota.Limit{Bytes: v.Size}))
	findings, err := s.Check()
	mustDo(t, err)
	if len(findings) != 1 || findings[0].Problem != "its inode limit on the disk is 0, not 8192" {
		t.Errorf("the limit is gone: found %v", findings)
	}
	mustDo(t, s.Close())
	s, _ = k.boot(t, root)
	defer func() { mustDo(t, s.Close()) }()
	holds("after a start", 8192)
	if space, err := s.Space(); err != nil || space.InodesPromised != 8192 {
		t.Errorf("promised: %+v, %v", space, err)
	}
	if _, err := s.Create(t.Context(), Spec{Name: "w", Size: 1, BytesPerInode: 255}); !errors.Is(err, ErrInvalid) {
		t.Errorf("made with an inode for each 255 bytes: %v, want ErrInvalid", err)
	}
	mustDo(t, s.Delete(t.Context(), "v"))
	eventually(t, "the limits are lifted", func() bool {
		u, err := k.Usage(v.Project)
		return err == nil && u.Limit == quota.Limit{}
	})
}

// editRecord changes what is in a volume's record, of which this version need not
// know.
func editRecord(t *testing.T, root, name string, edit func(map[string]any)) {
	t.Helper()
	file := filepath.Join(root, recordFile(name))
	data, err := os.ReadFile(file)
	mustDo(t, err)
	var r map[string]any
	mustDo(t, json.Unmarshal(data, &r))
	edit(r)
	delete(r, checksumField)
	data, err = json.Marshal(r)
	mustDo(t, errors.Join(err, os.WriteFile(file, data, 0o600)))
}

// A volume without a limit gets one at the next start, and never one that it is past already.
func TestInodesAtAStart(t *testing.T) {
	for _, tt := range []struct {
		used int64
		want int64
	}{{10, 1024}, {1000, 1250}, {1500, 1875}} {
		t.Run(fmt.Sprint(tt.used), func(t *testing.T) {
			root, k := t.TempDir(), newKernel(t)
			s, _ := k.boot(t, root)
			v, err := s.Create(t.Context(), Spec{Name: "v", Size: 1 << 20})
			mustDo(t, errors.Join(err, s.Close()))
			k.more[v.Project] = tt.used - 1 // besides its directory
			mustDo(t, k.SetLimit(v.Project, quota.Limit{Bytes: 1 << 20}))
			editRecord(t, root, "v", func(r map[string]any) {
				delete(r, "inodes")
				r["fromTheFuture"] = "what a later version knows"
			})
			var said logged
			s, err = newStore(Config{Root: root, Exports: &exports{}, Log: slog.New(slog.NewTextHandler(&said, nil))})
			mustDo(t, err)
			s.quota = k
			s, err = s.open(root)
			mustDo(t, err)
			defer func() { mustDo(t, s.Close()) }()
			v, err = s.Get("v")
			mustDo(t, err)
			if u, err := k.Usage(v.Project); err != nil || v.Inodes != tt.want || u.Limit != v.limit() {
				t.Errorf("%+v with the limit %+v, %v; want %d inodes", v, u.Limit, err, tt.want)
			}
			if warned := strings.Contains(said.String(), "uses nearly all inodes of its size's limit"); warned != (tt.want > 1024) {
				t.Errorf("the log says %q", said.String())
			}
			var r record
			mustDo(t, readJSON(s.root, recordFile("v"), &r))
			if r.Inodes != tt.want {
				t.Errorf("the record says %d", r.Inodes)
			}
		})
	}
}

// logged is what a log said.
type logged struct {
	mu  sync.Mutex
	all bytes.Buffer
}

func (l *logged) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.all.Write(b)
}

func (l *logged) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.all.String()
}

// scanning is a server that still counts.
type scanning struct {
	mu     sync.Mutex
	usage  quota.Usage
	limits []quota.Limit // that were set
	onSet  func(Volume)  // is called before, if set
}

func (c *scanning) SetLimit(v Volume) {
	if c.onSet != nil {
		c.onSet(v)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.limits = append(c.limits, v.limit())
}

func (c *scanning) Usage(Volume) quota.Usage {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.usage
}

func (c *scanning) end(inodes int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.usage.Inodes, c.usage.Partial = inodes, false
}

// Where the server counts, what is there is known when it has: until then there is
// no limit of inodes, and then it is not below what is used.
func TestInodesWhenCounted(t *testing.T) {
	server := quota.Choice{Server: true}
	for _, tt := range []struct {
		name    string
		prepare func(t *testing.T, s *Store, root string)
		after   func(t *testing.T, s *Store, root string)
	}{
		{"without a limit", func(t *testing.T, s *Store, root string) {
			_, err := s.Create(t.Context(), Spec{Name: "v", Size: 1 << 20})
			mustDo(t, errors.Join(err, s.Close()))
			editRecord(t, root, "v", func(r map[string]any) { delete(r, "inodes") })
		}, func(*testing.T, *Store, string) {}},
		{"adopted", func(*testing.T, *Store, string) {}, func(t *testing.T, s *Store, root string) {
			mustDo(t, os.Mkdir(filepath.Join(root, "v"), 0o755))
			_, err := s.Adopt(t.Context(), Spec{Name: "v", Size: 1 << 20})
			mustDo(t, err)
		}},
		{"a copy", func(t *testing.T, s *Store, _ string) {
			_, err := s.Create(t.Context(), Spec{Name: "source", Size: 1 << 20})
			mustDo(t, err)
		}, func(t *testing.T, s *Store, _ string) {
			eventually(t, "it is copied", func() bool {
				_, err := s.Create(t.Context(), Spec{Name: "v", Size: 1 << 20, Source: "source"})
				return err == nil
			})
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			root := t.TempDir()
			s := openOver(t, root, nil, server, counted{})
			tt.prepare(t, s, root)
			_ = s.Close() // some have closed it
			c := &scanning{usage: quota.Usage{Limit: quota.Limit{Bytes: 1 << 20}, Inodes: 5, Partial: true}}
			s = openOver(t, root, nil, server, c)
			defer s.Close()
			tt.after(t, s, root)
			if _, err := s.Resize(t.Context(), "v", 2<<20, 0); err != nil {
				t.Error(err)
			}
			if v, err := s.Get("v"); err != nil || v.Inodes != 0 {
				t.Errorf("while it is counted: %+v, %v, want no limit of inodes", v, err)
			}
			c.end(8000)
			want := quota.Limit{Bytes: 2 << 20, Inodes: 10_000}
			eventually(t, "the volume has its limit", func() bool {
				v, err := s.Get("v")
				c.mu.Lock()
				defer c.mu.Unlock()
				return err == nil && v.limit() == want && slices.Contains(c.limits, want)
			})
		})
	}
}

// Limits are set in the order of the record's changes: the call that sets
// one has reserved the volume's name, so the older of two can't be the last.
func TestLimitsAreSetInOrder(t *testing.T) {
	c := &scanning{usage: quota.Usage{Limit: quota.Limit{Bytes: 1 << 20}, Partial: true}}
	root := t.TempDir()
	s := openOver(t, root, nil, quota.Choice{Server: true}, c)
	defer s.Close()
	c.onSet = func(v Volume) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if unlock, err := s.names.lock(ctx, v.Name); err == nil {
			unlock()
			t.Errorf("the limits %+v are set while anybody can change the volume", v.limit())
		}
	}
	mustDo(t, os.Mkdir(filepath.Join(root, "v"), 0o755))
	_, err := s.Adopt(t.Context(), Spec{Name: "v", Size: 1 << 20})
	mustDo(t, err)
	_, err = s.Create(t.Context(), Spec{Name: "w", Size: 1 << 20})
	mustDo(t, err)
	for _, name := range []string{"v", "w"} {
		_, err = s.Resize(t.Context(), name, 2<<20, 0)
		mustDo(t, err)
	}
	c.end(8000)
	eventually(t, "it is limited when it is counted", func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		return slices.Contains(c.limits, quota.Limit{Bytes: 2 << 20, Inodes: 10_000})
	})
}

// A limit that can't be written down, on a full disk, holds all the same.
func TestInodesOnAFullDisk(t *testing.T) {
	root, k := t.TempDir(), newKernel(t)
	s, _ := k.boot(t, root)
	defer func() { mustDo(t, s.Close()) }()
	v, err := s.Create(t.Context(), Spec{Name: "v", Size: 1 << 20})
	mustDo(t, err)
	u, err := k.Usage(v.Project)
	mustDo(t, err)
	mustDo(t, os.Mkdir(filepath.Join(root, recordFile("v")+".tmp"), 0o700)) // where it would be written
	old := &record{State: ready, Volume: v}
	old.Inodes = 0
	if marked, err := s.restoreLimit(old, u, s.log); !marked || err != nil || old.Inodes != 1024 {
		t.Errorf("%v, %v, with a limit of %d inodes; want it served, with 1024", marked, err, old.Inodes)
	}
}

// Nobody waits for the count of a volume that is gone.
func TestInodesOfADeletedVolume(t *testing.T) {
	root := t.TempDir()
	c := &scanning{usage: quota.Usage{Limit: quota.Limit{Bytes: 1 << 20}, Partial: true}}
	s := openOver(t, root, nil, quota.Choice{Server: true}, c)
	mustDo(t, os.Mkdir(filepath.Join(root, "v"), 0o755))
	_, err := s.Adopt(t.Context(), Spec{Name: "v", Size: 1 << 20})
	mustDo(t, errors.Join(err, s.Delete(t.Context(), "v")))
	again, err := s.Create(t.Context(), Spec{Name: "v", Size: 1 << 20})
	mustDo(t, err)
	c.end(8000)
	mustDo(t, s.limitCounted(t.Context(), &again, s.log)) // it has a limit already, and keeps that
	if v, err := s.Get("v"); err != nil || v.Inodes != 1024 {
		t.Errorf("another of the same name: %+v, %v", v, err)
	}
	if err := s.limitCounted(t.Context(), &Volume{ID: 1, Name: "v"}, s.log); !errors.Is(err, ErrNotFound) {
		t.Errorf("one that is gone: %v, want ErrNotFound", err)
	}
	mustDo(t, s.Close())
}

// A directory with uses nearly all inodes of its size's limit is adopted with its limit
// above that. A copy has its limit when all is copied.
func TestInodesOfAdoptedAndCopied(t *testing.T) {
	root, k := t.TempDir(), newKernel(t)
	s, _ := k.boot(t, root)
	defer func() { mustDo(t, s.Close()) }()
	mustDo(t, os.Mkdir(filepath.Join(root, "v"), 0o755))
	const project = 0x10000 // the first
	k.below = func(context.Context) error {
		k.more[project] = 1499
		return nil
	}
	v, err := s.Adopt(t.Context(), Spec{Name: "v", Size: 8 << 20, BytesPerInode: 64 << 10})
	mustDo(t, err)
	if u, err := k.Usage(v.Project); err != nil || v.Inodes != 1875 || u.Limit != v.limit() {
		t.Errorf("adopted: %d inodes, %+v, %v, want 1875", v.Inodes, u, err)
	}
	copied := Volume{}
	s.step = func(done string) {
		if done == "files are copied" {
			k.mu.Lock()
			defer k.mu.Unlock()
			k.more[project+1] = 1599
		}
	}
	eventually(t, "it is copied", func() bool {
		copied, err = s.Create(t.Context(), Spec{Name: "copy", Size: 8 << 20, Source: "v"})
		return err == nil
	})
	if u, err := k.Usage(copied.Project); err != nil || copied.Inodes != 2000 || u.Limit != copied.limit() {
		t.Errorf("copied: %d inodes, %+v, %v, want 2000", copied.Inodes, u, err)
	}
}

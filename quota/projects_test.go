package quota

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestProjects(t *testing.T) { onDisks(t, testProjects) }

func testProjects(t *testing.T, disk string) {
	p, err := Open(disk)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	const id, limit, inodes = 4_000_000_000, 10 << 20, 100 // above 2^31: ids are unsigned
	if free, err := free(p, id); !free || err != nil {
		t.Fatalf("project %d is not free: %v", uint32(id), err)
	}

	dir, err := os.MkdirTemp(disk, "projects")
	if err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := errors.Join(p.Assign(f, id), p.SetLimit(id, Limit{limit, inodes})); err != nil {
		t.Fatal(err)
	}

	var st syscall.Statfs_t
	if err := syscall.Statfs(dir, &st); err != nil {
		t.Fatal(err)
	}
	if size := st.Blocks * uint64(st.Bsize); size != limit {
		t.Errorf("statfs tells %d bytes, want the limit %d", size, limit)
	}
	if st.Files != inodes || st.Ffree != inodes-1 {
		t.Errorf("statfs tells %d inodes, %d free, want the limit %d, and all free but that of the directory", st.Files, st.Ffree, inodes)
	}
	big := filepath.Join(dir, "sub", "big")
	if err := os.Mkdir(filepath.Dir(big), 0o755); err != nil {
		t.Fatal(err)
	}
	err = os.WriteFile(big, make([]byte, limit+1<<20), 0o644)
	if !errors.Is(err, syscall.ENOSPC) && !errors.Is(err, syscall.EDQUOT) {
		t.Errorf("writing past the limit: %v, want ENOSPC or EDQUOT", err)
	}
	u, err := p.Usage(id)
	if err != nil || u.Limit != (Limit{limit, inodes}) || u.Bytes == 0 || u.Bytes > limit || u.Inodes != 3 {
		t.Errorf("usage %+v, %v", u, err)
	}
	must(t, os.Truncate(big, 0)) // room for the directories of ext4, whose names take blocks
	made := 3                    // the directory, sub, and big
	for ; made < 2*inodes; made++ {
		if err = os.Mkdir(filepath.Join(dir, fmt.Sprint(made)), 0o755); err != nil {
			break
		}
	}
	if made != inodes || !errors.Is(err, syscall.ENOSPC) && !errors.Is(err, syscall.EDQUOT) {
		t.Errorf("after %d inodes: %v, want ENOSPC or EDQUOT after %d", made, err, inodes)
	}

	if err := errors.Join(f.Close(), os.RemoveAll(dir), p.SetLimit(id, Limit{})); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() (bool, error) { return free(p, id) }, "the project is still in use")
}

// free tells whether nothing uses a project and nothing limits it.
func free(p *Projects, id uint32) (bool, error) {
	u, err := p.Usage(id)
	return u == Usage{}, err
}

// What a thousand projects use is read in one pass, and is what each says alone.
func TestThousandProjects(t *testing.T) { onDisks(t, testThousandProjects) }

func testThousandProjects(t *testing.T, disk string) {
	p, err := Open(disk)
	must(t, err)
	defer p.Close()
	const first, projects = 3_000_000_000, 1000
	for i := range uint32(projects) {
		must(t, p.SetLimit(first+i, Limit{int64(i+1) << 20, int64(i + 1)}))
	}
	defer func() {
		for i := range uint32(projects) {
			must(t, p.SetLimit(first+i, Limit{}))
		}
	}()
	for range 3 {
		begin := time.Now()
		all, err := p.Usages()
		pass := time.Since(begin)
		must(t, err)
		begin = time.Now()
		for i := range uint32(projects) {
			u, err := p.Usage(first + i)
			must(t, err)
			if want := (Limit{int64(i+1) << 20, int64(i + 1)}); u.Limit != want || all[first+i] != u {
				t.Fatalf("project %d: alone %+v, in the pass %+v, want the limit %+v", first+i, u, all[first+i], want)
			}
		}
		t.Logf("%d projects: one pass over all on the disk %v, %d calls %v", len(all), pass, projects, time.Since(begin))
	}
}

// An ext4 that only counts is not taken for one that limits.
func TestOpenUnenforced(t *testing.T) {
	if os.Getenv("PODNAS_TEST_XFS") == "" {
		t.Skip("it mounts an ext4, which is done in a guest alone; `make vm` runs this test")
	}
	_, err := Open(loopExt4(t, ""))
	var unsupported *UnsupportedError
	if !errors.As(err, &unsupported) || !strings.Contains(err.Error(), "tune2fs") {
		t.Errorf("%v, want what would change that", err)
	}
}

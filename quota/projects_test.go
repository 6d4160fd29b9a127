package quota

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

func TestProjects(t *testing.T) { onDisks(t, testProjects) }

func testProjects(t *testing.T, disk string) {
	p, err := Open(disk)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	const id, limit = 4_000_000_000, 10 << 20 // above 2^31: ids are unsigned
	if free, err := p.Free(id); !free || err != nil {
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
	if err := errors.Join(p.Assign(f, id), p.SetLimit(id, limit)); err != nil {
		t.Fatal(err)
	}

	var st syscall.Statfs_t
	if err := syscall.Statfs(dir, &st); err != nil {
		t.Fatal(err)
	}
	if size := st.Blocks * uint64(st.Bsize); size != limit {
		t.Errorf("statfs tells %d bytes, want the limit %d", size, limit)
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
	if err != nil || u.Limit != limit || u.Bytes == 0 || u.Bytes > limit {
		t.Errorf("usage %+v, %v", u, err)
	}

	if err := errors.Join(f.Close(), os.RemoveAll(dir), p.SetLimit(id, 0)); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() (bool, error) { return p.Free(id) }, "the project is still in use")
}

// An ext4 that only counts is not taken for one that limits.
func TestOpenUnenforced(t *testing.T) {
	if os.Getenv("PODNAS_TEST_XFS") == "" {
		t.Skip("it mounts an ext4, which is done in the machine of `make vm` alone")
	}
	_, err := Open(loopExt4(t, ""))
	var unsupported *UnsupportedError
	if !errors.As(err, &unsupported) || !strings.Contains(err.Error(), "tune2fs") {
		t.Errorf("%v, want what would change that", err)
	}
}

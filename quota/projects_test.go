package quota

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

// TestProjects needs an XFS mounted with prjquota and root: the suite in
// test/vm runs it on one.
func TestProjects(t *testing.T) {
	xfs := os.Getenv("PODNAS_TEST_XFS")
	if xfs == "" {
		t.Skip("PODNAS_TEST_XFS does not name a directory on an XFS with prjquota; `make vm` runs this test")
	}
	p, err := Open(xfs)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	const id, limit = 4_000_000_000, 10 << 20 // above 2^31: ids are unsigned
	if free, err := p.Free(id); !free || err != nil {
		t.Fatalf("project %d is not free: %v", uint32(id), err)
	}

	dir, err := os.MkdirTemp(xfs, "projects")
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
	// XFS frees removed files in the background.
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		free, err := p.Free(id)
		if err != nil {
			t.Fatal(err)
		}
		if free {
			break
		}
		if time.Now().After(deadline) {
			u, _ := p.Usage(id)
			t.Fatalf("project %d is still in use: %+v", uint32(id), u)
		}
	}
}

package tree_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/podnas/podnas/internal/tree"
	"github.com/podnas/podnas/quota"
)

// A copy that does not fit says so, has no file that is cut, and can go on when
// there is room. It needs an XFS mounted with prjquota and root: the suite in
// test/vm runs it on one.
func TestCopyFull(t *testing.T) {
	xfs := os.Getenv("PODNAS_TEST_XFS")
	if xfs == "" {
		t.Skip("PODNAS_TEST_XFS does not name a directory on an XFS with prjquota; `make vm` runs this test")
	}
	const id = 4_100_000_000
	projects, err := quota.Open(xfs)
	if err != nil {
		t.Fatal(err)
	}
	defer projects.Close()
	data := bytes.Repeat([]byte("podnas. "), 8<<20) // 64 MiB
	for name, parent := range map[string]string{"by clones": xfs, "from another disk": ""} {
		t.Run(name, func(t *testing.T) {
			from, err := os.MkdirTemp(parent, "from")
			if err != nil {
				t.Fatal(err)
			}
			defer os.RemoveAll(from)
			to, err := os.MkdirTemp(xfs, "to")
			if err != nil {
				t.Fatal(err)
			}
			defer os.RemoveAll(to)
			src, err := os.Open(from)
			if err != nil {
				t.Fatal(err)
			}
			defer src.Close()
			dst, err := os.Open(to)
			if err != nil {
				t.Fatal(err)
			}
			defer dst.Close()
			err = errors.Join(os.WriteFile(filepath.Join(from, "big"), data, 0o644),
				os.Link(filepath.Join(from, "big"), filepath.Join(from, "other")),
				projects.Assign(dst, id), projects.SetLimit(id, quota.Limit{Bytes: 32 << 20}))
			if err != nil {
				t.Fatal(err)
			}

			var c tree.Copy
			if err := c.Run(t.Context(), src, dst); !errors.Is(err, unix.ENOSPC) && !errors.Is(err, unix.EDQUOT) {
				t.Errorf("past the limit: %v, want no space", err)
			}
			for _, file := range []string{"big", "other"} {
				if _, err := os.Lstat(filepath.Join(to, file)); !errors.Is(err, os.ErrNotExist) {
					t.Errorf("%s has its name before it is complete: %v", file, err)
				}
			}

			var again tree.Copy
			if err := errors.Join(projects.SetLimit(id, quota.Limit{Bytes: 256 << 20}), again.Run(t.Context(), src, dst)); err != nil {
				t.Fatal(err)
			}
			got, err := os.ReadFile(filepath.Join(to, "other"))
			if err != nil || !bytes.Equal(got, data) {
				t.Errorf("%d bytes, %v, want the same %d", len(got), err, len(data))
			}
			u, err := projects.Usage(id)
			if err != nil || u.Bytes < int64(len(data)) || u.Inodes != 2 {
				t.Errorf("the copy is counted as %+v, %v", u, err)
			}
			if err := projects.SetLimit(id, quota.Limit{}); err != nil {
				t.Fatal(err)
			}
		})
	}
}

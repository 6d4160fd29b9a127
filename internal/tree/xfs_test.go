package tree

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// Where the disk can share blocks, a copy takes none.
func TestCopySharesBlocks(t *testing.T) {
	xfs := os.Getenv("PODNAS_TEST_XFS")
	if xfs == "" || os.Geteuid() != 0 {
		t.Skip("PODNAS_TEST_XFS does not name a directory on an XFS; `make vm` runs this test")
	}
	from, to := tempDir(t), tempDir(t)
	data := make([]byte, 64<<20)
	for i := range data {
		data[i] = byte(i >> 12)
	}
	must(t, os.WriteFile(filepath.Join(from, "big"), data, 0o644),
		os.Link(filepath.Join(from, "big"), filepath.Join(from, "other")))

	var before, after unix.Statfs_t
	must(t, unix.Syncfs(int(open(t, xfs).Fd())), unix.Statfs(xfs, &before))
	c := copyTree(t, from, to)
	same(t, from, to)
	must(t, unix.Statfs(xfs, &after))
	used := int64(before.Bfree-after.Bfree) * before.Bsize
	if used > 8<<20 {
		t.Errorf("the copy takes %d bytes of the disk", used)
	}
	if n := c.Bytes.Load(); n != int64(len(data)) {
		t.Errorf("%d bytes counted, want %d", n, len(data))
	}
}

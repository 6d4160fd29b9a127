package tree

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
)

// A Cursor goes back to where it was also if directories were renamed meanwhile, and never to another one.
func TestCursor(t *testing.T) {
	for _, tt := range []struct {
		name string
		move [2]string
	}{
		{"nothing is moved", [2]string{}},
		{"one farther up", [2]string{"a", "other"}},
		{"the current one", [2]string{"a/b/c", "a/b/other"}},
		{"the current one, elsewhere", [2]string{"a/b/c", "other"}},
		{"both are elsewhere", [2]string{"a/b", "other"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			root := tempDir(t)
			in := func(name string) string { return filepath.Join(root, name) }
			must(t, os.MkdirAll(in("a/b/c"), 0o755), os.WriteFile(in("a/b/file"), nil, 0o644))
			var c Cursor
			defer c.Close()
			must(t, c.Begin(open(t, root)), c.Down("a"), c.Down("b"), c.Down("c"))
			if tt.move[0] != "" {
				must(t, os.Rename(in(tt.move[0]), in(tt.move[1])))
			}
			must(t, c.Up())
			if _, err := StatIn(int(c.Dir().Fd()), "file"); err != nil {
				t.Errorf("it is not in b: %v", err)
			}
		})
	}
	root := tempDir(t)
	must(t, os.MkdirAll(filepath.Join(root, "a/b"), 0o755))
	var c Cursor
	defer c.Close()
	must(t, c.Begin(open(t, root)), c.Down("a"), c.Down("b"), os.Mkdir(filepath.Join(root, "x"), 0o755),
		os.Rename(filepath.Join(root, "a"), filepath.Join(root, "x/a")), os.Rename(filepath.Join(root, "x/a/b"), filepath.Join(root, "b")))
	if err := c.Up(); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("with no way back: %v", err)
	}
	if err := c.Down("a"); err == nil {
		t.Error("it goes down from nowhere")
	}
}

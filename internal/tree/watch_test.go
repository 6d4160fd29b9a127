package tree

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

func TestWatch(t *testing.T) {
	for _, tt := range []struct {
		name   string
		change func(dir string) error
	}{
		{"a new file", func(dir string) error { return os.WriteFile(filepath.Join(dir, "new"), nil, 0o600) }},
		{"a file is written in place", func(dir string) error {
			f, err := os.OpenFile(filepath.Join(dir, "file"), os.O_WRONLY, 0)
			if err != nil {
				return err
			}
			defer f.Close() // it is seen before that
			_, err = f.WriteString("x")
			return err
		}},
		{"a file replaces another", func(dir string) error {
			return os.Rename(filepath.Join(filepath.Dir(dir), "beside"), filepath.Join(dir, "file"))
		}},
		{"a file is removed", func(dir string) error { return os.Remove(filepath.Join(dir, "file")) }},
		{"a file's rights", func(dir string) error { return os.Chmod(filepath.Join(dir, "file"), 0) }},
		{"the directory is renamed", func(dir string) error { return os.Rename(dir, dir+"-renamed") }},
		{"another directory", func(dir string) error {
			return os.WriteFile(filepath.Join(filepath.Dir(dir), "second", "new"), nil, 0o600)
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			top := t.TempDir()
			dir, second := filepath.Join(top, "first"), filepath.Join(top, "second")
			for _, err := range []error{
				os.Mkdir(dir, 0o700), os.Mkdir(second, 0o700),
				os.WriteFile(filepath.Join(dir, "file"), []byte("file"), 0o600), os.WriteFile(filepath.Join(top, "beside"), nil, 0o600),
			} {
				if err != nil {
					t.Fatal(err)
				}
			}
			w, err := NewWatch(dir, second)
			if err != nil {
				t.Skip(err) // of this disk the kernel tells nothing
			}
			defer w.Close()
			select {
			case <-w.Changed():
				t.Fatal("changed, before it was")
			default:
			}
			if err := tt.change(dir); err != nil {
				t.Fatal(err)
			}
			select {
			case <-w.Changed():
			case <-time.After(30 * time.Second):
				t.Error("not seen")
			}
		})
	}
}

func TestWatchRefuses(t *testing.T) {
	dir := t.TempDir()
	if w, err := NewWatch(dir, filepath.Join(dir, "missing")); err == nil {
		w.Close()
		t.Error("watches a directory that is missing")
	}
	if err := os.Symlink("/elsewhere", filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	if w, err := NewWatch(dir); err == nil {
		w.Close()
		t.Error("watches a link that leads elsewhere")
	}
	if w, err := NewWatch("/proc/self"); err == nil {
		w.Close()
		t.Error("watches /proc, whose changes the kernel does not tell")
	}
}

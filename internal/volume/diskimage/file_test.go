package diskimage

import (
	"bytes"
	"encoding/binary"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/podnas/podnas/internal/volume/xfs"
)

// super is the start of an XFS of so many blocks of 4096 bytes.
func super(label string, blocks uint64) []byte {
	b := make([]byte, 512)
	copy(b, "XFSB")
	binary.BigEndian.PutUint32(b[4:], 4096)
	binary.BigEndian.PutUint64(b[8:], blocks)
	binary.BigEndian.PutUint16(b[102:], 4096)
	copy(b[108:120], label)
	return b
}

func TestInspect(t *testing.T) {
	for _, c := range []struct {
		name    string
		content []byte
		size    int64
		want    string // in the error; empty: it is ours
	}{
		{"ours", super("podnas", 100), 409600, ""},
		{"ours, about to grow", super("podnas", 100), 819200, ""},
		{"cut", super("podnas", 100), 409599, "is truncated"},
		{"another's", super("", 100), 409600, `label ""`},
		{"a longer label", super("podnasx", 100), 409600, `label "podnasx"`},
		{"the longest label", super("podnas-other", 100), 409600, `label "podnas-other"`},
		{"empty", nil, 0, "is empty"},
		{"zeros", nil, 1 << 20, "no XFS"},
		{"a few bytes", []byte("XF"), 2, "no XFS"},
		{"text", bytes.Repeat([]byte("text "), 1000), 5000, "no XFS"},
	} {
		t.Run(c.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "f")
			if err := os.WriteFile(path, c.content, 0o600); err != nil {
				t.Fatal(err)
			}
			if err := os.Truncate(path, c.size); err != nil {
				t.Fatal(err)
			}
			f, err := openImage(path)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			got, err := inspect(f)
			if c.want != "" {
				if err == nil || !strings.Contains(err.Error(), c.want) {
					t.Errorf("error %v, want one with %q", err, c.want)
				}
				return
			}
			if want := (xfs.Superblock{Label: xfs.Label, Size: 409600, Sector: 4096}); err != nil || got != want {
				t.Errorf("got %+v, %v; want %+v", got, err, want)
			}
		})
	}
}

func TestOpenImage(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "image")
	if err := os.WriteFile(path, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(dir, "link")
	if err := os.Symlink(path, link); err != nil {
		t.Fatal(err)
	}
	for _, other := range []string{link, dir, "/dev/null"} {
		if f, err := openImage(other); err == nil || !strings.Contains(err.Error(), "not a regular file") {
			t.Errorf("openImage(%s): %v, %v", other, f, err)
		}
	}
	f, err := openImage(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := openImage(path); err == nil || !strings.Contains(err.Error(), "another podnas") {
		t.Errorf("opened twice: %v", err)
	}
	f.Close()
	again, err := openImage(path)
	if err != nil {
		t.Fatalf("opened after it was closed: %v", err)
	}
	again.Close()
}

func TestValidate(t *testing.T) {
	for _, c := range []struct {
		spec Spec
		want string
	}{
		{Spec{"/disk/podnas.img", 300 << 20}, ""},
		{Spec{"/disk/podnas.img", 300<<20 - 1}, "too small"},
		{Spec{"/disk/podnas.img", -1}, "too small"},
		{Spec{"podnas.img", 1 << 30}, "absolute path"},
		{Spec{"/disk/../podnas.img", 1 << 30}, "absolute path"},
		{Spec{"", 1 << 30}, "absolute path"},
	} {
		err := c.spec.Validate()
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v, want %q", c.spec, err, c.want)
		}
	}
}

func TestInside(t *testing.T) {
	for path, want := range map[string]bool{
		"/export/podnas.img":     true,
		"/export/a/b":            true,
		"/export":                true,
		"/export2/podnas.img":    false,
		"/disk/podnas.img":       false,
		"/..export/podnas.img":   false,
		"/export/..image/podnas": true,
	} {
		if inside(path, "/export") != want {
			t.Errorf("inside(%s, /export) is %v", path, !want)
		}
	}
}

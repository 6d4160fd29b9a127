package restore_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/podnas/podnas/test/testdisk"
)

const (
	before, after = 1000, 2000 // users
	private       = "private"
)

// letUser has the ACL of a file let another user read it.
func letUser(t *testing.T, at string, user uint32) {
	t.Helper()
	le := binary.LittleEndian
	acl := le.AppendUint32(nil, 2) // linux/posix_acl_xattr.h
	for _, e := range []struct {
		tag, perm uint16
		id        uint32
	}{{0x01, 7, 1<<32 - 1}, {0x02, 5, user}, {0x04, 0, 1<<32 - 1}, {0x10, 5, 1<<32 - 1}, {0x20, 0, 1<<32 - 1}} {
		acl = le.AppendUint32(le.AppendUint16(le.AppendUint16(acl, e.tag), e.perm), e.id)
	}
	must(t, unix.Setxattr(at, "system.posix_acl_access", acl, 0))
}

// opened are ways in which what was private to a user is open to others later.
func opened() map[string]func(t *testing.T, at string) {
	return map[string]func(t *testing.T, at string){
		"owner": func(t *testing.T, at string) { must(t, os.Chown(at, after, before)) },
		"group": func(t *testing.T, at string) { must(t, errors.Join(os.Chown(at, before, after), os.Chmod(at, 0o750))) },
		"mode":  func(t *testing.T, at string) { must(t, os.Chmod(at, 0o755)) },
		"acl":   func(t *testing.T, at string) { letUser(t, at, after) },
	}
}

// isOpen reports whether others than the user may read a file, or search a directory.
func isOpen(at string) bool {
	var st unix.Stat_t
	err := unix.Lstat(at, &st)
	return err == nil && (st.Uid != before && st.Uid != 0 || st.Mode&0o077 != 0) // with an ACL, its mask
}

// Content that was private at the time of a snapshot is never in a file that others may read.
func TestPrivateContent(t *testing.T) {
	v := newVolume(t, testdisk.OneXFS(t))
	var files []string
	for how := range opened() {
		for i := range 3 {
			file := filepath.Join(v.dir, fmt.Sprint(how, i))
			must(t, os.WriteFile(file, []byte(private), 0o600))
			f, err := os.OpenFile(file, os.O_WRONLY, 0)
			must(t, err)
			for extent := range 300 { // which take time to clone
				_, err := f.WriteAt([]byte("x"), int64(extent+1)*8192)
				must(t, err)
			}
			must(t, errors.Join(f.Close(), os.Chown(file, before, before)))
			files = append(files, file)
		}
	}
	v.walked()
	v.take(t, "one")
	for how, do := range opened() {
		for i := range 3 {
			file := filepath.Join(v.dir, fmt.Sprint(how, i))
			must(t, os.WriteFile(file, []byte("public!"), 0o600))
			do(t, file)
		}
	}
	v.walked()
	done := make(chan struct{})
	seen := map[string]bool{}
	var reader sync.WaitGroup
	reader.Go(func() {
		for at := 0; ; at++ {
			select {
			case <-done:
				return
			default:
			}
			file := files[at%len(files)]
			if content(file) == private && isOpen(file) { // if it is later, it was before
				seen[file] = true
			}
		}
	})
	err := v.restore(t, t.Context(), "one")
	close(done)
	reader.Wait()
	must(t, err)
	for file := range seen {
		t.Errorf("%s had what was private, and was open to others", filepath.Base(file))
	}
	for _, file := range files {
		var st unix.Stat_t
		must(t, unix.Lstat(file, &st))
		if content(file) != private || st.Uid != before || st.Gid != before || st.Mode&0o7777 != 0o600 {
			t.Errorf("%s is of %d:%d with mode %o afterwards", filepath.Base(file), st.Uid, st.Gid, st.Mode)
		}
	}
}

// content is the beginning of a file.
func content(file string) string {
	f, err := os.Open(file)
	if err != nil {
		return ""
	}
	defer f.Close()
	b := make([]byte, len(private))
	n, _ := f.ReadAt(b, 0)
	return string(b[:n])
}

// atEach is a context that calls a function at each look at it.
type atEach struct {
	context.Context
	do func() error
}

func (c *atEach) Err() error { return errors.Join(c.do(), c.Context.Err()) }

// What was in a directory that was private at the time of a snapshot is never in one that others may search, also if the restore
// does not end.
func TestPrivateDirectory(t *testing.T) {
	testdisk.Sharing(t, func(t *testing.T, on string) {
		for how, do := range opened() {
			t.Run(how, func(t *testing.T) {
				at := filepath.Join(on, how)
				must(t, os.Mkdir(at, 0o755))
				v := newVolume(t, at)
				dir := filepath.Join(v.dir, "a", "private")
				must(t, errors.Join(os.MkdirAll(dir, 0o700), os.Chown(dir, before, before)))
				for i := range 3 {
					must(t, os.WriteFile(filepath.Join(dir, fmt.Sprint(i)), []byte(private), 0o644))
				}
				v.walked()
				v.take(t, "one")
				for i := range 3 {
					must(t, os.Remove(filepath.Join(dir, fmt.Sprint(i))))
				}
				do(t, dir)
				v.walked()
				look := func() (there int) {
					for i := range 3 {
						if content(filepath.Join(dir, fmt.Sprint(i))) == private {
							there++
						}
					}
					if there > 0 && isOpen(dir) {
						t.Errorf("%d private files are in a directory that is open to others", there)
					}
					return there
				}
				ended := errors.New("ended")
				err := v.restore(t, &atEach{t.Context(), func() error {
					if look() == 2 {
						return ended
					}
					return nil
				}}, "one")
				if !errors.Is(err, ended) || look() != 2 {
					t.Errorf("the restore ends with %v", err)
				}
				must(t, v.restore(t, &atEach{t.Context(), func() error { look(); return nil }}, "one"))
				var st unix.Stat_t
				must(t, unix.Lstat(dir, &st))
				if look() != 3 || st.Uid != before || st.Mode&0o7777 != 0o700 {
					t.Errorf("it is of %d with mode %o afterwards", st.Uid, st.Mode)
				}
			})
		}
	})
}

// A directory and a file whose rights have not changed are open meanwhile to whom they were.
func TestNotHidden(t *testing.T) {
	testdisk.Sharing(t, func(t *testing.T, on string) {
		v := newVolume(t, on)
		plant(t, v.dir)
		for _, name := range []string{"a", "a/b", "stays"} {
			letUser(t, filepath.Join(v.dir, name), after)
		}
		v.walked()
		want := map[string]uint32{}
		mode := func(name string) uint32 {
			var st unix.Stat_t
			must(t, unix.Lstat(filepath.Join(v.dir, name), &st))
			return st.Mode
		}
		for _, name := range []string{".", "a", "a/b", "a/b/c", "stays"} {
			want[name] = mode(name)
		}
		v.take(t, "one")
		must(t, os.WriteFile(filepath.Join(v.dir, "stays"), []byte("second"), 0))
		must(t, v.restore(t, &atEach{t.Context(), func() error {
			for name, want := range want {
				if got := mode(name); got != want {
					t.Errorf("%s has mode %o meanwhile, want %o", name, got, want)
				}
			}
			return nil
		}}, "one"))
	})
}

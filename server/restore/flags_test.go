package restore_test

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/podnas/podnas/test/testdisk"
)

// Flags of chattr(1) do not keep a volume from what the snapshot has, whatever they are on.
func TestRestoreWithFlags(t *testing.T) {
	flags := map[string]func(*testing.T, string) func(){"immutable": testdisk.Unwritable, "append-only": testdisk.Untruncatable}
	testdisk.Sharing(t, func(t *testing.T, on string) {
		for flag, set := range flags {
			for _, c := range []struct {
				name   string
				change func(t *testing.T, in func(string) string)
				on     string // of the volume
			}{
				{"a file that has not changed", nil, "stays"},
				{"a file that is longer", func(t *testing.T, in func(string) string) {
					must(t, os.WriteFile(in("stays"), []byte("much longer than it was"), 0o600))
				}, "stays"},
				{"a file that is not in the snapshot", func(t *testing.T, in func(string) string) {
					must(t, os.WriteFile(in("new"), nil, 0o600))
				}, "new"},
				{"a file in a directory that is not in the snapshot", func(t *testing.T, in func(string) string) {
					must(t, errors.Join(os.MkdirAll(in("new/a/b"), 0o700), os.WriteFile(in("new/a/b/file"), nil, 0o600)))
				}, "new/a/b/file"},
				{"a directory that is not in the snapshot", func(t *testing.T, in func(string) string) { must(t, os.MkdirAll(in("new/a/b"), 0o700)) }, "new/a"},
				{"an empty one", func(t *testing.T, in func(string) string) { must(t, os.Mkdir(in("new"), 0o700)) }, "new"},
				{"a file in the place of a directory", func(t *testing.T, in func(string) string) {
					must(t, errors.Join(os.RemoveAll(in("gone")), os.WriteFile(in("gone"), nil, 0o600)))
				}, "gone"},
				{"a directory in the place of a file", func(t *testing.T, in func(string) string) {
					must(t, errors.Join(os.Remove(in("stays")), os.MkdirAll(in("stays/b"), 0o700)))
				}, "stays"},
				{"a name of another file", func(t *testing.T, in func(string) string) {
					must(t, errors.Join(os.Remove(in("two")), os.Link(in("was one"), in("two"))))
				}, "two"},
				{"a file with several names", nil, "twice"},
				{"a directory that has not changed", nil, "a/b"},
				{"a directory with other files and another mode", func(t *testing.T, in func(string) string) {
					must(t, errors.Join(os.Remove(in("a/b/c/deep")), os.WriteFile(in("a/b/c/new"), nil, 0o600), os.Chmod(in("a/b/c"), 0o777)))
				}, "a/b/c"},
				{"the root", func(t *testing.T, in func(string) string) {
					must(t, errors.Join(os.Remove(in("stays")), os.WriteFile(in("new"), nil, 0o600)))
				}, "."},
			} {
				t.Run(flag+": "+c.name, func(t *testing.T) {
					at := filepath.Join(on, strings.ReplaceAll(t.Name(), "/", "-"))
					must(t, os.Mkdir(at, 0o755))
					v := newVolume(t, at)
					in := func(name string) string { return filepath.Join(v.dir, name) }
					plant(t, v.dir)
					v.walked()
					want := describe(t, v.dir)
					v.take(t, "one")
					if c.change != nil {
						c.change(t, in)
					}
					set(t, in(c.on))
					v.walked()
					must(t, v.restore(t, t.Context(), "one"))
					if got := describe(t, v.dir); got != want {
						t.Errorf("restored:\n%s\nwant\n%s", got, want)
					}
				})
			}
		}
	})
}

// Without the right to clear such a flag, the error says what to do. podnas's pod does not have it.
func TestRestoreWithFlagsThatStay(t *testing.T) {
	v := newVolume(t, testdisk.OneXFS(t))
	file := filepath.Join(v.dir, "f")
	must(t, os.WriteFile(file, nil, 0o600))
	v.walked()
	v.take(t, "one")
	mend := testdisk.Unwritable(t, file)
	var err error
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		runtime.LockOSThread() // and the thread ends with the goroutine
		header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
		var caps [2]unix.CapUserData
		if err = unix.Capget(&header, &caps[0]); err != nil {
			return
		}
		caps[0].Effective &^= 1 << unix.CAP_LINUX_IMMUTABLE
		if err = unix.Capset(&header, &caps[0]); err != nil {
			return
		}
		err = v.restore(t, t.Context(), "one")
	}()
	<-ended
	if !errors.Is(err, syscall.EPERM) || !strings.Contains(err.Error(), "chattr") {
		t.Errorf("the error is %v, which does not name the flag", err)
	}
	mend()
	must(t, v.restore(t, t.Context(), "one"))
}

// A restore brings back files with the flag C of chattr(1), as databases on btrfs have it, whatever has it in the volume by then.
func TestRestoreWithoutCOW(t *testing.T) {
	testdisk.Sharing(t, func(t *testing.T, on string) {
		for _, c := range []struct {
			name     string
			was      bool // without copies on write
			is, make bool
		}{
			{"the same file", true, true, false},
			{"another one with the flag", true, true, true},
			{"another one without it", true, false, true},
			{"another one with it, of one without", false, true, true},
		} {
			t.Run(c.name, func(t *testing.T) {
				at := filepath.Join(on, c.name)
				must(t, os.Mkdir(at, 0o755))
				v := newVolume(t, at)
				dir := filepath.Join(v.dir, "db")
				files := []string{filepath.Join(dir, "a"), filepath.Join(dir, "b")}
				write := func(without bool, content string) {
					testdisk.WithoutCOW(t, dir, without)
					for _, f := range files {
						must(t, os.WriteFile(f, []byte(strings.Repeat(content, 10000)), 0o600))
					}
				}
				must(t, os.Mkdir(dir, 0o755))
				write(c.was, "first")
				v.walked()
				want := describe(t, v.dir)
				v.take(t, "one")
				if c.make {
					must(t, errors.Join(os.Remove(files[0]), os.Remove(files[1])))
				}
				write(c.is, "second")
				must(t, os.Remove(files[1])) // and the restore makes it
				v.walked()
				must(t, v.restore(t, t.Context(), "one"))
				if got := describe(t, v.dir); got != want {
					t.Errorf("restored:\n%.1000s\nwant\n%.1000s", got, want)
				}
			})
		}
	})
}

package restore_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/podnas/podnas/test/testdisk"
)

// makeSubvolume makes a subvolume of btrfs with a file.
func makeSubvolume(t *testing.T, at string) {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "btrfs", "subvolume", "create", at).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	must(t, os.WriteFile(filepath.Join(at, "precious"), []byte("data"), 0o644))
}

// mountIn mounts a file system in memory, with a file.
func mountIn(t *testing.T, at string) {
	t.Helper()
	must(t, os.Mkdir(at, 0o755))
	must(t, unix.Mount("none", at, "tmpfs", 0, ""))
	t.Cleanup(func() { _ = unix.Unmount(at, unix.MNT_DETACH) })
	must(t, os.WriteFile(filepath.Join(at, "precious"), []byte("data"), 0o644))
}

// bindIn mounts a directory of the same disk, with a file.
func bindIn(t *testing.T, at string) {
	t.Helper()
	other := filepath.Join(filepath.Dir(filepath.Dir(filepath.Dir(at))), "other")
	must(t, errors.Join(os.Mkdir(other, 0o755), os.Mkdir(at, 0o755)))
	must(t, unix.Mount(other, at, "", unix.MS_BIND, ""))
	t.Cleanup(func() { _ = unix.Unmount(at, unix.MNT_DETACH) })
	must(t, os.WriteFile(filepath.Join(at, "precious"), []byte("data"), 0o644))
}

// What no snapshot of a volume has, as it is another subvolume or mounted, is not deleted by a restore: it is refused before anything has
// changed, whether the snapshot has a directory there or not, and works again when that is away.
func TestOthersInside(t *testing.T) {
	testdisk.Sharing(t, func(t *testing.T, on string) {
		for name, put := range map[string]func(*testing.T, string){"subvolume": makeSubvolume, "mount": mountIn, "bind": bindIn} {
			if name == "subvolume" && !strings.HasSuffix(t.Name(), "btrfs") {
				continue
			}
			for when, before := range map[string]bool{" before": true, " after": false} {
				if before && name == "bind" {
					continue // no snapshot can be taken
				}
				t.Run(name+when, func(t *testing.T) {
					at := filepath.Join(on, name+when)
					must(t, os.Mkdir(at, 0o755))
					v := newVolume(t, at)
					other := filepath.Join(v.dir, "d", "other")
					must(t, os.Mkdir(filepath.Dir(other), 0o755))
					must(t, os.WriteFile(filepath.Join(v.dir, "a"), []byte("before"), 0o644))
					if before {
						put(t, other)
					}
					v.walked()
					v.take(t, "one")
					must(t, os.WriteFile(filepath.Join(v.dir, "a"), []byte("after"), 0o644))
					if !before {
						put(t, other)
					}
					v.walked()
					err := v.restore(t, t.Context(), "one")
					if err == nil || !strings.Contains(err.Error(), `"/d/other": it is a subvolume`) {
						t.Errorf("it is restored: %v", err)
					}
					for file, want := range map[string]string{filepath.Join(other, "precious"): "data", filepath.Join(v.dir, "a"): "after"} {
						if got, err := os.ReadFile(file); string(got) != want || v.progress.Changed.Load() {
							t.Errorf("%s has %q, want %q, %v; changed: %v", file, got, want, err, v.progress.Changed.Load())
						}
					}
					if name != "subvolume" {
						must(t, unix.Unmount(other, unix.MNT_DETACH))
					} else {
						must(t, os.Rename(other, filepath.Join(at, "away")))
					}
					v.walked()
					must(t, v.restore(t, t.Context(), "one"))
					if got, err := os.ReadFile(filepath.Join(v.dir, "a")); string(got) != "before" {
						t.Errorf("afterwards it has %q, %v", got, err)
					}
				})
			}
		}
	})
}

// changing is a context that does something when it is first looked at after the restore has begun to change the volume.
type changing struct {
	context.Context
	v  *volume
	do func()
}

func (c *changing) Err() error {
	if c.do != nil && c.v.progress.Changed.Load() {
		c.do()
		c.do = nil
	}
	return c.Context.Err()
}

// A subvolume that comes while a volume is restored is neither emptied nor removed.
func TestSubvolumeMeanwhile(t *testing.T) {
	testdisk.Sharing(t, func(t *testing.T, on string) {
		if !strings.HasSuffix(t.Name(), "btrfs") {
			return
		}
		for name, there := range map[string]bool{"not in the snapshot": false, "a directory in the snapshot": true} {
			t.Run(name, func(t *testing.T) {
				at := filepath.Join(on, name)
				must(t, os.Mkdir(at, 0o755))
				v := newVolume(t, at)
				other := filepath.Join(v.dir, "d", "other")
				must(t, os.MkdirAll(other, 0o755))
				if !there {
					must(t, os.Remove(other))
				}
				v.walked()
				v.take(t, "one")
				if there {
					must(t, os.Remove(other))
				}
				v.walked()
				ctx := &changing{t.Context(), v, func() { makeSubvolume(t, other) }}
				err := v.restore(t, ctx, "one")
				if ctx.do != nil || err == nil { // by index it is not opened at all
					t.Errorf("its end: %v", err)
				}
				if got, err := os.ReadFile(filepath.Join(other, "precious")); string(got) != "data" {
					t.Errorf("it has %q, %v", got, err)
				}
			})
		}
	})
}

package restore_test

import (
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"github.com/podnas/podnas/quota"
	"github.com/podnas/podnas/server/actas"
	"github.com/podnas/podnas/server/exports"
	"github.com/podnas/podnas/server/inode"
	"github.com/podnas/podnas/server/locate"
	"github.com/podnas/podnas/server/space"
	"github.com/podnas/podnas/test/testdisk"
)

// asNobody runs a test as a user who has no rights but those of the owner, in a folder of that user on an XFS. Modes of what it has
// made do not keep root, who calls check, from anything.
func asNobody(t *testing.T, test func(v *volume), check func(v *volume)) {
	t.Helper()
	on := os.Getenv("OWN")
	child := on != ""
	if !child {
		on = testdisk.OneXFS(t)
		must(t, os.Chmod(filepath.Dir(on), 0o755)) // the folder that go test has made
		must(t, os.Mkdir(filepath.Join(on, "own"), 0o755))
		must(t, os.Chown(filepath.Join(on, "own"), testdisk.Nobody, testdisk.Nobody))
		on = filepath.Join(on, "own")
		testdisk.Child(t, testdisk.User{ID: testdisk.Nobody}, "^"+t.Name()+"$", "OWN="+on)
	}
	v := &volume{dir: filepath.Join(on, "volume"), ready: filepath.Join(on, "ready")}
	if !child {
		check(v)
		return
	}
	v.table = &exports.Table{ByIndex: true, Only: actas.TryRights(on).Only, Modes: filepath.Join(on, "modes")}
	must(t, errors.Join(os.Mkdir(v.dir, 0o755), os.Mkdir(v.ready, 0o755), os.Mkdir(filepath.Join(on, "modes"), 0o700)))
	must(t, v.table.Export(exports.Exported{ID: 7, Path: "/v", Dir: v.dir, Account: space.NewAccount(quota.Limit{Bytes: 1 << 30})}))
	v.Volume, _ = v.table.ByID(7)
	v.opener = inode.NewOpener(v.table, locate.NewKey(make([]byte, 32)), slog.New(slog.DiscardHandler))
	defer v.opener.Close()
	defer v.table.Remove(7)
	test(v)
}

// modes sets the modes of directories in a volume.
func (v *volume) modes(t *testing.T, modes map[string]fs.FileMode) {
	t.Helper()
	for name, mode := range modes {
		must(t, os.Chmod(filepath.Join(v.dir, name), mode))
	}
}

// A process without the right to all files restores what is in directories whose modes keep their owner from their names.
func TestRestoreOwnWhateverTheModes(t *testing.T) {
	asNobody(t, func(v *volume) {
		in := func(name string) string { return filepath.Join(v.dir, name) }
		for _, d := range []string{"module", "read"} {
			must(t, errors.Join(os.Mkdir(in(d), 0o755), os.WriteFile(in(d+"/lost"), []byte("lost"), 0o444), os.WriteFile(in(d+"/f"), []byte("f"), 0o444)))
		}
		v.modes(t, map[string]fs.FileMode{"module": 0o555, "read": 0o500})
		v.walked()
		v.take(t, "one")
		v.modes(t, map[string]fs.FileMode{"module": 0o755, "read": 0o755})
		must(t, errors.Join(os.Remove(in("module/lost")), os.Remove(in("read/lost"))))
		must(t, os.MkdirAll(in("new/below"), 0o755))
		must(t, os.WriteFile(in("new/below/f"), nil, 0))
		v.walked()
		v.modes(t, map[string]fs.FileMode{"module": 0o555, "read": 0, "new/below": 0o300})
		v.modes(t, map[string]fs.FileMode{"new": 0})
		must(t, v.restore(t, t.Context(), "one"))
	}, func(v *volume) {
		if got, want := describe(t, v.dir), describe(t, filepath.Join(v.ready, "one")); got != want {
			t.Errorf("it has\n%s\nwant\n%s", got, want)
		}
	})
}

// A snapshot with a directory that its owner may not read can't be restored by such a process, as is known before anything has changed.
func TestRestoreOwnRefusedBefore(t *testing.T) {
	for _, mode := range []fs.FileMode{0o300, 0o600, 0} {
		t.Run(mode.String(), func(t *testing.T) {
			asNobody(t, func(v *volume) {
				in := func(name string) string { return filepath.Join(v.dir, name) }
				must(t, errors.Join(os.Mkdir(in("d"), 0o755), os.WriteFile(in("d/f"), []byte("f"), 0o444)))
				v.walked()
				v.modes(t, map[string]fs.FileMode{"d": mode})
				v.take(t, "one")
				must(t, os.WriteFile(in("new"), nil, 0o644))
				if err := v.restore(t, t.Context(), "one"); !errors.Is(err, fs.ErrPermission) || v.progress.Changed.Load() {
					t.Errorf("its end: %v; changed: %v", err, v.progress.Changed.Load())
				}
			}, func(v *volume) {
				if _, err := os.Stat(filepath.Join(v.dir, "new")); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

package snapshot_test

import (
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/podnas/podnas/server/actas"
	"github.com/podnas/podnas/server/disk"
	"github.com/podnas/podnas/server/exports"
	"github.com/podnas/podnas/server/inode"
	"github.com/podnas/podnas/server/locate"
	"github.com/podnas/podnas/server/snapshot"
	"github.com/podnas/podnas/test/testdisk"
)

// closedFiles are how many files a test has that their owner may not read, in a directory.
const closedFiles = 100

// makeClosed makes a volume of the only user, with files that this user may not read, and directories that it may not list or search.
func makeClosed(t *testing.T, dir string) {
	t.Helper()
	modes := map[string]os.FileMode{"nothing": 0, "write": 0o200, "unlisted": 0o300, "unsearched": 0o600, "none": 0, "files": 0o700}
	for _, name := range []string{"unlisted", "unsearched", "none", "files"} {
		mustDo(t, os.Mkdir(filepath.Join(dir, name), 0o755))
		mustDo(t, os.WriteFile(filepath.Join(dir, name, "f"), []byte("in "+name), 0o600))
	}
	mustDo(t, os.Mkdir(filepath.Join(dir, "unlisted", "below"), 0o700))
	mustDo(t, os.WriteFile(filepath.Join(dir, "unlisted", "below", "f"), []byte("below"), 0o600))
	for i := range closedFiles {
		mustDo(t, os.WriteFile(filepath.Join(dir, "files", fmt.Sprint(i)), []byte("content"), 0o200))
	}
	for _, name := range []string{"nothing", "write"} {
		mustDo(t, os.WriteFile(filepath.Join(dir, name), []byte("of "+name), 0o600))
	}
	for name := range modes {
		mustDo(t, unix.Setxattr(filepath.Join(dir, name), disk.XattrUser+noteName, []byte(name), 0))
	}
	mustDo(t, filepath.WalkDir(dir, func(at string, _ os.DirEntry, err error) error {
		return errors.Join(err, os.Lchown(at, testdisk.Nobody, testdisk.Nobody))
	}))
	for name, mode := range modes {
		mustDo(t, os.Chmod(filepath.Join(dir, name), mode))
	}
}

// ofNobody runs a test as a user who has no rights but those of the owner, in a folder of that user on an XFS. prepare makes
// the volume as root, and check looks at it afterwards.
func ofNobody(t *testing.T, prepare, check func(on string), test func(v *volume)) {
	t.Helper()
	if on := os.Getenv("CLOSED"); on != "" {
		dir := filepath.Join(on, "volume")
		table := &exports.Table{ByIndex: true, Only: actas.TryRights(on).Only, Modes: filepath.Join(on, "modes")}
		mustDo(t, table.Export(exports.Exported{ID: 7, Path: "/v", Dir: dir}))
		exported, _ := table.ByID(7)
		o := inode.NewOpener(table, locate.NewKey(make([]byte, 32)), slog.New(slog.DiscardHandler))
		defer o.Close()
		defer table.Remove(7)
		v := &volume{Volume: exported, opener: o, dir: dir, work: filepath.Join(on, "work")}
		v.Files.Index().WalkOnce()
		test(v)
		return
	}
	on := testdisk.OneXFS(t)
	mustDo(t, os.Chmod(filepath.Dir(on), 0o755)) // the folder that go test has made
	for _, name := range []string{"volume", "work", "modes"} {
		mustDo(t, os.Mkdir(filepath.Join(on, name), 0o755))
		mustDo(t, os.Chown(filepath.Join(on, name), testdisk.Nobody, testdisk.Nobody))
	}
	prepare(on)
	testdisk.Child(t, testdisk.User{ID: testdisk.Nobody}, "^"+t.Name()+"$", "CLOSED="+on)
	check(on)
}

// closedRounds is how many snapshots are taken.
const closedRounds = 3

// A process that has no right to read everything takes snapshots of files whose modes keep even their owner from them, while clients
// use them, and no mode has changed afterwards.
func TestFilesThatTheirOwnerMayNotRead(t *testing.T) {
	var want []string
	ofNobody(t, func(on string) {
		makeClosed(t, filepath.Join(on, "volume"))
		var err error
		want, err = describe(filepath.Join(on, "volume"))
		mustDo(t, err)
	}, func(on string) {
		trees := []string{"volume"}
		for i := range closedRounds {
			trees = append(trees, filepath.Join("work", fmt.Sprint(i+1), snapshot.Tree))
		}
		for _, tree := range trees {
			got, err := describe(filepath.Join(on, tree))
			mustDo(t, err)
			if has, want := strings.Join(got, "\n"), strings.Join(want, "\n"); has != want {
				t.Errorf("%s: %s", tree, difference(has, want))
			}
		}
	}, func(v *volume) {
		var ids []disk.FileID
		for i := range closedFiles {
			ids = append(ids, v.lookup(t, "files", fmt.Sprint(i)))
		}
		for range closedRounds {
			clients(t, func() {
				_, err := v.take(new(snapshot.Progress))
				mustDo(t, err)
			}, func(r *rand.Rand) error {
				f, err := v.opener.OpenIn(v.Volume, ids[r.IntN(closedFiles)], inode.UseRead)
				if err == nil {
					f.Close()
				}
				return err
			}, func(r *rand.Rand) error { // the first change captures it
				return v.write(ids[r.IntN(closedFiles)], "content", 0) // as it is
			})
		}
	})
}

// A file has its own mode in a snapshot that comes by while somebody reads it, and the mode is wider.
func TestNoWiderModeInSnapshots(t *testing.T) {
	const mode = 0o200
	ofNobody(t, func(on string) {
		file := filepath.Join(on, "volume", "f")
		mustDo(t, os.WriteFile(file, nil, mode))
		mustDo(t, os.Chown(file, testdisk.Nobody, testdisk.Nobody))
	}, func(on string) {
		info, err := os.Stat(filepath.Join(on, "work", "1", snapshot.Tree, "f"))
		mustDo(t, err)
		if info.Mode() != mode {
			t.Errorf("its mode is %v", info.Mode())
		}
	}, func(v *volume) {
		path, err := unix.Open(filepath.Join(v.dir, "f"), unix.O_PATH, 0)
		mustDo(t, err)
		defer unix.Close(path)
		taken := make(chan error, 1)
		mustDo(t, v.OwnFiles().Read(v.lookup(t, "f"), path, func() error {
			if info, err := os.Stat(filepath.Join(v.dir, "f")); err != nil || info.Mode() == mode {
				t.Errorf("while it is read its mode is %v, %v", info.Mode(), err)
			}
			go func() {
				_, err := v.take(new(snapshot.Progress))
				taken <- err
			}()
			select {
			case err := <-taken:
				taken <- err
			case <-time.After(500 * time.Millisecond): // it waits
			}
			return nil
		}))
		mustDo(t, <-taken)
	})
}

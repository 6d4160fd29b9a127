//go:build vm

package vm_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// snapshot runs a command of podnas about snapshots.
func (a *appliance) snapshot(t *testing.T, args ...string) string {
	t.Helper()
	cmd := exec.Command(os.Getenv("PODNAS"), append([]string{"snapshot", "--root", a.root}, args...)...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%q: %v\n%s", cmd.Args, err, out)
	}
	return string(out)
}

// TestSnapshots takes snapshots while programs write, looks at them by a mount, and restores one.
func TestSnapshots(t *testing.T) {
	nativeOnly(t, "go-nfs shows no snapshots")
	a := serve(t)
	pv := a.volume("one", "1Gi")
	mnt := mount(t, pv)
	name := pv.Metadata.Name
	mustMkdir(t, filepath.Join(mnt, "folder"))
	mustWrite(t, filepath.Join(mnt, "folder/file"), []byte("first"))
	mustWrite(t, filepath.Join(mnt, "gone"), []byte("will be"))
	all := filepath.Join(mnt, ".snapshots")
	in := filepath.Join(all, "one")
	isThere(t, all, false) // which the client remembers
	a.snapshot(t, "create", name, "one")
	asked(t, mnt)
	isThere(t, all, true)
	holds(t, filepath.Join(in, "folder/file"), []byte("first"))

	t.Run("come and go", func(t *testing.T) {
		two := filepath.Join(all, "two")
		isThere(t, two, false)
		a.snapshot(t, "create", name, "two")
		asked(t, all)
		isThere(t, two, true)
		a.snapshot(t, "delete", name, "two", "--yes")
		asked(t, all)
		isThere(t, two, false)
		isThere(t, in, true)
	})
	t.Run("hidden", func(t *testing.T) {
		entries, err := os.ReadDir(mnt)
		if err != nil || slices.ContainsFunc(entries, func(e os.DirEntry) bool { return e.Name() == ".snapshots" }) {
			t.Errorf("the root lists %v, %v", entries, err)
		}
		shown, err := os.ReadDir(filepath.Join(mnt, ".snapshots"))
		if err != nil || len(shown) != 1 || shown[0].Name() != "one" {
			t.Errorf(".snapshots lists %v, %v", shown, err)
		}
		if up, err := os.Stat(filepath.Join(mnt, ".snapshots/../folder")); err != nil || !up.IsDir() {
			t.Errorf("the way up: %v", err)
		}
	})
	t.Run("read-only", func(t *testing.T) {
		for what, err := range map[string]error{
			"write":          os.WriteFile(filepath.Join(in, "folder/file"), []byte("x"), 0o644),
			"create":         os.WriteFile(filepath.Join(in, "new"), nil, 0o644),
			"remove":         os.Remove(filepath.Join(in, "folder/file")),
			"rename":         os.Rename(filepath.Join(in, "folder"), filepath.Join(in, "other")),
			"chmod":          os.Chmod(filepath.Join(in, "folder/file"), 0o777),
			"mkdir":          os.Mkdir(filepath.Join(mnt, ".snapshots/new"), 0o755),
			"remove all":     os.Remove(filepath.Join(mnt, ".snapshots")),
			"make it itself": os.Mkdir(filepath.Join(mnt, ".snapshots"), 0o755),
		} {
			denied := !version4() && errors.Is(err, unix.EACCES) // by the client, which has asked ACCESS
			if err == nil || !denied && !errors.Is(err, unix.EROFS) && !errors.Is(err, unix.EEXIST) && !errors.Is(err, unix.ENOTEMPTY) {
				t.Errorf("%s: %v, want EROFS", what, err)
			}
		}
	})
	t.Run("a moment", func(t *testing.T) { momentsOf(t, a, mnt, name) })
	t.Run("restored", func(t *testing.T) {
		held := mustOpen(t, filepath.Join(mnt, "folder/file"), os.O_RDONLY)
		if version4() {
			out, err := exec.Command(os.Getenv("PODNAS"), "snapshot", "--root", a.root, "restore", name, "one").CombinedOutput()
			if err == nil || !strings.Contains(string(out), "1 file of volume") {
				t.Errorf("with an open file: %v\n%s", err, out)
			}
		}
		held.Close()
		stays := inodeNumber(t, filepath.Join(mnt, "folder/file"))
		mustWrite(t, filepath.Join(mnt, "folder/file"), []byte("second, and longer"))
		mustMkdir(t, filepath.Join(mnt, "new"))
		mustWrite(t, filepath.Join(mnt, "new/file"), []byte("new"))
		if err := os.Remove(filepath.Join(mnt, "gone")); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second) // until the client has closed what it keeps open after a write
		out := a.snapshot(t, "restore", name, "one")
		dropCaches(t)
		holds(t, filepath.Join(mnt, "folder/file"), []byte("first"))
		holds(t, filepath.Join(mnt, "gone"), []byte("will be"))
		if _, err := os.Stat(filepath.Join(mnt, "new")); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("what came later is there: %v", err)
		}
		if now := inodeNumber(t, filepath.Join(mnt, "folder/file")); now != stays {
			t.Errorf("a file that has kept its name is number %d, and was %d", now, stays)
		}
		_, safety, _ := strings.Cut(strings.TrimSpace(out), "is in its snapshot ")
		holds(t, filepath.Join(mnt, ".snapshots", safety, "folder/file"), []byte("second, and longer"))
		mustWrite(t, filepath.Join(mnt, "folder/file"), []byte("third"))
		holds(t, filepath.Join(a.dir(pv), "folder/file"), []byte("third"))
	})
	t.Run("in common", func(t *testing.T) { inCommon(t, a, mnt, name) })
	t.Run("deleted", func(t *testing.T) {
		file := mustOpen(t, filepath.Join(in, "folder/file"), os.O_RDONLY)
		defer file.Close()
		a.snapshot(t, "delete", name, "one", "--yes")
		isStale(t, file)
		for _, left := range shownIn(t, a, name) {
			a.snapshot(t, "delete", name, left, "--yes")
		}
		asked(t, mnt)
		isThere(t, all, false)
		mustMkdir(t, all) // as any other name
	})
}

// asked has the client ask the server for the attributes of a directory, as it does by itself when it has not for up to a minute.
func asked(t *testing.T, dir string) {
	t.Helper()
	var st unix.Statx_t
	if err := unix.Statx(unix.AT_FDCWD, dir, unix.AT_STATX_FORCE_SYNC, unix.STATX_BASIC_STATS, &st); err != nil {
		t.Fatal(err)
	}
}

func isThere(t *testing.T, name string, want bool) {
	t.Helper()
	if _, err := os.Stat(name); (err == nil) != want || err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%s: %v, want it: %v", name, err, want)
	}
}

// isStale checks that a file that is open is gone for good, once the client asks.
func isStale(t *testing.T, f *os.File) {
	t.Helper()
	dropCaches(t)
	if n, err := f.ReadAt(make([]byte, 100), 0); !errors.Is(err, unix.ESTALE) && !errors.Is(err, unix.EIO) {
		t.Errorf("%s of a deleted snapshot: %d bytes, %v", f.Name(), n, err)
	}
}

// shownIn lists the snapshots of a volume.
func shownIn(t *testing.T, a *appliance, name string) []string {
	t.Helper()
	var names []string
	for line := range strings.Lines(a.snapshot(t, "list", name, "-o", "name")) {
		names = append(names, strings.TrimSpace(line))
	}
	return names
}

// inCommon has two snapshots with a file that has not changed between them: the client sees that by its number, but has a handle of
// it in each. What has changed is another one, whatever the client has cached.
func inCommon(t *testing.T, a *appliance, mnt, name string) {
	mustWrite(t, filepath.Join(mnt, "stays"), []byte("the same"))
	mustWrite(t, filepath.Join(mnt, "changes"), []byte("before"))
	at := func(snapshot, file string) string { return filepath.Join(mnt, ".snapshots", snapshot, file) }
	time.Sleep(2500 * time.Millisecond) // what has changed a moment ago is cloned again
	a.snapshot(t, "create", name, "common-1")
	holds(t, at("common-1", "stays"), []byte("the same"))
	holds(t, at("common-1", "changes"), []byte("before"))
	mustWrite(t, filepath.Join(mnt, "changes"), []byte("after!"))
	a.snapshot(t, "create", name, "common-2")
	holds(t, at("common-2", "stays"), []byte("the same"))
	holds(t, at("common-2", "changes"), []byte("after!"))
	holds(t, at("common-1", "changes"), []byte("before"))
	if inodeNumber(t, at("common-1", "stays")) != inodeNumber(t, at("common-2", "stays")) {
		t.Error("the file that has not changed is two")
	}
	if inodeNumber(t, at("common-1", "stays")) == inodeNumber(t, filepath.Join(mnt, "stays")) {
		t.Error("the volume has the snapshot's file")
	}
	if out := a.snapshot(t, "diff", name, "common-1", "common-2"); !strings.Contains(out, "M changes   (content, modified)\n") || strings.Contains(out, "stays") {
		t.Errorf("they differ in\n%s", out)
	}
	held := mustOpen(t, at("common-1", "stays"), os.O_RDONLY)
	defer held.Close()
	a.snapshot(t, "delete", name, "common-1", "--yes")
	mustWrite(t, filepath.Join(mnt, "stays"), []byte("not any more"))
	dropCaches(t)
	isStale(t, held) // though the file is in another one, too
	holds(t, at("common-2", "stays"), []byte("the same"))
	holds(t, at("common-2", "changes"), []byte("after!"))
}

func inodeNumber(t *testing.T, name string) uint64 {
	t.Helper()
	var st unix.Stat_t
	if err := unix.Stat(name, &st); err != nil {
		t.Fatal(err)
	}
	return st.Ino
}

// momentsOf takes snapshots while writers count in pairs of files, the first of each before the second, and rename a file to and fro. In each
// snapshot no second is ahead of its first, no first is two ahead, and the file has one of its names.
func momentsOf(t *testing.T, a *appliance, mnt, name string) {
	const writers = 4
	stop := make(chan struct{})
	var all sync.WaitGroup
	ended := func() bool {
		select {
		case <-stop:
			return true
		default:
			return false
		}
	}
	for w := range writers {
		dir := filepath.Join(mnt, fmt.Sprint("pair-", w))
		mustMkdir(t, dir)
		first := mustOpen(t, filepath.Join(dir, "first"), os.O_RDWR|os.O_CREATE|os.O_SYNC)
		second := mustOpen(t, filepath.Join(dir, "second"), os.O_RDWR|os.O_CREATE|os.O_SYNC)
		mustWrite(t, filepath.Join(dir, "a"), nil)
		all.Go(func() {
			defer first.Close()
			defer second.Close()
			for n := uint64(1); !ended(); n++ {
				for _, f := range []*os.File{first, second} {
					if _, err := f.WriteAt(binary.BigEndian.AppendUint64(nil, n), 0); err != nil {
						t.Error(err)
						return
					}
				}
				from, to := "a", "b"
				if n%2 == 0 {
					from, to = to, from
				}
				if err := os.Rename(filepath.Join(dir, from), filepath.Join(dir, to)); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	rounds := 20
	if short() {
		rounds = 5
	}
	counted := func(file string) uint64 {
		b, err := os.ReadFile(file)
		if err != nil {
			t.Error(err)
		}
		if len(b) < 8 {
			return 0
		}
		return binary.BigEndian.Uint64(b)
	}
	for round := range rounds {
		taken := fmt.Sprint("moment-", round)
		a.snapshot(t, "create", name, taken)
		for w := range writers {
			dir := filepath.Join(mnt, ".snapshots", taken, fmt.Sprint("pair-", w))
			first, second := counted(filepath.Join(dir, "first")), counted(filepath.Join(dir, "second"))
			if second > first || first > second+1 {
				t.Errorf("%s: the first is at %d, and the second at %d", dir, first, second)
			}
			names, err := os.ReadDir(dir)
			if err != nil || len(names) != 3 {
				t.Errorf("%s: %v, %v, want the pair and one of a and b", dir, names, err)
			}
		}
	}
	close(stop)
	all.Wait()
	for round := range rounds {
		a.snapshot(t, "delete", name, fmt.Sprint("moment-", round), "--yes")
	}
}

func mustMkdir(t *testing.T, name string) {
	t.Helper()
	if err := os.Mkdir(name, 0o755); err != nil {
		t.Fatal(err)
	}
}

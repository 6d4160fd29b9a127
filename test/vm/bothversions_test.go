//go:build vm

package vm_test

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestBothVersions mounts a volume with version 3 and with 4: each sees what the other has
// changed as soon as it opens the file or looks for the name, and no later than that.
func TestBothVersions(t *testing.T) {
	a := serve(t)
	pv := a.volume("both", "128Mi")
	// Names and attributes that a client has cached are its own affair.
	with3 := mountWith(t, pv, append(version3Options(), "noac"))
	with4 := mountWith(t, pv, append(slices.Clone(pv.Spec.MountOptions), "noac"))
	for _, dir := range []struct{ name, writer, reader string }{{"3 to 4", with3, with4}, {"4 to 3", with4, with3}} {
		t.Run(dir.name, func(t *testing.T) {
			writer, reader := filepath.Join(dir.writer, "d"), filepath.Join(dir.reader, "d")
			time.Sleep(tick) // since the same name was removed
			if err := os.Mkdir(writer, 0o755); err != nil {
				t.Fatal(err)
			}
			seen(t, writer, reader)
			if err := os.RemoveAll(writer); err != nil {
				t.Error(err)
			}
			gone(t, reader)
		})
	}
	t.Run("appends", func(t *testing.T) { appendsOfBoth(t, with3, with4) })
}

// tick is between two changes of a directory of which a client of version 3 sees both: it tells them
// by the directory's times alone, which the kernel counts in ticks of up to 10 ms.
const tick = 50 * time.Millisecond

func seen(t *testing.T, writer, reader string) {
	t.Helper()
	for round := range 3 { // new, and then known to the reader
		b := data(byte(round), 100_000*(round+1))
		mustWrite(t, filepath.Join(writer, "f"), b)
		holds(t, filepath.Join(reader, "f"), b)
	}
	if err := errors.Join(os.Truncate(filepath.Join(writer, "f"), 5), os.Chmod(filepath.Join(writer, "f"), 0o640), os.Lchown(filepath.Join(writer, "f"), ownerUID, ownerGID)); err != nil {
		t.Error(err)
	}
	var st unix.Stat_t
	if err := unix.Stat(filepath.Join(reader, "f"), &st); err != nil || st.Size != 5 || st.Mode&0o7777 != 0o640 || st.Uid != ownerUID || st.Gid != ownerGID {
		t.Errorf("%+v, %v", st, err)
	}
	for _, step := range []func(name string) error{
		func(name string) error { return os.Rename(name, name+"-moved") },
		func(name string) error { return os.Link(name+"-moved", name) },
		func(name string) error { return os.Remove(name + "-moved") },
		func(name string) error { return os.Symlink("f", name+"-link") },
	} {
		time.Sleep(tick)
		if err := step(filepath.Join(writer, "f")); err != nil {
			t.Error(err)
		}
		names := [2][]string{}
		for i, dir := range []string{writer, reader} {
			entries, err := os.ReadDir(dir)
			if err != nil {
				t.Error(err)
			}
			for _, e := range entries {
				names[i] = append(names[i], e.Name()+e.Type().String())
			}
		}
		if !slices.Equal(names[0], names[1]) {
			t.Errorf("the writer lists %q, the reader %q", names[0], names[1])
		}
	}
	// A file that the reader has open, and one that it finds replaced.
	open := open(t, filepath.Join(reader, "f"))
	if err := os.WriteFile(filepath.Join(writer, "new"), []byte("another"), 0o644); err != nil {
		t.Error(err)
	}
	if err := os.Rename(filepath.Join(writer, "new"), filepath.Join(writer, "f")); err != nil {
		t.Error(err)
	}
	holds(t, filepath.Join(reader, "f"), []byte("another"))
	open.Close()
	f, err := os.OpenFile(filepath.Join(reader, "f"), os.O_CREATE|os.O_EXCL, 0o644)
	if !errors.Is(err, fs.ErrExist) {
		f.Close()
		t.Errorf("O_EXCL of what the other has made: %v", err)
	}
}

// appendsOfBoth appends to a file by turns, each of which opens it.
func appendsOfBoth(t *testing.T, with3, with4 string) {
	const lines = 20
	var want []byte
	var turn sync.Mutex
	var both sync.WaitGroup
	for i, mnt := range []string{with3, with4} {
		both.Go(func() {
			for n := range lines {
				turn.Lock()
				b := fmt.Appendf(nil, "%d %d\n", i, n)
				f, err := os.OpenFile(filepath.Join(mnt, "lines"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
				if err == nil {
					_, err = f.Write(b)
					err = errors.Join(err, f.Close())
				}
				if err != nil {
					t.Error(err)
				}
				want = append(want, b...)
				turn.Unlock()
			}
		})
	}
	both.Wait()
	for _, mnt := range []string{with3, with4} {
		if got, err := os.ReadFile(filepath.Join(mnt, "lines")); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%v, %d bytes, want %d", err, len(got), len(want))
		}
	}
}

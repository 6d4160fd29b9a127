package locate

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/podnas/podnas/server/disk"
)

// A client moves a file to and fro, and another call that has not found it looks for it in the directory that it comes back to. The
// index has a name of the file at any time.
func TestMovedBackWhileItIsLookedFor(t *testing.T) {
	const others, rounds = 20_000, 100
	top := t.TempDir()
	root, err := os.Open(top)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	if err := ProbeIndex(top); err != nil {
		t.Skip(err)
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	names := [2]string{filepath.Join(top, "a"), filepath.Join(top, "b")}
	in := func(dir int) string { return filepath.Join(names[dir], "file") }
	for _, name := range names {
		must(os.Mkdir(name, 0o755))
	}
	must(os.WriteFile(in(0), nil, 0o644)) // first, so that a listing comes to it soon
	for i := range others {
		must(os.WriteFile(filepath.Join(names[0], fmt.Sprint(i)), nil, 0o644))
	}
	var indexes Indexes
	indexes.SetUp(0, slog.New(slog.DiscardHandler))
	on, v := disk.Of(root), new(Volume)
	must(v.SetUp(open{}, Config{ID: 7, Path: "/v", Root: root, FS: &on}, &indexes, FormInode, true))
	defer v.Close()
	x := v.Index()
	var dirs [2]*os.File
	var numbers [2]uint64
	for i, name := range names {
		dirs[i], err = os.Open(name)
		must(err)
		t.Cleanup(func() { _ = dirs[i].Close() })
		_, st, err := x.look(int(dirs[i].Fd()), "")
		must(err)
		numbers[i] = st.Ino
	}
	id, st, err := x.look(int(dirs[0].Fd()), "file")
	must(err)
	move := func(from, to int) {
		change := v.ChangeNames()
		defer change.End()
		must(os.Rename(in(from), in(to)))
		change.Renamed(numbers[from], "file", int(dirs[to].Fd()), numbers[to], "file", &id)
	}
	for round := range rounds {
		move(0, 1)
		x.names.Add(st.Ino, numbers[0], []byte("file"), false) // as of before, what the call has found
		listing, err := os.Open(names[0])
		must(err)
		looked := make(chan error)
		go func() {
			_, err := x.lookIn(int(listing.Fd()), numbers[0], []byte("file"), st.Ino)
			looked <- err
		}()
		time.Sleep(time.Duration(round) * 50 * time.Microsecond)
		move(1, 0)
		must(<-looked)
		must(listing.Close())
		var buf [256]byte
		var parents []uint64
		for nth := 0; ; nth++ {
			parent, _, ok := x.names.Name(st.Ino, nth, &buf)
			if !ok {
				break
			}
			parents = append(parents, parent)
		}
		if !slices.Contains(parents, numbers[0]) {
			t.Fatalf("round %d: the index has the file in %v, it is in %d", round, parents, numbers[0])
		}
	}
}

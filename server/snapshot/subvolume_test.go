package snapshot_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/podnas/podnas/server/actas"
	"github.com/podnas/podnas/server/disk"
	"github.com/podnas/podnas/server/inode"
	"github.com/podnas/podnas/server/snapshot"
	"github.com/podnas/podnas/test/testdisk"
)

// idOf is the FileID of what is at a path of names.
func (v *volume) idOf(t *testing.T, names ...string) disk.FileID {
	t.Helper()
	id := *v.Files.RootID()
	for _, name := range names {
		dir, err := v.opener.OpenIn(v.Volume, id, inode.UseAttr)
		mustDo(t, err)
		f, err := dir.Lookup([]byte(name))
		mustDo(t, err)
		id = f.ID
		f.Close()
		dir.Close()
	}
	return id
}

func numberOf(t *testing.T, path string) uint64 {
	t.Helper()
	var st unix.Stat_t
	mustDo(t, unix.Lstat(path, &st))
	return st.Ino
}

// A subvolume of btrfs inside a volume has numbers of its own. A file in it that moves while a snapshot is taken is not taken for the
// volume's file with the same number, which has moved, too.
func TestMovedInSubvolume(t *testing.T) {
	testdisk.Btrfs(t, func(t *testing.T, on string) {
		if testdisk.ByIndex() {
			t.Skip("the index serves no subvolumes")
		}
		v := newVolume(t, on)
		in := func(name string) string { return filepath.Join(v.dir, name) }
		if out, err := exec.CommandContext(t.Context(), "btrfs", "subvolume", "create", in("sub")).CombinedOutput(); err != nil {
			t.Skipf("a subvolume can't be made here: %v\n%s", err, out)
		}
		for _, d := range []string{"from", "to"} {
			mustDo(t, os.Mkdir(in(d), 0o755))
		}
		mustDo(t, os.WriteFile(in("from/file"), []byte("ours"), 0o644))
		number, other := numberOf(t, in("from/file")), ""
		for i := 0; other == "" && i < 1000; i++ {
			name := fmt.Sprint(i)
			mustDo(t, os.WriteFile(in("sub/"+name), []byte("theirs"), 0o644))
			if numberOf(t, in("sub/"+name)) == number {
				other = name
			}
		}
		if other == "" {
			t.Fatalf("no file of the subvolume has the number %d", number)
		}
		from, to, sub := v.idOf(t, "from"), v.idOf(t, "to"), v.idOf(t, "sub")
		moves := func(a disk.FileID, name string, b disk.FileID, newName string) func() error {
			return func() error {
				return v.changeNames(a, b, func(in, to *inode.File) error {
					_, err := in.Rename(actas.AsProcess(), name, to, newName)
					return err
				})
			}
		}
		ours, theirs := moves(from, "file", to, "file"), moves(sub, other, sub, "other")
		for i, both := range [][]func() error{{ours, theirs}, {theirs, ours}} {
			work := filepath.Join(v.work, fmt.Sprint("by hand", i))
			mustDo(t, os.Mkdir(work, 0o700))
			root, err := os.OpenRoot(work)
			mustDo(t, err)
			var looks atomic.Int32
			cut, moved, ended := make(chan struct{}), make(chan struct{}), make(chan error)
			own := &snapshot.Own{Still: func(do func()) {
				if looks.Add(1) == 1 { // at the root: nothing else is captured
					close(cut)
					<-moved
				}
				do()
			}}
			go func() { ended <- v.Snapshots.Take(t.Context(), &v.Files, own, root, nil, new(snapshot.Progress)) }()
			<-cut
			for _, move := range both {
				mustDo(t, move())
			}
			close(moved)
			mustDo(t, <-ended)
			mustDo(t, root.Close())
			got, err := os.ReadFile(filepath.Join(work, snapshot.Tree, "from/file"))
			if err != nil || string(got) != "ours" {
				t.Errorf("order %d: the snapshot has %q, %v", i, got, err)
			}
			mustDo(t, moves(to, "file", from, "file")())
			mustDo(t, moves(sub, "other", sub, other)())
		}
	})
}

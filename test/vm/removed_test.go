//go:build vm

package vm_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"
)

// TestRemovedWhileOpen has files that are removed while nodes have them open, in several ways: they
// can be used over restarts that are meant and over kill -9, count towards the volume's size, and are
// gone with the last close.
func TestRemovedWhileOpen(t *testing.T) {
	a := newAppliance(t, settings{listen: ":20490"})
	a.start()
	pv := a.volume("shared", "32Mi")
	nodes := [2]*node{newNode(t, 1, pv), newNode(t, 2, pv)}
	id := project(t, a.dir(pv))
	kept := filepath.Join(a.root, ".podnas", "removed")
	list := func(dir string) (names []string) {
		t.Helper()
		entries, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			names = append(names, e.Name())
		}
		return names
	}

	const size = 4 << 20
	type removedFile struct {
		name    string
		by      int // the node that removes it
		content []byte
		f       []file // of node 0, and 1
	}
	var files []*removedFile
	for i, name := range []string{"removed", "removed by another", "replaced", "linked"} {
		f := &removedFile{name, i % 2, data(byte(i), size), []file{nodes[0].open(t, name, os.O_RDWR|os.O_CREATE)}}
		wants(t, "write", errOf(f.f[0].Write(f.content)), nil)
		wants(t, "sync", f.f[0].Sync(), nil)
		if name == "replaced" { // by the other, as Linux renames what it replaces and has open
			f.by = 1
		} else {
			f.f = append(f.f, nodes[1].open(t, name, os.O_RDONLY))
		}
		files = append(files, f)
	}
	for _, f := range files {
		at := filepath.Join(nodes[f.by].mnt, f.name)
		switch f.name {
		case "replaced":
			wants(t, "symlink", os.Symlink("x", at+" by this"), nil)
			wants(t, "rename", os.Rename(at+" by this", at), nil)
			wants(t, "remove", os.Remove(at), nil)
		case "linked":
			wants(t, "link", os.Link(at, at+" again"), nil)
			wants(t, "remove", os.Remove(at), nil)
			wants(t, "remove", os.Remove(at+" again"), nil)
		default:
			wants(t, "remove", os.Remove(at), nil)
		}
	}
	// The volume gets full, and a file that is open can be removed from it.
	full := nodes[0].open(t, "full", os.O_RDWR|os.O_CREATE)
	var err error
	for err == nil {
		if _, err = full.Write(data(9, 1<<20)); err == nil {
			err = full.Sync()
		}
	}
	if !noSpace(err) {
		t.Errorf("a volume of 32 MiB gets full: %v", err)
	}
	wants(t, "remove in a full volume", os.Remove(filepath.Join(nodes[1].mnt, "full")), nil)
	if names := list(a.dir(pv)); len(names) > 0 {
		t.Errorf("the volume has %q, and all was removed", names)
	}
	if names := list(kept); len(names) != len(files)+1 {
		t.Errorf("%q are kept, and %d files are open", names, len(files)+1)
	}
	for round, end := range []func(){a.stop, a.kill, a.stop, a.kill} {
		if _, use := limitAndUse(t, id); use < uint64(len(files))*size {
			t.Errorf("round %d: the removed files take %d bytes of the volume, and have %d", round, use, len(files)*size)
		}
		a.prepare()
		end()
		a.start()
		dropCaches(t)
		for _, f := range files {
			within(t, time.Minute, f.name, func() error {
				at := int64(round * 4096)
				b := bytes.Repeat([]byte{byte(round + 1)}, 4096)
				copy(f.content[at:], b)
				if _, err := f.f[0].WriteAt(b, at); err != nil {
					return err
				}
				if err := f.f[0].Sync(); err != nil {
					return err
				}
				for i, open := range f.f {
					got := make([]byte, size)
					if _, err := open.ReadAt(got, 0); err != nil {
						return fmt.Errorf("node %d: %w", i, err)
					}
					// Linux reads again what another node has written when it opens the file.
					if i == 0 && !bytes.Equal(got, f.content) || !bytes.Equal(got[64<<10:], f.content[64<<10:]) {
						return fmt.Errorf("node %d reads something else", i)
					}
				}
				return nil
			})
		}
	}
	full.Close()
	for _, f := range slices.Backward(files) {
		for _, open := range f.f {
			wants(t, "close", open.Close(), nil)
		}
	}
	eventually(t, "all space is free after the last close", func() bool {
		_, use := limitAndUse(t, id)
		return use < 1<<20 && len(list(kept)) == 0
	})
}

func errOf(_ int, err error) error { return err }

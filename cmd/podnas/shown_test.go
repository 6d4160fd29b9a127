package main

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/podnas/podnas/nfs/nfs3"
	"github.com/podnas/podnas/test/conformance/nfstest"
	"github.com/podnas/podnas/test/conformance/nfstest4"
	"github.com/podnas/podnas/test/testdisk"
)

// Snapshots come and go by commands while clients of all versions look at .snapshots.
func TestShownSnapshots(t *testing.T) {
	testdisk.OnlyCI(t)
	overNFS(t, testdisk.Sharing, shownOverNFS)
}

func shownOverNFS(t *testing.T, root, handles string) {
	t.Helper()
	address, stop := servingDisk(t, root, handles)
	runs(t, "volume", "create", "data", "--size", "64Mi")
	control := nfstest4.Snapshots{
		Take:   func(name string) { runs(t, "snapshot", "create", "data", name) },
		Delete: func(name string) { runs(t, "snapshot", "delete", "data", name, "--yes") },
	}
	for _, minor := range []uint32{1, 2} {
		nfstest4.RunSnapshots(t, nfstest4.Target{Addr: address, MountAddr: address, Export: "/data", Minor: minor}, control)
	}

	// Handles are those of the process before, as long as the snapshot is there.
	mustDo(t, os.WriteFile(filepath.Join(root, "data", "f"), []byte("content"), 0o644))
	control.Take("stays")
	control.Take("goes")
	before, gone := shownByVersion3(t, address, "stays"), shownByVersion3(t, address, "goes")
	control.Delete("goes")
	stop()
	address, stop = servingDisk(t, root, handles)
	c := dial3(t, address)
	for what, fh := range before {
		if status := untilAnswered(t, c, fh); status != nfs3.OK {
			t.Errorf("%s after a restart: %v", what, status)
		}
	}
	for what, fh := range gone {
		if status := untilAnswered(t, c, fh); status != nfs3.ErrStale {
			t.Errorf("%s of a deleted one after a restart: %v", what, status)
		}
	}
	after := shownByVersion3(t, address, "stays")
	for what, fh := range before {
		if !bytes.Equal(fh, after[what]) {
			t.Errorf("the handle of %s is %x, and was %x", what, after[what], fh)
		}
	}
	stop()
}

// shownByVersion3 returns the handles of a snapshot and its file.
func shownByVersion3(t *testing.T, address, name string) map[string]nfs3.FH {
	t.Helper()
	c := dial3(t, address)
	mounted, err := c.Mount(t.Context(), "/data")
	mustDo(t, err)
	at, found := nfs3.FH(mounted.Handle), map[string]nfs3.FH{}
	for _, step := range []string{".snapshots", name, "f"} {
		res, err := c.Lookup(t.Context(), at, step)
		if err != nil || res.Status != nfs3.OK {
			t.Fatalf("LOOKUP of %s: %v, %v", step, res.Status, err)
		}
		at = res.Object
		if step != ".snapshots" {
			found[step] = at
		}
	}
	return found
}

// untilAnswered makes a GETATTR until the server does not ask to try again.
func untilAnswered(t *testing.T, c *nfstest.Client, fh nfs3.FH) (status nfs3.Status) {
	t.Helper()
	waitUntil(t, "an answer", func() bool {
		res, err := c.Getattr(t.Context(), fh)
		mustDo(t, err)
		status = res.Status
		return status != nfs3.ErrJukebox
	})
	return status
}

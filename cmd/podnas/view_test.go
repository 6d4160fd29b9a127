package main

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/podnas/podnas/nfs/nfs3"
	"github.com/podnas/podnas/server"
	"github.com/podnas/podnas/test/conformance/nfstest"
	"github.com/podnas/podnas/test/conformance/nfstest4"
	"github.com/podnas/podnas/test/testdisk"
)

const createView = "volume create shown --size 1Mi --from data --snapshot first --access-modes ReadOnlyMany --on-delete archive"

// The life of a volume that shows a snapshot, in this order, by what a person types.
func TestViewCommands(t *testing.T) {
	testdisk.XFS(t, func(t *testing.T, root string) {
		serveDisk(t, root)
		t.Setenv("PODNAS_ROOT", root)
		for _, s := range []step{
			{name: "a volume", command: "volume create data --size 1Mi", stdout: "name: data\n"},
			{name: "its snapshot", command: "snapshot create data first", stdout: "snapshot first of volume data is complete"},
			{name: "too small", command: "volume create shown --size 1Mi --from data --snapshot frist --access-modes ReadOnlyMany", code: 3, err: `did you mean "first"`},
			{name: "create", command: createView, stdout: "path: /shown\n    readOnly: true\n", stderr: "volume shown is ready: 1Mi in " + root + "/.podnas/snapshots/"},
			{name: "create again", command: createView, stdout: "  - ro\n"},
			{name: "a copy of its name", command: "volume create shown --size 1Mi --from data --snapshot first", code: 4, err: "already exists"},
			{name: "a copy, by what it allows", command: "volume create copied --size 1Mi --from data --snapshot first --read-only", stderr: "volume copied is ready: 1Mi in " + root + "/copied"},
			{name: "list", command: "volume list", stdout: "SNAPSHOTS   SHOWS\n"},
			{name: "list what it shows", command: "volume list", stdout: "ready   0         -        0           snapshot first of data\n"},
			{name: "list for programs", command: "volume list -o json", stdout: `"view": true`},
			{name: "show", command: "volume show shown", stdout: "Shows:      snapshot first of data\n"},
			{name: "show where", command: "volume show shown", stdout: "Directory:  " + root + "/.podnas/snapshots/"},
			{name: "show the snapshot", command: "snapshot show data first", stdout: "Shown by:         shown\n"},
			{name: "show the snapshot to programs", command: "snapshot show data first -o json", stdout: `"shownBy": [`},
			{name: "doctor", command: "doctor", stdout: "3 are served"},
			{name: "delete the snapshot", command: "snapshot delete data first --yes", code: 4, err: "volume shown shows its files; delete that first"},
			{name: "resize", command: "volume resize shown 2Mi", code: 2, err: "it shows a snapshot, and has no files of its own, so it can't be expanded"},
			{name: "a snapshot of it", command: "snapshot create shown", code: 2, err: "it is the snapshot first of volume data, so there are no others of it"},
			{name: "a schedule", command: "volume set shown --snapshots daily=1", code: 2, err: "never changes"},
			{name: "a promise", command: "volume set shown --snapshot-reserve 20%", code: 2, err: "there are no snapshots of it"},
			{name: "restore", command: "snapshot restore shown first", code: 2, err: "there are no others of it"},
			{name: "archive", command: "volume archive shown --yes", code: 2, err: "delete it, which deletes no file"},
			{name: "copy it", command: "volume copy shown copy", stderr: "volume copy is ready: 1Mi in " + root + "/copy"},
			{name: "delete the volume", command: "volume delete data --yes", stdout: "its snapshot is kept"},
			{name: "delete the snapshot of a deleted one", command: "snapshot delete data first --yes", code: 4, err: "volume shown shows its files"},
			{name: "delete", command: "volume delete shown --yes", stdout: "volume shown is deleted: the snapshot that it shows stays\n"},
			{name: "it is not kept", command: "volume list --all -o name", stdout: "copied\ncopy\n"},
			{name: "delete the snapshot at last", command: "snapshot delete data first --yes", stdout: "is deleted"},
		} {
			t.Run(s.name, s.run)
		}
	})
}

// What clients see of a snapshot can't be changed by any version, and their handles hold over a restart.
func TestViewOverNFS(t *testing.T) {
	overNFS(t, testdisk.XFS, viewOverNFS)
}

// overNFS runs a test on disks, by both ways of finding files.
func overNFS(t *testing.T, on func(*testing.T, func(*testing.T, string)), test func(t *testing.T, root, handles string)) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("the native engine needs root")
	}
	for _, handles := range []string{server.HandlesKernel, server.HandlesIndex} {
		t.Run(handles, func(t *testing.T) {
			on(t, func(t *testing.T, root string) {
				t.Setenv("PODNAS_ROOT", root)
				test(t, root, handles)
			})
		})
	}
}

// runs runs a command, which must succeed.
func runs(t *testing.T, args ...string) {
	t.Helper()
	if _, errs, err := podnas(t.Context(), args...); err != nil {
		t.Fatalf("%v: %v: %s", args, err, errs)
	}
}

func viewOverNFS(t *testing.T, root, handles string) {
	t.Helper()
	run := func(args ...string) { runs(t, args...) }
	address, stop := servingDisk(t, root, handles)
	run("volume", "create", "data", "--size", "64Mi")
	mustDo(t, os.WriteFile(filepath.Join(root, "data", "f"), []byte("content"), 0o644))
	mustDo(t, os.Mkdir(filepath.Join(root, "data", "sub"), 0o755))
	run("snapshot", "create", "data", "first")
	run("volume", "create", "shown", "--size", "64Mi", "--from", "data", "--snapshot", "first", "--access-modes", "ReadOnlyMany")
	mustDo(t, os.WriteFile(filepath.Join(root, "data", "f"), []byte("CHANGED"), 0o644))

	before := viewByVersion3(t, address)
	nfstest4.RunView(t, nfstest4.Target{Addr: address, MountAddr: address, Export: "/data", ReadOnly: "/shown"})
	stop()
	address, stop = servingDisk(t, root, handles)
	after := viewByVersion3(t, address)
	for name := range before {
		if !bytes.Equal(before[name], after[name]) {
			t.Errorf("the handle of %s is %x, and after a restart %x", name, before[name], after[name])
		}
	}
	c := dial3(t, address)
	if res, err := c.Read(t.Context(), before["f"], 0, 100); err != nil || string(res.Data) != "content" {
		t.Errorf("after a restart: %q, %v, %v", res.Data, res.Status, err)
	}
	run("volume", "delete", "shown", "--yes")
	for name, fh := range before {
		if res, err := c.Getattr(t.Context(), fh); err != nil || res.Status != nfs3.ErrStale {
			t.Errorf("%s of a deleted one: %v, %v", name, res.Status, err)
		}
	}
	stop()
}

// servingDisk serves a disk, which PODNAS_ROOT names, until stop is called.
func servingDisk(t *testing.T, root, handles string) (address string, stop func()) {
	t.Helper()
	log, cancel, ended := serving(t, "--root="+root, "--quota=server", "--handles="+handles, "--http=127.0.0.1:0")
	address = waitForAddress(t, log)
	waitUntil(t, "podnas answers", func() bool {
		_, _, err := podnas(t.Context(), "volume", "list")
		return err == nil
	})
	return address, func() {
		cancel()
		mustDo(t, <-ended)
	}
}

func dial3(t *testing.T, address string) *nfstest.Client {
	t.Helper()
	c, err := nfstest.Dial(t.Context(), address, address)
	mustDo(t, err)
	t.Cleanup(c.Close)
	return c
}

// viewByVersion3 changes the volume shown in all ways, and returns handles.
func viewByVersion3(t *testing.T, address string) map[string]nfs3.FH {
	t.Helper()
	ctx, c := t.Context(), dial3(t, address)
	lookup := func(dir nfs3.FH, name string, want nfs3.Status) nfs3.FH {
		t.Helper()
		res, err := c.Lookup(ctx, dir, name)
		if err != nil || res.Status != want {
			t.Fatalf("LOOKUP of %s: %v, %v, want %v", name, res.Status, err, want)
		}
		return res.Object
	}
	mounted, err := c.Mount(ctx, "/shown")
	mustDo(t, err)
	root := nfs3.FH(mounted.Handle)
	file, sub := lookup(root, "f", nfs3.OK), lookup(root, "sub", nfs3.OK)
	if up := lookup(root, "..", nfs3.OK); !bytes.Equal(up, root) {
		t.Errorf("above the root is %x, and the root is %x", up, root)
	}
	if up := lookup(sub, "..", nfs3.OK); !bytes.Equal(up, root) {
		t.Errorf("above the directory is %x, and the root is %x", up, root)
	}
	lookup(root, ".snapshots", nfs3.ErrNoEnt)
	for name, call := range c.Changes(ctx, root, file, "f") {
		if status, err := call(); err != nil || status != nfs3.ErrROFS {
			t.Errorf("%s: %v, %v, want %v", name, status, err, nfs3.ErrROFS)
		}
	}
	if res, err := c.Read(ctx, file, 0, 100); err != nil || string(res.Data) != "content" {
		t.Errorf("READ: %q, %v, %v", res.Data, res.Status, err)
	}
	return map[string]nfs3.FH{"/": root, "f": file, "sub": sub}
}

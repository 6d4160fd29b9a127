package server_test

import (
	"crypto/rand"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"github.com/podnas/podnas/nfs/nfs3"
	"github.com/podnas/podnas/server"
	"github.com/podnas/podnas/server/disk"
	"github.com/podnas/podnas/server/exports"
	"github.com/podnas/podnas/server/locate"
	"github.com/podnas/podnas/test/conformance/nfstest"
	"github.com/podnas/podnas/test/testdisk"
)

// Each way to find files comes after each other once.
var finders = func() [][2]string {
	kernel, index, goNFS := [2]string{server.EngineNative, "kernel"}, [2]string{server.EngineNative, "index"}, [2]string{server.EngineGoNFS, "index"}
	return [][2]string{kernel, index, goNFS, kernel, goNFS, index, kernel}
}()

// givenHandles are what a process has given out.
type givenHandles struct {
	by              string
	root, dir, file nfs3.FH
}

// overProcesses serves a volume by processes that find files in different ways, and has check look at what each does with
// the handles that it and those before it have given out.
func overProcesses(t *testing.T, diskDir string, form locate.Form, check func(c *raw, n int, had []givenHandles)) {
	t.Helper()
	dir := filepath.Join(diskDir, "volume")
	if err := os.MkdirAll(filepath.Join(dir, "a", "b"), 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "a", "b", "file"), []byte("data"), 0o666); err != nil {
		t.Fatal(err)
	}
	if err := disk.ProbeHandles(dir); err != nil {
		t.Skip(err)
	}
	cfg := config(t)
	_, _ = rand.Read(cfg.HandleKey)
	i := &instance{cfg: cfg, addr: nfstest.OwnAddress(), add: func(table *exports.Table) error {
		return table.Export(exports.Exported{ID: 1, Path: "/volume", Dir: dir, Form: form})
	}}
	t.Cleanup(i.end)
	var had []givenHandles
	for n, by := range finders {
		i.cfg.Engine.Engine, i.cfg.Exports.ByIndex = by[0], by[1] == "index"
		i.start(t)
		c := dialRaw(t, i.addr, 0)
		root := c.mount("/volume")
		had = append(had, givenHandles{fmt.Sprint(by), root, c.find(root, "a"), c.find(root, "a", "b", "file")})
		check(c, n, had)
		if err := i.stop(); err != nil {
			t.Error(err)
		}
	}
}

// TestHandlesKeepTheirForm: where the record has a form, all processes give out the same handles.
func TestHandlesKeepTheirForm(t *testing.T) {
	testdisk.Each(t, func(t *testing.T, diskDir string) {
		for _, form := range []locate.Form{locate.FormKernel, locate.FormInode} {
			overProcesses(t, filepath.Join(diskDir, string(form)), form, func(c *raw, n int, had []givenHandles) {
				h := had[n]
				if h.by = had[0].by; !reflect.DeepEqual(h, had[0]) {
					t.Errorf("form %s: %s gives out\n%x, and %s gave out\n%x", form, had[n].by, h, had[0].by, had[0])
				}
				c.usable(string(form)+" by "+had[n].by, h)
			})
		}
	})
}

// usable looks, reads and writes by handles.
func (r *raw) usable(what string, h givenHandles) {
	r.Helper()
	for _, fh := range []nfs3.FH{h.root, h.dir, h.file} {
		if status := r.status(nfs3.ProcGetattr, &nfs3.HandleArgs{Object: fh}); status != nfs3.OK {
			r.Errorf("%s: GETATTR: %v", what, status)
		}
	}
	if status := r.status(nfs3.ProcRead, &nfs3.ReadArgs{File: h.file, Count: 10}); status != nfs3.OK {
		r.Errorf("%s: READ: %v", what, status)
	}
	if status := r.status(nfs3.ProcWrite, &nfs3.WriteArgs{File: h.file, Count: 4, Data: []byte("data"), Stable: nfs3.FileSync}); status != nfs3.OK {
		r.Errorf("%s: WRITE: %v", what, status)
	}
}

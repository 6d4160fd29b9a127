package server_test

import (
	"crypto/rand"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/podnas/podnas/nfs/nfs3"
	"github.com/podnas/podnas/server"
	"github.com/podnas/podnas/server/export"
	"github.com/podnas/podnas/test/conformance/nfstest"
	"github.com/podnas/podnas/test/testdisk"
)

// TestHandlesOfAnyForm: a volume stays mounted whatever engine the next process has, and however that
// finds files: the handles of all before it are good.
func TestHandlesOfAnyForm(t *testing.T) {
	testdisk.Each(t, func(t *testing.T, disk string) {
		dir := filepath.Join(disk, "volume")
		if err := os.MkdirAll(filepath.Join(dir, "a", "b"), 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "a", "b", "file"), []byte("data"), 0o666); err != nil {
			t.Fatal(err)
		}
		if err := export.ProbeHandles(dir); err != nil {
			t.Skip(err)
		}
		cfg := config(t)
		_, _ = rand.Read(cfg.HandleKey)
		i := &instance{cfg: cfg, addr: nfstest.OwnAddress(), add: func(table *export.Table) error {
			return table.Add(1, "/volume", dir, export.Options{})
		}}
		t.Cleanup(i.end)
		// Each comes after each other once.
		kernel, index, goNFS := [2]string{server.EngineNative, "kernel"}, [2]string{server.EngineNative, "index"}, [2]string{server.EngineGoNFS, "index"}
		type handles struct {
			by              string
			root, dir, file nfs3.FH
		}
		var had []handles
		for n, by := range [][2]string{kernel, index, goNFS, kernel, goNFS, index, kernel} {
			if n > 0 {
				if err := i.stop(); err != nil {
					t.Error(err)
				}
			}
			i.cfg.Engine.Engine, i.cfg.Exports.ByIndex = by[0], by[1] == "index"
			i.start(t)
			c := dialRaw(t, i.addr, 0)
			root := c.mount("/volume")
			had = append(had, handles{fmt.Sprint(by), root, c.find(root, "a"), c.find(root, "a", "b", "file")})
			for m, h := range had {
				what := fmt.Sprintf("%s with a handle of %s", by, h.by)
				for _, fh := range []nfs3.FH{h.root, h.dir, h.file} {
					if status := c.status(nfs3.ProcGetattr, &nfs3.HandleArgs{Object: fh}); status != nfs3.OK {
						t.Errorf("%s: GETATTR: %v", what, status)
					}
				}
				if status := c.status(nfs3.ProcRead, &nfs3.ReadArgs{File: h.file, Count: 10}); status != nfs3.OK {
					t.Errorf("%s: READ: %v", what, status)
				}
				if status := c.status(nfs3.ProcWrite, &nfs3.WriteArgs{File: h.file, Count: 4, Data: []byte("data"), Stable: nfs3.FileSync}); status != nfs3.OK {
					t.Errorf("%s: WRITE: %v", what, status)
				}
				name := []byte(fmt.Sprint("made ", n, " ", m))
				if status := c.status(nfs3.ProcMkdir, &nfs3.MkdirArgs{Where: nfs3.DirOpArgs{Dir: h.dir, Name: name}}); status != nfs3.OK {
					t.Errorf("%s: MKDIR: %v", what, status)
				}
				// A file is one, by whatever handle it is used.
				if status := c.status(nfs3.ProcRename, &nfs3.RenameArgs{From: nfs3.DirOpArgs{Dir: h.dir, Name: name}, To: nfs3.DirOpArgs{Dir: had[n].dir, Name: append(name, " moved"...)}}); status != nfs3.OK {
					t.Errorf("%s: RENAME: %v", what, status)
				}
			}
		}
		if err := i.stop(); err != nil {
			t.Error(err)
		}
	})
}

package server_test

import (
	"flag"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/podnas/podnas/nfs/nfs3"
	"github.com/podnas/podnas/server"
	"github.com/podnas/podnas/server/exports"
	"github.com/podnas/podnas/test/conformance/nfstest"
)

var indexed = flag.Int("indexed", 2000, "files of TestKeptIndex, which measures restarts; a million take some minutes")

func makeFiles(t *testing.T, dir string, files int) {
	t.Helper()
	for n := range files {
		below := filepath.Join(dir, fmt.Sprintf("part%d/below/directory%d", n/100_000, n/1000))
		if n%1000 == 0 {
			if err := os.MkdirAll(below, 0o777); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.WriteFile(fmt.Sprintf("%s/file-%07d.dat", below, n), nil, 0o666); err != nil {
			t.Fatal(err)
		}
	}
}

// TestKeptIndex measures how long a client waits after a restart, with and without an index that was kept.
func TestKeptIndex(t *testing.T) {
	disk := t.TempDir()
	dir, kept := filepath.Join(disk, "volume"), filepath.Join(disk, ".podnas", "index")
	if err := os.Mkdir(filepath.Dir(kept), 0o700); err != nil {
		t.Fatal(err)
	}
	makeFiles(t, dir, *indexed)
	cfg := nativeConfig(t, dir, server.HandlesIndex)
	var log *lines // of the process
	i := &instance{cfg: cfg, addr: nfstest.OwnAddress(), add: func(table *exports.Table) error {
		table.Log = slog.New(slog.NewTextHandler(log, nil))
		table.Indexes.Keep(kept)
		return table.Export(exports.Exported{ID: 1, Path: "/volume", Dir: dir})
	}}
	t.Cleanup(i.end)
	var handles []nfs3.FH
	// start starts a process, and has it answer a call for each handle.
	start := func(what string) *raw {
		log = &lines{}
		began := time.Now()
		i.start(t)
		c := dialRaw(t, i.addr, 0)
		answered := func(h nfs3.FH) time.Duration {
			if status := c.status(nfs3.ProcGetattr, &nfs3.HandleArgs{Object: h}); status != nfs3.OK {
				t.Errorf("%s: %v", what, status)
			}
			return time.Since(began).Round(time.Millisecond)
		}
		for n, h := range handles {
			if took := answered(h); n == 0 || n == len(handles)-1 {
				t.Logf("%s: %v until handle %d of %d was answered", what, took, n+1, len(handles))
			}
		}
		return c
	}
	// walked waits for the walk, and for the file.
	walked := func() {
		for deadline := time.Now().Add(10 * time.Minute); ; time.Sleep(10 * time.Millisecond) {
			_, err := os.Stat(filepath.Join(kept, "1"))
			if err == nil && strings.Contains(log.String(), "indexed the names") {
				return
			}
			if time.Now().After(deadline) {
				t.Fatalf("no index is kept: %v", err)
			}
		}
	}
	stop := func(meant bool) {
		if err := i.stop(); err != nil {
			t.Error(err)
		}
		if began := time.Now(); meant {
			i.cfg.Exports.LastIndexes()
			t.Logf("the index took %v of the end", time.Since(began).Round(100*time.Microsecond))
		}
	}
	began := time.Now()
	c := start("at first")
	walked()
	a, err := os.Stat(filepath.Join(kept, "1"))
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d files: walked, and wrote %d bytes, in %v", *indexed, a.Size(), time.Since(began).Round(time.Millisecond))
	root := c.mount("/volume")
	for n := *indexed - 1; n >= 0; n -= max(1, *indexed/50) {
		handles = append(handles, c.find(root, fmt.Sprint("part", n/100_000), "below", fmt.Sprint("directory", n/1000), fmt.Sprintf("file-%07d.dat", n)))
	}
	c.status(nfs3.ProcMkdir, &nfs3.MkdirArgs{Where: nfs3.DirOpArgs{Dir: root, Name: []byte("new")}})
	handles = append([]nfs3.FH{c.find(root, "new")}, handles...)
	stop(true)

	loaded := func(what string) { // a walk may be faster, and answer the calls
		for deadline := time.Now().Add(time.Minute); !strings.Contains(log.String(), "loaded the index"); time.Sleep(10 * time.Millisecond) {
			if time.Now().After(deadline) {
				t.Errorf("%s: no index was loaded", what)
				return
			}
		}
	}
	start("after a restart")
	loaded("after a restart")
	walked()
	stop(false)
	start("after a kill")
	loaded("after a kill")
	stop(false)
	if err := os.Remove(filepath.Join(kept, "1")); err != nil {
		t.Fatal(err)
	}
	start("without a kept index")
	if strings.Contains(log.String(), "loaded the index") {
		t.Error("an index was loaded that was removed")
	}
	stop(false)
}

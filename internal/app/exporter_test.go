package app

import (
	"bytes"
	"errors"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/podnas/podnas/internal/volume"
	"github.com/podnas/podnas/quota"
	"github.com/podnas/podnas/server"
	"github.com/podnas/podnas/server/actas"
	serverdisk "github.com/podnas/podnas/server/disk"
	"github.com/podnas/podnas/server/exports"
	"github.com/podnas/podnas/server/inode"
	"github.com/podnas/podnas/server/locate"
)

// The exporter counts what is in a volume, for as long as it is exported.
func TestExporterCounts(t *testing.T) {
	root := t.TempDir()
	mustDo(t, os.Mkdir(filepath.Join(root, "scratch"), 0o755))
	mustDo(t, os.WriteFile(filepath.Join(root, "scratch", "file"), bytes.Repeat([]byte("podnas  "), 64<<10/8), 0o600))
	v := volume.Volume{ID: 1, Name: "scratch", Path: "scratch", Size: 1 << 20}
	for _, counts := range []bool{true, false} {
		e := exporter{
			Table: &exports.Table{}, Root: root, Limits: quota.Choice{Server: counts},
			Engine: server.Choice{Engine: server.EngineNative}, Log: slog.New(slog.DiscardHandler),
		}
		mustDo(t, e.Export(v))
		deadline := time.Now().Add(10 * time.Second)
		for counts && e.Usage(v).Partial {
			if time.Now().After(deadline) {
				t.Fatalf("counted %+v, want all", e.Usage(v))
			}
			time.Sleep(time.Millisecond)
		}
		larger := v
		larger.Size, larger.Inodes = 2<<20, 2048
		e.SetLimit(larger)
		u := e.Usage(v)
		if counts && (u.Inodes != 2 || u.Bytes < 64<<10 || u.Limit != (quota.Limit{Bytes: 2 << 20, Inodes: 2048})) || !counts && u != (quota.Usage{}) {
			t.Errorf("counts=%v: %+v", counts, u)
		}
		e.Unexport(v)
		if u := e.Usage(v); u != (quota.Usage{}) {
			t.Errorf("not exported any more: %+v", u)
		}
	}
}

// Where the kernel keeps the sizes, the server keeps those of volumes that have no
// project: they were made before.
func TestExporterCountsBesideTheKernel(t *testing.T) {
	for _, tt := range []struct {
		name    string
		limits  quota.Choice
		project uint32
		counts  bool
	}{
		{"kernel, with a project", quota.Choice{Projects: &quota.Projects{}}, 1, false},
		{"kernel, without one", quota.Choice{Projects: &quota.Projects{}}, 0, true},
		{"server", quota.Choice{Server: true}, 0, true},
		{"server, with the project of a kernel that kept it once", quota.Choice{Server: true}, 1, true},
		{"nobody", quota.Choice{}, 0, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			e := exporter{
				Table: &exports.Table{}, Root: t.TempDir(), Limits: tt.limits,
				Engine: server.Choice{Engine: server.EngineNative}, Log: slog.New(slog.DiscardHandler),
			}
			v := volume.Volume{ID: 1, Name: "v", Path: ".", Size: 1 << 20, Project: tt.project}
			mustDo(t, e.Export(v))
			defer e.Unexport(v)
			if counts := e.Usage(v).Limit.Bytes == 1<<20; counts != tt.counts {
				t.Errorf("the server counts: %v, want %v", counts, tt.counts)
			}
		})
	}
}

// What the engine can't keep can never be made.
func TestExporterRefuses(t *testing.T) {
	e := exporter{Table: &exports.Table{}, Root: t.TempDir(), Engine: server.Choice{Engine: server.EngineGoNFS, Reason: "asked for"}}
	if err := e.Check(volume.Options{RootSquash: true}); !errors.Is(err, volume.ErrInvalid) {
		t.Errorf("root squash with go-nfs: %v, want ErrInvalid", err)
	}
	if err := e.Check(volume.Options{ReadOnly: true}); err != nil {
		t.Errorf("read only with go-nfs: %v", err)
	}
}

// A process that can act only as its own user makes no volume of other users; one that was made before
// is there, and refused to clients.
func TestExporterOfOneUser(t *testing.T) {
	choice := server.Choice{Engine: server.EngineNative, Rights: actas.Rights{Only: &actas.Only{UID: 1000, GID: 1000}}}
	e := exporter{Table: &exports.Table{Only: choice.Only()}, Root: t.TempDir(), Engine: choice, Log: slog.New(slog.DiscardHandler)}
	own := volume.Options{AllSquash: true, AnonUID: 1000, AnonGID: 1000}
	for _, o := range []volume.Options{{}, own} {
		if err := e.Check(o); err != nil {
			t.Errorf("%+v: %v", o, err)
		}
	}
	v := volume.Volume{ID: 1, Name: "v", Path: ".", Options: volume.Options{RootSquash: true}}
	if err := e.Check(v.Options); !errors.Is(err, volume.ErrInvalid) {
		t.Errorf("root squash: %v, want ErrInvalid", err)
	}
	mustDo(t, e.Export(v))
	defer e.Unexport(v)
	if served, ok := e.Table.ByID(1); !ok || served.Refused == nil {
		t.Error("root squash is served")
	}
}

// What is kept of files that were removed while they are open goes with the volume.
func TestUnexportForgetsRemoved(t *testing.T) {
	root := t.TempDir()
	if err := serverdisk.ProbeHandles(root); err != nil {
		t.Skipf("the native engine can't run here: %v", err)
	}
	kept := filepath.Join(root, "removed")
	mustDo(t, os.Mkdir(filepath.Join(root, "scratch"), 0o755))
	e := exporter{Table: &exports.Table{}, Root: root, Engine: server.Choice{Engine: server.EngineNative}, Log: slog.New(slog.DiscardHandler)}
	v := volume.Volume{ID: 1, Name: "scratch", Path: "scratch", Size: 1 << 20}
	mustDo(t, e.Export(v))
	o := inode.NewOpener(e.Table, locate.NewKey(make([]byte, 32)), e.Log)
	defer o.Close()
	mustDo(t, o.OpenOrphans(kept))
	served, _ := e.Table.ByID(1)
	dir, err := o.Open(netip.Addr{}, o.Root(served), inode.UseNames)
	mustDo(t, err)
	names := inode.LockNames(dir, dir)
	f, err := dir.Create(actas.AsProcess(), "file", 0o600, false)
	mustDo(t, err)
	h := f.Hold()
	f.Close()
	mustDo(t, dir.Remove(actas.AsProcess(), "file"))
	names.Unlock()
	dir.Close()
	for want := 1; want >= 0; want-- {
		entries, err := os.ReadDir(kept)
		mustDo(t, err)
		if len(entries) != want {
			t.Errorf("%d files are kept, want %d", len(entries), want)
		}
		e.Unexport(v)
	}
	h.Close()
}

// A volume whose handles only the index finds has one, whatever the process may do; one of a newer podnas is not served.
func TestExporterForms(t *testing.T) {
	e := exporter{Table: &exports.Table{}, Root: t.TempDir(), Engine: server.Choice{Engine: server.EngineNative}, Log: slog.New(slog.DiscardHandler)}
	v := volume.Volume{ID: 1, Name: "v", Path: ".", Handles: string(locate.FormInode)}
	mustDo(t, e.Export(v))
	defer e.Unexport(v)
	if served, ok := e.Table.ByID(1); !ok || !served.Files.IsByIndex() {
		t.Error("it has no index")
	}
	if err := e.Export(volume.Volume{ID: 2, Name: "w", Path: ".", Handles: "newer"}); err == nil {
		t.Error("a volume of an unknown form is served")
	}
}

func mustDo(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

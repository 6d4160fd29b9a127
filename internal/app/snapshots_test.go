package app

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/podnas/podnas/internal/volume"
	"github.com/podnas/podnas/server"
	"github.com/podnas/podnas/server/exports"
	"github.com/podnas/podnas/test/testdisk"
)

// Snapshots of an exported volume, on disks that can share blocks, and the reason on the others.
func TestSnapshots(t *testing.T) {
	testdisk.Each(t, func(t *testing.T, root string) {
		table := &exports.Table{Log: slog.New(slog.DiscardHandler)}
		e := exporter{Table: table, Root: root, Engine: server.Choice{Engine: server.EngineNative}, Log: slog.New(slog.DiscardHandler)}
		store, err := volume.Open(volume.Config{Root: root, Exports: e, Snapshots: e, Log: slog.New(slog.DiscardHandler)})
		mustDo(t, err)
		defer func() {
			mustDo(t, store.Close())
			for _, v := range table.Volumes() {
				table.Remove(v.ID)
			}
		}()
		v, err := store.Create(t.Context(), volume.Spec{Name: "v", Size: 1 << 20})
		mustDo(t, err)
		mustDo(t, os.Mkdir(filepath.Join(root, "v", "folder"), 0o700))
		mustDo(t, os.WriteFile(filepath.Join(root, "v", "folder", "file"), []byte("before"), 0o640))
		taken, err := store.CreateSnapshot(t.Context(), "v", "a")
		can := strings.HasSuffix(t.Name(), "XFS") || strings.HasSuffix(t.Name(), "btrfs")
		if err != nil {
			if can || !errors.Is(err, volume.ErrUnsupported) || !strings.Contains(err.Error(), "--disk-image") {
				t.Error(err)
			}
			return
		}
		if taken.Files != 2 || taken.Created.IsZero() {
			t.Errorf("%+v", taken)
		}
		mustDo(t, os.WriteFile(filepath.Join(root, "v", "folder", "file"), []byte("after"), 0o640))
		if data, err := os.ReadFile(filepath.Join(root, taken.Directory(), "folder", "file")); string(data) != "before" {
			t.Errorf("%q, %v", data, err)
		}
		if served, ok := table.ByID(v.ID); !ok || served.Shown() == nil {
			t.Error("clients don't see it")
		}
		if f, err := store.Check(); err != nil || len(f) > 0 {
			t.Errorf("findings: %v, %v", f, err)
		}
		mustDo(t, store.DeleteSnapshot(t.Context(), "v", "a"))
		mustDo(t, store.Delete(t.Context(), "v"))
	})
}

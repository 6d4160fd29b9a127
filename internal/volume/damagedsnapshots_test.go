package volume

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// What can't be right is neither used nor removed, and is found.
func TestDamagedSnapshots(t *testing.T) {
	edit := func(change func(map[string]any)) func(t *testing.T, record, tree string) {
		return func(t *testing.T, record, _ string) {
			t.Helper()
			data, err := os.ReadFile(record)
			mustDo(t, err)
			fields := map[string]any{}
			mustDo(t, json.Unmarshal(data, &fields))
			change(fields)
			data, err = json.Marshal(fields)
			mustDo(t, err)
			mustDo(t, os.WriteFile(record, data, 0o600))
		}
	}
	for _, tt := range []struct {
		name   string
		damage func(t *testing.T, record, tree string)
		// left is whether the snapshot is used, and finding what is said of it, if anything is.
		left    bool
		finding string
	}{
		{"nothing", func(*testing.T, string, string) {}, true, ""},
		{"a new field", edit(func(f map[string]any) { delete(f, "checksum"); f["later"] = 1 }), true, ""},
		{"a wrong checksum", edit(func(f map[string]any) { f["files"] = 7 }), false, "checksum"},
		{"another disk", edit(func(f map[string]any) { delete(f, "checksum"); f["disk"] = "another" }), false, "another"},
		{"another volume", edit(func(f map[string]any) { delete(f, "checksum"); f["volumeId"] = "1" }), false, "in the file of another"},
		{"a name that leads out", edit(func(f map[string]any) { delete(f, "checksum"); f["name"] = "../../volumes" }), false, "invalid name"},
		{"no size", edit(func(f map[string]any) { delete(f, "checksum"); f["size"] = 0 }), false, "size"},
		{"no JSON", func(t *testing.T, record, _ string) {
			t.Helper()
			mustDo(t, os.WriteFile(record, []byte("{"), 0o600))
		}, false, "damaged"},
		{"no record", func(t *testing.T, record, _ string) {
			t.Helper()
			mustDo(t, os.Remove(record))
		}, false, "without a record"},
		{"another name of the tree", func(t *testing.T, _, tree string) {
			t.Helper()
			mustDo(t, os.Rename(tree, tree+"-moved"))
		}, false, "without a record"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			root := t.TempDir()
			s, _ := openWith(t, root)
			mustCreate(t, s, "v")
			writeInto(t, root, "v")
			a := mustSnapshot(t, s, "v", "a")
			mustDo(t, s.Close())
			record, files := filepath.Join(root, a.file()), filepath.Join(root, a.tree())
			tt.damage(t, record, files)
			for range 2 { // the second start finds what the first has left
				s, _ = openWith(t, root)
				_, err := s.GetSnapshot("v", "a")
				if (err == nil) != tt.left {
					t.Errorf("get: %v", err)
				}
				f, err := s.Check()
				if err != nil || (len(f) > 0) != (tt.finding != "") || len(f) > 0 && !strings.Contains(f[0].String(), tt.finding) {
					t.Errorf("findings: %v, %v", f, err)
				}
				if _, err := os.Lstat(files); err == nil && !tt.left {
					if _, err := s.CreateSnapshot(t.Context(), "v", "a"); !errors.Is(err, ErrExists) {
						t.Errorf("another of its name: %v", err)
					}
					if err := s.DeleteSnapshot(t.Context(), "v", "a"); err == nil {
						t.Error("it is deleted")
					}
				}
				mustDo(t, s.Close())
			}
			left, err := filepath.Glob(files + "*")
			if err != nil || len(left) != 1 {
				t.Fatalf("its files: %v, %v", left, err)
			}
			isKept(t, left[0])
		})
	}
}

func FuzzSnapshotRecord(f *testing.F) {
	good, err := json.Marshal(snapshotRecord{Disk: "d", Snapshot: Snapshot{Name: "a", Volume: "v", VolumeID: 1, Size: 1, Created: time.Unix(1, 0).UTC()}})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	f.Add([]byte("{}"))
	f.Add([]byte(`{"name":"../x","volumeId":"2","size":-1}`))
	s := &Store{instance: instance{Identity: "d"}}
	f.Fuzz(func(t *testing.T, data []byte) {
		r := &snapshotRecord{}
		if json.Unmarshal(data, r) != nil || s.checkSnapshot(r, r.file()) != nil {
			return
		}
		if filepath.Dir(r.tree()) != filepath.Join(snapshotsOf(r.VolumeID), snapshotReady) || r.Size <= 0 {
			t.Errorf("%q leads to %s", data, r.tree())
		}
		again := &snapshotRecord{}
		out, err := json.Marshal(r)
		if err != nil || json.Unmarshal(out, again) != nil || again.Name != r.Name {
			t.Errorf("%q is written as %q, %v", data, out, err)
		}
	})
}

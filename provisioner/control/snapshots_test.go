package control

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/podnas/podnas/internal/volume"
	"github.com/podnas/podnas/provisioner/internal/fixture"
)

// awaited returns a snapshot when it is complete, or could not be taken.
func awaited(t *testing.T, c *Client, of, name string) (Snapshot, error) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		s, err := c.GetSnapshot(t.Context(), of, name)
		if err != nil || s.State == SnapshotReady {
			return s, err
		}
		if time.Now().After(deadline) {
			t.Fatalf("snapshot %s of %s is not complete: %+v", name, of, s)
		}
	}
}

func TestLifeOfASnapshot(t *testing.T) {
	root := t.TempDir()
	hold := make(chan struct{})
	c, _ := startWith(t, root, fixture.Snapshots{Root: root, Hold: hold})
	_, err := c.Create(t.Context(), CreateRequest{Name: "v", Size: 1 << 20})
	mustDo(t, err)
	mustDo(t, os.WriteFile(filepath.Join(root, "v", "data"), []byte("before"), 0o600))
	if list, err := c.Snapshots(t.Context(), ""); err != nil || list == nil || len(list) != 0 {
		t.Errorf("at first: %v, %v", list, err)
	}
	begun, err := c.CreateSnapshot(t.Context(), "v", "")
	if err != nil || begun.State != SnapshotTaking || begun.Began == nil || begun.Name == "" {
		t.Fatalf("%+v, %v", begun, err)
	}
	list, err := c.Snapshots(t.Context(), "v")
	if err != nil || len(list) != 1 || list[0].State != SnapshotTaking || list[0].Name != begun.Name {
		t.Errorf("under way: %+v, %v", list, err)
	}
	_, err = c.CreateSnapshot(t.Context(), "v", "another")
	wantCode(t, err, Busy, begun.Name)
	close(hold)
	taken, err := awaited(t, c, "v", begun.Name)
	if err != nil || taken.Files != 1 || taken.Created.IsZero() || taken.VolumeDeleted {
		t.Errorf("%+v, %v", taken, err)
	}
	_, err = c.CreateSnapshot(t.Context(), "v", begun.Name)
	wantCode(t, err, Exists, begun.Name)
	if v, err := c.Get(t.Context(), "v"); err != nil || v.Snapshots != 1 {
		t.Errorf("the volume: %+v, %v", v, err)
	}
	if all, err := c.List(t.Context(), false); err != nil || len(all) != 1 || all[0].Snapshots != 1 {
		t.Errorf("the volumes: %+v, %v", all, err)
	}

	copied := CreateRequest{Name: "copy", Size: 1 << 20, Source: "v", SourceSnapshot: begun.Name}
	_, err = c.Create(t.Context(), copied)
	wantCode(t, err, Copying, "snapshot "+begun.Name+" of volume v is being copied")
	for deadline := time.Now().Add(30 * time.Second); err != nil; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal(err)
		}
		_, err = c.Create(t.Context(), copied)
	}
	if data, err := os.ReadFile(filepath.Join(root, "copy", "data")); string(data) != "before" {
		t.Errorf("copied: %q, %v", data, err)
	}

	mustDo(t, c.Delete(t.Context(), "v", false))
	if s, err := c.GetSnapshot(t.Context(), "v", begun.Name); err != nil || !s.VolumeDeleted {
		t.Errorf("of a deleted volume: %+v, %v", s, err)
	}
	mustDo(t, c.DeleteSnapshot(t.Context(), "v", begun.Name))
	if list, err := c.Snapshots(t.Context(), ""); err != nil || len(list) != 0 {
		t.Errorf("at last: %v, %v", list, err)
	}
}

func TestSnapshotErrors(t *testing.T) {
	root := t.TempDir()
	hold := make(chan struct{})
	c, _ := startWith(t, root, fixture.Snapshots{Root: root, Hold: hold})
	_, err := c.Create(t.Context(), CreateRequest{Name: "v", Size: 1 << 20})
	mustDo(t, err)
	_, err = c.CreateSnapshot(t.Context(), "none", "a")
	wantCode(t, err, NotFound, "none")
	for _, name := range []string{"..", "a/b", "A", strings.Repeat("a", 300)} {
		_, err = c.CreateSnapshot(t.Context(), "v", name)
		wantCode(t, err, Invalid, "invalid name of a snapshot")
	}
	_, err = c.GetSnapshot(t.Context(), "v", "a")
	wantCode(t, err, NotFound, "no such snapshot")
	wantCode(t, c.DeleteSnapshot(t.Context(), "v", "a"), NotFound, "no such snapshot")
	_, err = c.Snapshots(t.Context(), "none")
	wantCode(t, err, NotFound, "none")
	_, err = c.Create(t.Context(), CreateRequest{Name: "copy", Size: 1 << 20, Source: "v", SourceSnapshot: "a"})
	wantCode(t, err, NotFound, "no such snapshot")

	// Given up, it says so once to who waits.
	_, err = c.CreateSnapshot(t.Context(), "v", "a")
	mustDo(t, err)
	mustDo(t, c.DeleteSnapshot(t.Context(), "v", "a"))
	_, err = awaited(t, c, "v", "a")
	wantCode(t, err, NotFound, "deleted while it was being taken")
	_, err = c.GetSnapshot(t.Context(), "v", "a")
	wantCode(t, err, NotFound, "snapshot a of volume v: no such snapshot")
	// Until then its volume stays.
	_, err = c.CreateSnapshot(t.Context(), "v", "b")
	mustDo(t, err)
	wantCode(t, c.Delete(t.Context(), "v", false), Busy, "the snapshot b of v is being taken")
	mustDo(t, c.DeleteSnapshot(t.Context(), "v", "b"))
	mustDo(t, c.Delete(t.Context(), "v", false))

	without, _, _ := start(t)
	_, err = without.Create(t.Context(), CreateRequest{Name: "v", Size: 1 << 20})
	mustDo(t, err)
	_, err = without.CreateSnapshot(t.Context(), "v", "a")
	wantCode(t, err, Invalid, "there can be no snapshots")
}

func TestSchedule(t *testing.T) {
	root := t.TempDir()
	c, _ := startWith(t, root, fixture.Snapshots{Root: root})
	_, err := c.Create(t.Context(), CreateRequest{Name: "v", Size: 1 << 20, Parameters: map[string]string{"snapshots": "weekly=3"}})
	mustDo(t, err)
	v, err := c.Get(t.Context(), "v")
	if want := (volume.Schedule{Weekly: 3}); err != nil || v.Schedule != want || v.Scheduled == nil || v.Scheduled.Next.IsZero() || !v.Scheduled.Last.IsZero() {
		t.Errorf("%+v, %v", v, err)
	}
	v, err = c.SetSchedule(t.Context(), "v", volume.Schedule{Yearly: 1})
	if want := (volume.Schedule{Yearly: 1}); err != nil || v.Schedule != want {
		t.Errorf("changed: %+v, %v", v, err)
	}
	_, err = c.SetSchedule(t.Context(), "v", volume.Schedule{Yearly: -1})
	wantCode(t, err, Invalid, "-1 yearly snapshots")
	_, err = c.SetSchedule(t.Context(), "none", volume.Schedule{})
	wantCode(t, err, NotFound, "none")
	_, err = c.SetSchedule(t.Context(), "v", volume.Schedule{})
	mustDo(t, err)
	if v, err := c.Get(t.Context(), "v"); err != nil || v.Scheduled != nil || !v.Schedule.IsZero() {
		t.Errorf("without one: %+v, %v", v, err)
	}
	without, _, _ := start(t)
	_, err = without.Create(t.Context(), CreateRequest{Name: "v", Size: 1 << 20, Parameters: map[string]string{"snapshots": "weekly=3"}})
	wantCode(t, err, Invalid, "there can be no snapshots")
}

// A record in JSON has what a person and a script need, in one form.
func TestSnapshotJSON(t *testing.T) {
	at := time.Date(2026, 11, 28, 17, 45, 0, 0, time.UTC)
	s := Snapshot{Snapshot: volume.Snapshot{Name: "a", Volume: "v", VolumeID: 7, Created: at, Size: 1, VolumeDeleted: true}, State: SnapshotReady, VolumeDeleted: true}
	encoded, err := json.Marshal(s)
	mustDo(t, err)
	data := string(encoded)
	for _, want := range []string{`"name":"a"`, `"volume":"v"`, `"volumeId":"7"`, `"created":"2026-11-28T17:45:00Z"`, `"state":"ready"`, `"volumeDeleted":true`} {
		if !strings.Contains(data, want) {
			t.Errorf("%s has no %s", data, want)
		}
	}
	if strings.Contains(data, "completed") || strings.Contains(data, "began") {
		t.Errorf("%s has times that are not known", data)
	}
}

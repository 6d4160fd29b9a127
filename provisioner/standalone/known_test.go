package standalone

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/podnas/podnas/provisioner"
)

// A directory that was a claim's, but has neither a record nor a PersistentVolume, may be that of any claim: none gets a
// new volume until a person has looked.
func TestRecordAndPersistentVolumeGone(t *testing.T) {
	b := newBench(t)
	b.write("data.yaml", claimYAML("data", "", "1Mi"))
	b.scans(1)
	before := b.pvs()["data"].Name
	b.removeAll(b.record(before))
	b.removeAll(filepath.Join(b.Claims, provisionedDir))
	b.restart()
	b.scans(3)
	log := b.logs.String()
	if volumes := b.store.List(); len(volumes) > 0 || strings.Count(log, "podnas volume adopt "+before) != 1 {
		t.Errorf("made %v; log:\n%s", volumes, log)
	}
	if err := os.Rename(filepath.Join(b.Root, before), filepath.Join(b.Root, "looked-at")); err != nil {
		t.Fatal(err)
	}
	b.scans(2)
	if pv := b.pvs()["data"]; pv == nil || pv.Name == before {
		t.Errorf("moved away: %v; log:\n%s", pv, &b.logs)
	}
}

// A claim whose volume is known never gets another one, whatever became of the volume.
func TestKnownVolume(t *testing.T) {
	for _, tt := range []struct {
		name   string
		change func(b *bench, volume string)
		want   string // in the log
	}{
		{"a truncated record", func(b *bench, volume string) { b.truncate(b.record(volume)) }, "record is damaged"},
		{"a truncated record, and no PersistentVolume", func(b *bench, volume string) {
			b.truncate(b.record(volume))
			b.removeAll(filepath.Join(b.Claims, provisionedDir))
		}, "may belong to this claim"},
		{"no record", func(b *bench, volume string) { b.removeAll(b.record(volume)) }, "has no record"},
		{"another disk", func(b *bench, _ string) { b.Root = b.t.TempDir() }, "mount the right disk"},
		{"an empty disk", func(b *bench, _ string) { b.removeAll(filepath.Join(b.Root, ".podnas")) }, "mount the right disk"},
		{"a PersistentVolume of another disk", func(b *bench, volume string) {
			b.removeAll(b.record(volume))
			pv := b.pvs()["data"]
			pv.Annotations[provisioner.InstanceAnnotation] = "another"
			if err := b.writePV(pv); err != nil {
				b.t.Fatal(err)
			}
		}, "is on the disk another"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := newBench(t)
			b.write("data.yaml", claimYAML("data", "", "1Mi"))
			b.scans(1)
			before := b.pvs()["data"]
			tt.change(b, before.Name)
			b.restart()
			b.scans(4)
			if volumes := b.store.List(); len(volumes) > 0 {
				t.Errorf("made %v", volumes)
			}
			log := b.logs.String()
			if strings.Count(log, `level=ERROR msg="standalone: claim`) != 1 || !strings.Contains(log, tt.want) || !strings.Contains(log, before.Name) {
				t.Errorf("%q is not told once:\n%s", tt.want, log)
			}
			// One that has no volume yet is served, unless it can't be known that it has none.
			b.write("new.yaml", claimYAML("new", "", "1Mi"))
			b.scans(1)
			if made := len(b.store.List()); made != 1 && !strings.Contains(tt.want, "may be") {
				t.Errorf("a new claim: %d volumes; log:\n%s", made, &b.logs)
			}
			// To begin anew takes a word from a person.
			b.removeAll(filepath.Join(b.Claims, provisionedDir))
			b.removeAll(b.record(before.Name))
			b.scans(2)
			if pv := b.pvs()["data"]; pv == nil || pv.Name == before.Name {
				t.Errorf("anew: %v; log:\n%s", pv, &b.logs)
			}
		})
	}
}

func (b *bench) record(volume string) string {
	return filepath.Join(b.Root, ".podnas", "volumes", volume+".json")
}

func (b *bench) truncate(name string) {
	b.t.Helper()
	if err := os.Truncate(name, 20); err != nil {
		b.t.Fatal(err)
	}
}

func (b *bench) removeAll(name string) {
	b.t.Helper()
	if err := os.RemoveAll(name); err != nil {
		b.t.Fatal(err)
	}
}

func TestNewDisk(t *testing.T) {
	b := newBench(t)
	b.write("data.yaml", claimYAML("data", "", "1Mi"))
	b.scans(1)
	before := b.pvs()["data"].Name
	if err := CheckDisk(b.Claims, b.Root); err != nil {
		t.Errorf("the right disk: %v", err)
	}
	empty := t.TempDir()
	err := CheckDisk(b.Claims, empty)
	if err == nil || !strings.Contains(err.Error(), "is empty") || !strings.Contains(err.Error(), before) || !strings.Contains(err.Error(), "--new-disk") {
		t.Errorf("an empty disk: %v", err)
	}
	if entries, err := os.ReadDir(empty); len(entries) > 0 {
		t.Errorf("made there: %v, %v", entries, err)
	}
	if err := CheckDisk(b.Claims, filepath.Join(empty, "missing")); err == nil || !strings.Contains(err.Error(), "does not exist") {
		t.Errorf("no disk: %v", err)
	}
	if err := CheckDisk(t.TempDir(), empty); err != nil {
		t.Errorf("claims that have no volume yet: %v", err)
	}

	b.Root = empty
	b.restart()
	b.NewDisk = true
	b.scans(2)
	if volumes := b.store.List(); len(volumes) != 1 || volumes[0].Name == before {
		t.Errorf("with --new-disk: %v; log:\n%s", volumes, &b.logs)
	}
}

// Of two volumes with one claim the older is the claim's, and the other is told.
func TestTwoVolumesOfAClaim(t *testing.T) {
	b := newBench(t)
	b.write("data.yaml", claimYAML("data", "", "1Mi"))
	b.scans(1)
	first := b.pvs()["data"].Name
	data, err := os.ReadFile(b.record(first))
	if err != nil {
		t.Fatal(err)
	}
	// Its name comes first, and it is younger.
	second := "a" + first
	changed := regexp.MustCompile(`"id": "\d+"`).ReplaceAllString(strings.NewReplacer(first, second, `"created": "2`, `"created": "3`).Replace(string(data)), `"id": "7"`)
	changed = regexp.MustCompile(`"checksum": ".*",`).ReplaceAllString(changed, "")
	if err := os.WriteFile(b.record(second), []byte(changed), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(b.Root, second), 0o700); err != nil {
		t.Fatal(err)
	}
	b.restart()
	b.scans(3)
	if n := len(b.store.List()); n != 2 {
		t.Fatalf("%d volumes; log:\n%s", n, &b.logs)
	}
	if pv := b.pvs()["data"]; pv.Name != first {
		t.Errorf("the claim has %s, not %s", pv.Name, first)
	}
	if n := strings.Count(b.logs.String(), "second volume "+second); n != 1 {
		t.Errorf("told %d times:\n%s", n, &b.logs)
	}
}

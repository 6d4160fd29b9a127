package standalone

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/podnas/podnas/internal/volume"
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
		{"an empty disk", func(b *bench, _ string) { // moved, as the reserve may be being filled
			if err := os.Rename(filepath.Join(b.Root, ".podnas"), filepath.Join(b.t.TempDir(), "before")); err != nil {
				b.t.Fatal(err)
			}
		}, "mount the right disk"},
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
			t.Parallel()
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

// A damaged file in provisioned/ is put aside and written again, and everything else goes on. If
// the disk does not have its record, no claim gets a new volume, as it may be that of the lost one.
func TestDamagedPersistentVolume(t *testing.T) {
	for _, tt := range []struct {
		name   string
		damage func(b *bench, file string)
	}{
		{"empty", func(b *bench, file string) { b.write(file, "") }},
		{"cut", func(b *bench, file string) { b.truncate(filepath.Join(b.Claims, file)) }},
		{"zeroed", func(b *bench, file string) { b.write(file, strings.Repeat("\x00", 500)) }},
		{"another's", func(b *bench, file string) { b.write(file, "kind: Pod") }},
		{"a folder", func(b *bench, file string) { b.remove(file); b.mkdir(file) }},
		{"a fifo", func(b *bench, file string) { b.remove(file); b.fifo(file) }},
		{"a link to nothing", func(b *bench, file string) { b.remove(file); b.link("nothing", file) }},
		{"without an end", func(b *bench, file string) { b.write(file, strings.Repeat("#", fileMax+1)) }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			for _, recordThere := range []bool{true, false} {
				b := newBench(t)
				b.write("class.yaml", deleting)
				b.write("data.yaml", object("data", "1Mi"))
				b.scans(1)
				before := b.fill("data")
				file := filepath.Join(provisionedDir, before["data"]+".yaml")
				tt.damage(b, file)
				if !recordThere {
					b.removeAll(b.record(before["data"]))
				}
				if err := CheckDisk(b.Claims, b.Root); err != nil {
					t.Errorf("at the start: %v", err)
				}
				b.restart()
				b.write("new.yaml", object("new", "1Mi"))
				b.scans(3)
				if data, err := os.ReadFile(filepath.Join(b.Root, before["data"], "file")); string(data) != "data" {
					t.Errorf("the file has %q, %v", data, err)
				}
				if !recordThere {
					if n := len(b.store.List()); n > 0 || !strings.Contains(b.logs.String(), "PersistentVolume "+before["data"]+" has a problem") || !strings.Contains(b.logs.String(), "may be of this claim") {
						t.Errorf("%d volumes; log:\n%s", n, &b.logs)
					}
					b.removeAll(filepath.Join(b.Claims, file)) // a person has decided
					b.removeAll(filepath.Join(b.Root, before["data"]))
					b.scans(2)
					if n := len(b.pvs()); n != 2 || b.pvs()["data"].Name == before["data"] {
						t.Errorf("%d PersistentVolumes after that; log:\n%s", n, &b.logs)
					}
					continue
				}
				before["new"] = b.fill("new")["new"]
				b.checkFilled(before)
				if n := strings.Count(b.logs.String(), "is put aside"); n != 1 {
					t.Errorf("told %d times; log:\n%s", n, &b.logs)
				}
				if _, err := os.Lstat(filepath.Join(b.Claims, file+".damaged-1")); err != nil {
					t.Error(err)
				}
			}
		})
	}
}

// A PersistentVolume that names another claim than the record deletes nothing, and is written again.
func TestPersistentVolumeOfAnotherClaim(t *testing.T) {
	b := newBench(t)
	b.write("class.yaml", deleting)
	b.write("data.yaml", object("data", "1Mi"))
	b.scans(1)
	before := b.fill("data")
	file := filepath.Join(provisionedDir, before["data"]+".yaml")
	text, err := os.ReadFile(filepath.Join(b.Claims, file))
	if err != nil {
		t.Fatal(err)
	}
	b.write(file, strings.Replace(string(text), "name: data", "name: dbta", 1))
	if b.pvs()["dbta"] == nil {
		t.Fatalf("nothing was changed:\n%s", text)
	}
	b.scans(5)
	b.checkFilled(before)
	b.remove("data.yaml") // now nobody knows whose it is
	b.write("other.yaml", object("other", "1Mi"))
	b.write(file, strings.Replace(string(text), "name: data", "name: dbta", 1))
	b.scans(5)
	if contents, err := os.ReadFile(filepath.Join(b.Root, before["data"], "file")); string(contents) != "data" || !strings.Contains(b.logs.String(), "so it is not deleted") {
		t.Errorf("%q, %v; log:\n%s", contents, err, &b.logs)
	}
}

// provisioned may be a link to a folder that a person has made. One that leads nowhere stops the scans.
func TestLinkedProvisioned(t *testing.T) {
	b := newBench(t)
	elsewhere := filepath.Join(t.TempDir(), "provisioned")
	if err := os.Mkdir(elsewhere, 0o755); err != nil {
		t.Fatal(err)
	}
	b.link(elsewhere, provisionedDir)
	b.write("class.yaml", deleting)
	b.write("data.yaml", object("data", "1Mi"))
	b.scans(1)
	before := b.fill("data")
	b.restart()
	b.scans(2)
	b.checkFilled(before)
	if err := os.Rename(elsewhere, elsewhere+".away"); err != nil {
		t.Fatal(err)
	}
	b.write("new.yaml", object("new", "1Mi"))
	b.scans(2)
	if n := len(b.store.List()); n != 1 || !strings.Contains(b.logs.String(), "is a link that leads to no folder") {
		t.Errorf("%d volumes; log:\n%s", n, &b.logs)
	}
}

// A claim whose volume was deleted by command, and archived, says how to bring it back, and has it
// again when that is done.
func TestAdoptedByCommand(t *testing.T) {
	b := newBench(t)
	b.write("data.yaml", claimYAML("data", "", "1Mi"))
	b.scans(1)
	before := b.fill("data")
	b.delete(before["data"])
	b.scans(2)
	if n := strings.Count(b.logs.String(), "podnas volume adopt "+before["data"]); n != 1 || len(b.store.List()) != 0 {
		t.Fatalf("told %d times; log:\n%s", n, &b.logs)
	}
	if _, err := b.store.Adopt(t.Context(), volume.Spec{Name: before["data"]}); err != nil {
		t.Fatal(err)
	}
	// While whose volume it is can't be read, nobody gets another one.
	file := filepath.Join(b.Claims, provisionedDir, before["data"]+".yaml")
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	b.truncate(file)
	b.scans(2)
	if n := len(b.store.List()); n != 1 {
		t.Errorf("%d volumes; log:\n%s", n, &b.logs)
	}
	b.write(filepath.Join(provisionedDir, filepath.Base(file)), string(text))
	b.scans(2)
	b.checkFilled(before)
	if v, err := b.store.Get(before["data"]); err != nil || v.Claim == nil || v.Claim.Name != "data" {
		t.Errorf("%+v, %v; log:\n%s", v, err, &b.logs)
	}
	b.remove("data.yaml") // it goes with its claim again
	b.scans(3)
	b.checkFilled(map[string]string{})
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
	unreadable := t.TempDir()
	if err := os.WriteFile(filepath.Join(unreadable, provisionedDir), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := CheckDisk(unreadable, empty); err == nil || !strings.Contains(err.Error(), "is unknown") {
		t.Errorf("an empty disk, and no folder of PersistentVolumes: %v", err)
	}
	if err := CheckDisk(unreadable, b.Root); err != nil {
		t.Errorf("the right disk, and no folder of PersistentVolumes: %v", err)
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

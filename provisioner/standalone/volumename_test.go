package standalone

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/podnas/podnas/internal/volume"
	"github.com/podnas/podnas/provisioner"
)

// edit replaces text in the record of a volume. It takes effect at the next start.
func (b *bench) edit(volume, old, with string) {
	b.t.Helper()
	data, err := os.ReadFile(b.record(volume))
	if err != nil || !strings.Contains(string(data), old) {
		b.t.Fatalf("record %s, %v", data, err)
	}
	if err := os.WriteFile(b.record(volume), []byte(strings.Replace(string(data), old, with, 1)), 0o600); err != nil {
		b.t.Fatal(err)
	}
}

// make makes a volume by hand, with a file in it.
func (b *bench) make(name string, size int64, onDelete volume.OnDelete) {
	b.t.Helper()
	if _, err := b.store.Create(b.t.Context(), volume.Spec{Name: name, Size: size, OnDelete: onDelete}); err != nil {
		b.t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(b.Root, name, "file"), []byte("data"), 0o600); err != nil {
		b.t.Fatal(err)
	}
}

func (b *bench) delete(name string) {
	b.t.Helper()
	if err := b.store.Delete(b.t.Context(), name); err != nil {
		b.t.Fatal(err)
	}
}

// A volumeName means that very volume: the claim gets its files, or nothing and a reason.
func TestVolumeName(t *testing.T) {
	for _, tt := range []struct {
		name    string
		prepare func(b *bench)
		spec    string // of the claim, which requests 1Mi, besides volumeName: old
		size    string // of its PersistentVolume, if it gets old
		want    string // else the problem; "": it is passed over
	}{
		{"made by hand", func(b *bench) { b.make("old", 1<<20, "") }, "", "1Mi", ""},
		{"made by hand, of a class", func(b *bench) { b.make("old", 1<<20, "") }, "storageClassName: keep", "1Mi", ""},
		{"made by hand, of no class, as a static volume", func(b *bench) { b.make("old", 1<<20, "") }, `storageClassName: ""`, "1Mi", ""},
		{"made by hand, of a class that is not there", func(b *bench) { b.make("old", 1<<20, "") }, "storageClassName: none", "1Mi", ""},
		{"a class of another provisioner", func(b *bench) { b.make("old", 1<<20, "") }, "storageClassName: foreign", "", ""},
		{"archived", func(b *bench) { b.make("old", 1<<20, volume.ArchiveFiles); b.delete("old") }, "", "1Mi", ""},
		{"retained", func(b *bench) { b.make("old", 1<<20, volume.RetainFiles); b.delete("old") }, "", "1Mi", ""},
		{"archived, of no class", func(b *bench) { b.make("old", 1<<20, volume.ArchiveFiles); b.delete("old") }, `storageClassName: ""`, "1Mi", ""},
		{"archived twice: the later one", func(b *bench) {
			b.make("old", 1<<20, volume.ArchiveFiles)
			if err := os.WriteFile(filepath.Join(b.Root, "old", "file"), []byte("first"), 0o600); err != nil {
				b.t.Fatal(err)
			}
			b.delete("old")
			b.make("old", 1<<20, volume.ArchiveFiles)
			b.delete("old")
		}, "", "1Mi", ""},
		{"archived, and another volume has its path", func(b *bench) {
			b.make("old", 1<<20, volume.ArchiveFiles)
			b.delete("old")
			if _, err := b.store.Create(b.t.Context(), volume.Spec{Name: "other", Path: "old", Size: 1 << 20}); err != nil {
				b.t.Fatal(err)
			}
		}, "", "", "take the volume old: path old: already exists"},
		{"deleted", func(b *bench) { b.make("old", 1<<20, ""); b.delete("old") }, "", "", "there is no volume of that name"},
		{"larger than the request", func(b *bench) { b.make("old", 3<<20, "") }, "", "3Mi", ""},
		{"smaller than the request, and it may grow", func(b *bench) { b.make("old", 1000, "") }, "", "1Mi", ""},
		{"smaller than the request, and it may not grow", func(b *bench) { b.make("old", 1000, "") }, "storageClassName: keep", "", "volume old has 1000, and 1Mi is requested"},
		{"archived and smaller, and it may not grow", func(b *bench) { b.make("old", 1000, volume.ArchiveFiles); b.delete("old") }, "storageClassName: keep", "", "volume old has 1000, and 1Mi is requested"},
		{"none", func(*bench) {}, "", "", "its volumeName is old, and on the disk at"},
		{"none, and the class is of another provisioner", func(*bench) {}, "storageClassName: foreign", "", ""},
		{"none, of no class", func(*bench) {}, `storageClassName: ""`, "", "there is no volume of that name"},
		{"a directory alone", func(b *bench) {
			if err := os.Mkdir(filepath.Join(b.Root, "old"), 0o700); err != nil {
				b.t.Fatal(err)
			}
		}, "", "", "podnas volume adopt old"},
		{"another claim's", func(b *bench) {
			b.make("old", 1<<20, "")
			if _, err := b.store.Claim(b.t.Context(), "old", &volume.Claim{Namespace: "a", Name: "b", UID: "1"}); err != nil {
				b.t.Fatal(err)
			}
		}, "", "", "that volume is the claim a/b's"},
		{"its record is damaged", func(b *bench) { b.make("old", 1<<20, ""); b.truncate(b.record("old")); b.restart() }, "", "", "old.json is damaged"},
		{"on another disk", func(b *bench) { b.foreign("old") }, "", "", "that volume is on the disk elsewhere"},
		{"a block volume", func(b *bench) { b.make("old", 1<<20, "") }, "volumeMode: Block", "", "volumeMode: Filesystem"},
		{"a selector", func(b *bench) { b.make("old", 1<<20, "") }, "selector: {}", "", "selector"},
		{"it was copied once", func(b *bench) { b.make("old", 1<<20, "") }, "dataSource: {kind: PersistentVolumeClaim, name: source}", "1Mi", ""},
		{"the name is a path", func(*bench) {}, "", "", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			tt.prepare(b)
			name := "old"
			if tt.name == "the name is a path" {
				name, tt.want = "../old", "there is no volume of that name"
			}
			volumes := len(b.store.List())
			b.write("data.yaml", claimYAML("data", tt.spec+"\n  volumeName: "+name, "1Mi"))
			b.scans(3)
			if tt.size == "" {
				if pv := b.pvs()["data"]; pv != nil || len(b.store.List()) != volumes {
					t.Errorf("made %v", pv)
				}
				log := b.logs.String()
				if n := strings.Count(log, "claim default/data has a problem"); tt.want == "" && n > 0 || tt.want != "" && (n != 1 || !strings.Contains(log, tt.want)) {
					t.Errorf("told %d times, want %q; log:\n%s", n, tt.want, log)
				}
				return
			}
			check := func(when string) {
				t.Helper()
				pv := b.pvs()["data"]
				if pv == nil || pv.Name != "old" || pv.Spec.Capacity.Storage().String() != tt.size || pv.Spec.ClaimRef.Name != "data" {
					t.Fatalf("%s: %+v; log:\n%s", when, pv, &b.logs)
				}
				if data, err := os.ReadFile(filepath.Join(b.Root, "old", "file")); string(data) != "data" {
					t.Errorf("%s: the file has %q, %v", when, data, err)
				}
				if v, err := b.store.Get("old"); err != nil || v.Claim == nil || v.Claim.Name != "data" {
					t.Errorf("%s: %+v, %v", when, v, err)
				}
				if n := len(b.store.List()); n != 1 {
					t.Errorf("%s: %d volumes", when, n)
				}
				b.checkGiven("", true)
			}
			check("taken")
			if n := strings.Count(b.out.String(), "\nvolume old\n"); n != 1 {
				t.Errorf("printed %d times:\n%s", n, &b.out)
			}
			b.restart()
			b.scans(2)
			check("after a restart")
			b.write("data.yaml", claimYAML("data", tt.spec, tt.size)) // it is not needed any more
			b.scans(2)
			check("without volumeName")
		})
	}
}

// foreign writes a PersistentVolume of another disk.
func (b *bench) foreign(name string) {
	b.t.Helper()
	pv := &v1.PersistentVolume{}
	pv.Name, pv.Annotations = name, map[string]string{provisioner.InstanceAnnotation: "elsewhere"}
	pv.Spec.ClaimRef = &v1.ObjectReference{Namespace: "default", Name: "another"}
	if err := b.writePV(pv); err != nil {
		b.t.Fatal(err)
	}
}

// A volume that was released belongs to nobody, until a claim names it.
func TestVolumeNameOfAReleasedVolume(t *testing.T) {
	b := newBench(t)
	b.write("data.yaml", claimYAML("data", "storageClassName: keep", "1Mi"))
	b.scans(1)
	before := b.fill("data")
	b.remove("data.yaml")
	b.scans(3)
	if pv := b.pvs()["data"]; pv == nil || pv.Status.Phase != v1.VolumeReleased {
		t.Fatalf("%+v", pv)
	}
	b.write("again.yaml", claimYAML("data", "storageClassName: keep\n  volumeName: "+before["data"], "1Mi"))
	b.scans(2)
	b.checkFilled(before)
	if pv := b.pvs()["data"]; pv.Status.Phase == v1.VolumeReleased || pv.Spec.PersistentVolumeReclaimPolicy != v1.PersistentVolumeReclaimRetain {
		t.Errorf("%+v", pv)
	}
	// It is released again with this claim, not deleted.
	b.remove("again.yaml")
	b.scans(3)
	b.checkFilled(before)
}

// What a person has made by hand stays when the claim that has taken it goes.
func TestTakenVolumeStays(t *testing.T) {
	b := newBench(t)
	b.write("class.yaml", deleting)
	b.make("old", 1<<20, "")
	b.write("data.yaml", claimYAML("data", "storageClassName: deleting\n  volumeName: old", "1Mi"))
	b.scans(1)
	before := b.fill("data")
	b.remove("data.yaml")
	b.scans(3)
	b.checkFilled(before)
}

// Two claims that name one volume: the first has it, and the other is told.
func TestVolumeNameOfTwoClaims(t *testing.T) {
	b := newBench(t)
	b.make("old", 1<<20, "")
	for _, name := range []string{"a", "b"} {
		b.write(name+".yaml", claimYAML(name, "volumeName: old", "1Mi"))
	}
	b.scans(3)
	if pvs := b.pvs(); len(pvs) != 1 || pvs["a"] == nil || len(b.store.List()) != 1 {
		t.Errorf("%v", pvs)
	}
	if !strings.Contains(b.logs.String(), "that volume is the claim default/a's") {
		t.Errorf("log:\n%s", &b.logs)
	}
}

// A claim that has a volume keeps it, whatever its volumeName says.
func TestVolumeNameOfAnotherVolume(t *testing.T) {
	b := newBench(t)
	b.write("data.yaml", claimYAML("data", "", "1Mi"))
	b.scans(1)
	before := b.fill("data")
	b.write("data.yaml", claimYAML("data", "volumeName: old", "1Mi"))
	for range 2 {
		b.scans(2)
		b.checkFilled(before)
		b.checkGiven("its volumeName is old, and it has the volume "+before["data"], true)
		b.restart()
	}
	b.write("data.yaml", claimYAML("data", "volumeName: "+before["data"], "2Mi"))
	b.scans(2)
	b.checkFilled(before)
	b.checkGiven("", true)
	if got := b.pvs()["data"].Spec.Capacity.Storage().String(); got != "2Mi" {
		t.Errorf("%s after expansion", got)
	}
}

// A volume's name is in its record. A claim keeps its volume if its uid there is another one,
// and never gets a new one if its name is.
func TestRecordOfAnotherUID(t *testing.T) {
	for _, tt := range []struct{ name, old, with string }{
		{"a uid that is changed", `"uid": "`, `"uid": "0`},
		{"no uid", `"uid": "`, `"uuid": "`},
		{"another namespace", `"namespace": "default"`, `"namespace": "defaulu"`},
		{"another name", `"name": "data"`, `"name": "dbta"`},
		{"no claim", `"claim"`, `"clain"`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			b.write("class.yaml", deleting)
			b.write("data.yaml", claimYAML("data", "storageClassName: deleting", "1Mi"))
			b.scans(1)
			before := b.fill("data")
			b.edit(before["data"], tt.old, tt.with)
			b.restart()
			b.scans(3)
			if pv := b.pvs()["data"]; pv == nil || pv.Name != before["data"] {
				t.Errorf("it has %v, want %s; log:\n%s", pv, before["data"], &b.logs)
			}
			made, err := filepath.Glob(filepath.Join(b.Root, "pvc-*"))
			if data, readErr := os.ReadFile(filepath.Join(b.Root, before["data"], "file")); err != nil || len(made) != 1 || string(data) != "data" {
				t.Errorf("on the disk are %v, %v, and the file has %q, %v; log:\n%s", made, err, data, readErr, &b.logs)
			}
		})
	}
}

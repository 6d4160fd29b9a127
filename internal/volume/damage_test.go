package volume

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/podnas/podnas/internal/statedir"
)

// damagedDisk has volumes of each kind, with a file in each directory. Of these "victim" and "kept" are damaged.
type damagedDisk struct {
	root    string
	victim  Volume
	other   Volume
	kept    Volume // archived
	serving []string
}

func newDamagedDisk(t *testing.T) *damagedDisk {
	t.Helper()
	d := &damagedDisk{root: t.TempDir(), serving: []string{"other", "third", "victim"}}
	s, _ := open(t, d.root)
	made := func(spec Spec) Volume {
		spec.Size = 1 << 20
		makeVolume(spec)(t, s, d.root)
		v, err := s.Get(spec.Name)
		mustDo(t, err)
		return v
	}
	d.victim = made(Spec{
		Name: "victim", Path: "team/victim", OnDelete: RetainFiles, Claim: &Claim{"ns", "claim", "uid"}, Manifest: []byte(`{"a":"b"}`),
		Options: Options{RootSquash: true, Clients: []netip.Prefix{netip.MustParsePrefix("10.1.0.0/16")}},
	})
	d.other = made(Spec{Name: "other"})
	made(Spec{Name: "third", Path: "team/third"})
	d.kept = made(Spec{Name: "kept", OnDelete: ArchiveFiles})
	mustDo(t, errors.Join(s.Delete(t.Context(), "kept"), s.Close()))
	return d
}

func (d *damagedDisk) file(name string) string { return filepath.Join(d.root, name) }

func (d *damagedDisk) read(t *testing.T, name string) []byte {
	t.Helper()
	data, err := os.ReadFile(d.file(name))
	mustDo(t, err)
	return data
}

// put replaces whatever has a name by a file.
func (d *damagedDisk) put(t *testing.T, name string, data []byte) {
	t.Helper()
	mustDo(t, errors.Join(os.RemoveAll(d.file(name)), os.WriteFile(d.file(name), data, 0o600)))
}

// write writes a record with its checksum.
func (d *damagedDisk) write(t *testing.T, name string, r record) {
	t.Helper()
	mustWriteRecord(t, d.root, name, r)
}

// withoutSum returns a record as an older podnas writes it, after a change.
func withoutSum(t *testing.T, data []byte, change func(map[string]any)) []byte {
	t.Helper()
	var r map[string]any
	mustDo(t, json.Unmarshal(data, &r))
	delete(r, checksumField)
	if change != nil {
		change(r)
	}
	data, err := json.MarshalIndent(r, "", "  ")
	mustDo(t, err)
	return data
}

// whole checks that no file was moved or removed.
func (d *damagedDisk) whole(t *testing.T) {
	t.Helper()
	for _, dir := range []string{"team/victim", "other", "team/third", d.kept.keptIn(archiveDir)} {
		isKept(t, d.file(dir))
	}
}

// finds opens the disk, checks that the named volumes are served and no others, that nothing is lost, and that each of
// the files is in a finding with a way out.
func (d *damagedDisk) finds(t *testing.T, served []string, files ...string) *Store {
	t.Helper()
	s, e := open(t, d.root)
	if got := e.names(); !slices.Equal(got, served) {
		t.Errorf("served: %v, want %v", got, served)
	}
	found, err := s.Check()
	mustDo(t, err)
	for _, file := range files {
		at := slices.IndexFunc(found, func(f Finding) bool { return f.Path == file })
		if at < 0 || found[at].Problem == "" || found[at].Fix == "" || found[at].Notice {
			t.Errorf("no finding with a way out about %s in %v", file, found)
		}
	}
	listed := map[string]bool{}
	for _, u := range s.Unserved() {
		listed[u.Name] = u.State != "" && u.Problem != "" && u.Fix != ""
	}
	for _, name := range []string{"victim", "other", "third"} {
		if isServed := slices.Contains(served, name); isServed == listed[name] {
			if _, err := os.Lstat(d.file(recordFile(name))); err == nil {
				t.Errorf("volume %s: served %v, and as not served it is listed: %v", name, isServed, s.Unserved())
			}
		}
	}
	d.whole(t)
	return s
}

// Every way to damage a record but by a byte.
func waysToDamage() map[string]func(t *testing.T, d *damagedDisk, file string) {
	replace := func(change func(data []byte) []byte) func(t *testing.T, d *damagedDisk, file string) {
		return func(t *testing.T, d *damagedDisk, file string) {
			t.Helper()
			d.put(t, file, change(d.read(t, file)))
		}
	}
	return map[string]func(t *testing.T, d *damagedDisk, file string){
		"emptied":        replace(func([]byte) []byte { return nil }),
		"cut":            replace(func(data []byte) []byte { return data[:len(data)/2] }),
		"zeroed":         replace(func(data []byte) []byte { return make([]byte, len(data)) }),
		"null":           replace(func([]byte) []byte { return []byte("null") }),
		"twice in one":   replace(func(data []byte) []byte { return append(data, data...) }),
		"more than read": replace(func(data []byte) []byte { return append(data, make([]byte, stateFileMax)...) }),
		"a field added": replace(func(data []byte) []byte {
			return []byte(strings.Replace(string(data), "{", `{"more": 1,`, 1))
		}),
		"a field removed": func(t *testing.T, d *damagedDisk, file string) {
			t.Helper()
			var r map[string]any
			mustDo(t, json.Unmarshal(d.read(t, file), &r))
			delete(r, "options")
			delete(r, "onDelete")
			delete(r, "handleKey")
			data, err := json.Marshal(r)
			mustDo(t, err)
			d.put(t, file, data)
		},
		"another's copy": func(t *testing.T, d *damagedDisk, file string) {
			t.Helper()
			d.put(t, file, d.read(t, recordFile("other")))
		},
		"a folder": func(t *testing.T, d *damagedDisk, file string) {
			t.Helper()
			mustDo(t, errors.Join(os.Remove(d.file(file)), os.MkdirAll(d.file(file+"/in it"), 0o700)))
		},
		"a fifo": func(t *testing.T, d *damagedDisk, file string) {
			t.Helper()
			mustDo(t, errors.Join(os.Remove(d.file(file)), unix.Mkfifo(d.file(file), 0o600)))
		},
		"a link to itself, moved": func(t *testing.T, d *damagedDisk, file string) {
			t.Helper()
			mustDo(t, os.Rename(d.file(file), d.file("other/record")))
			mustDo(t, os.Symlink(d.file("other/record"), d.file(file)))
		},
		"a link within the disk": func(t *testing.T, d *damagedDisk, file string) {
			t.Helper()
			mustDo(t, os.Rename(d.file(file), d.file("other/record")))
			mustDo(t, os.Symlink("../../other/record", d.file(file)))
		},
		"a link to nothing": func(t *testing.T, d *damagedDisk, file string) {
			t.Helper()
			mustDo(t, errors.Join(os.Remove(d.file(file)), os.Symlink("nothing", d.file(file))))
		},
	}
}

// A damaged record costs no other volume anything, and its own nothing but the service until it is put
// right.
func TestDamagedRecords(t *testing.T) {
	for name, damage := range waysToDamage() {
		for _, of := range []string{"victim", "kept"} {
			t.Run(of+" "+name, func(t *testing.T) {
				d := newDamagedDisk(t)
				file, served := recordFile("victim"), []string{"other", "third"}
				if of == "kept" {
					file, served = d.kept.keptIn(archiveDir)+".json", d.serving
				}
				was := d.read(t, file)
				damage(t, d, file)
				s := d.finds(t, served, file)
				if of == "kept" {
					if err := s.Discard(t.Context(), "kept"); !errors.Is(err, ErrNotFound) {
						t.Errorf("discarded: %v", err)
					}
				} else {
					d.refuses(t, s)
				}
				mustDo(t, s.Close())
				d.put(t, file, was)
				mustDo(t, d.finds(t, d.serving).Close())
			})
		}
	}
}

// refuses checks that nothing is done with the volume of a refused record, and nothing is made in
// its way.
func (d *damagedDisk) refuses(t *testing.T, s *Store) {
	t.Helper()
	_, get := s.Get("victim")
	_, resize := s.Resize(t.Context(), "victim", 2<<20, 0)
	_, copied := s.Create(t.Context(), Spec{Name: "copy", Size: 1 << 20, Source: "victim"})
	for what, err := range map[string]error{"get": get, "delete": s.Delete(t.Context(), "victim"), "resize": resize, "copy": copied} {
		if !errors.Is(err, ErrRecord) || errors.Is(err, ErrNotFound) {
			t.Errorf("%s: %v, want ErrRecord", what, err)
		}
	}
	for _, spec := range []Spec{{Name: "victim"}, {Name: "victim", Path: "elsewhere"}, {Name: "new", Path: "team/victim"}, {Name: "new", Path: "team/victim/below"}} {
		spec.Size = 1 << 20
		if v, err := s.Create(t.Context(), spec); !errors.Is(err, ErrExists) {
			t.Errorf("made %+v, %v", v, err)
		}
	}
	if _, err := s.Adopt(t.Context(), Spec{Name: "victim", Path: "team/victim", Size: 1 << 20}); !errors.Is(err, ErrExists) {
		t.Errorf("adopted with its record in place: %v", err)
	}
	if _, err := s.Create(t.Context(), Spec{Name: "new", Size: 1 << 20}); err != nil {
		t.Errorf("a volume elsewhere: %v", err)
	}
	mustDo(t, s.Delete(t.Context(), "new"))
	d.whole(t)
}

// A byte of a record, whichever it is, does not change what it says.
func TestRecordWithAByteChanged(t *testing.T) {
	d := newDamagedDisk(t)
	s, _ := open(t, d.root)
	right, err := s.Get("victim")
	mustDo(t, errors.Join(err, s.Close()))
	for _, file := range []string{recordFile("victim"), d.kept.keptIn(archiveDir) + ".json"} {
		was := d.read(t, file)
		for _, bits := range []byte{1, ' ', 0x80} {
			for at := range was {
				data := slices.Clone(was)
				data[at] ^= bits
				d.put(t, file, data)
				s, e := open(t, d.root)
				v, err := s.Get("victim")
				kept, _ := s.Kept()
				served := e.names()
				switch {
				case !slices.Contains(served, "other") || !slices.Contains(served, "third"):
					t.Errorf("others are not served")
				case err == nil && !reflect.DeepEqual(v, right):
					t.Errorf("served with %+v", v)
				case err != nil && (!errors.Is(err, ErrRecord) || slices.Contains(served, "victim")), err == nil && !slices.Contains(served, "victim"):
					t.Errorf("%v, served: %v", err, served)
				case len(kept) == 1 && (kept[0].ID != d.kept.ID || kept[0].Path != d.kept.Path):
					t.Errorf("kept: %+v", kept)
				case err == nil && len(kept) == 1 && strings.TrimSpace(string(was[at:at+1])) != "":
					t.Error("not noticed")
				}
				mustDo(t, s.Close())
				if t.Failed() {
					t.Fatalf("byte %d of %s, which was %q, is %q:\n%s", at, file, was[at], data[at], data)
				}
			}
		}
		d.put(t, file, was)
	}
	d.whole(t)
}

// A record of an older podnas has no checksum. A changed byte may change what it says, but no other
// volume, no directory, and not who may mount it to everybody.
func TestOldRecordWithAByteChanged(t *testing.T) {
	d := newDamagedDisk(t)
	file := recordFile("victim")
	was := withoutSum(t, d.read(t, file), nil)
	for _, bits := range []byte{1, ' ', '"' ^ '\\', 'e' ^ '\\'} {
		for at := range was {
			data := slices.Clone(was)
			data[at] ^= bits
			d.put(t, file, data)
			s, e := open(t, d.root)
			v, err := s.Get("victim")
			found, checked := s.Check()
			mustDo(t, checked)
			switch {
			case !slices.Contains(e.names(), "other") || !slices.Contains(e.names(), "third"):
				t.Errorf("others are not served: %v", found)
			case err == nil && len(v.Options.Clients) == 0, err == nil && v.OnDelete != RetainFiles:
				t.Errorf("%+v", v)
			case !slices.Contains(e.names(), "victim") && len(found) == 0:
				t.Error("neither served nor found")
			}
			mustDo(t, s.Close())
			d.whole(t)
			if t.Failed() {
				t.Fatalf("byte %d, which was %q, is %q:\n%s", at, was[at], data[at], data)
			}
		}
	}
}

// Records that contradict each other, or themselves.
func TestRecordsBent(t *testing.T) {
	now := time.Now().UTC()
	victim, other := recordFile("victim"), recordFile("other")
	archivedTwin := func(v Volume) record {
		v.Name, v.ID, v.OnDelete, v.Options = "twin", 77, ArchiveFiles, Options{}
		return record{State: archived, Deleted: now, Volume: v}
	}
	twin := recordFile("twin")
	for _, tt := range []struct {
		name   string
		bend   func(t *testing.T, d *damagedDisk)
		served []string
		files  func(d *damagedDisk) []string // with a finding
	}{
		{"a stale record in the trash", func(t *testing.T, d *damagedDisk) {
			d.put(t, d.victim.keptIn(trashDir)+".json", d.read(t, victim))
		}, []string{"other", "third"}, func(d *damagedDisk) []string { return []string{victim, d.victim.keptIn(trashDir) + ".json"} }},
		{"a stale record in the trash, and files", func(t *testing.T, d *damagedDisk) {
			d.put(t, d.victim.keptIn(trashDir)+".json", d.read(t, victim))
			mustDo(t, os.Mkdir(d.file(d.victim.keptIn(trashDir)), 0o700))
		}, []string{"other", "third"}, func(d *damagedDisk) []string { return []string{victim, d.victim.keptIn(trashDir) + ".json"} }},
		{"a stale record of an older podnas in the trash", func(t *testing.T, d *damagedDisk) {
			d.put(t, d.victim.keptIn(trashDir)+".json", withoutSum(t, d.read(t, victim), nil))
		}, []string{"other", "third"}, func(d *damagedDisk) []string { return []string{victim, d.victim.keptIn(trashDir) + ".json"} }},
		{"a stale record in the trash, and the volume's damaged", func(t *testing.T, d *damagedDisk) {
			d.put(t, d.victim.keptIn(trashDir)+".json", d.read(t, victim))
			d.put(t, victim, []byte("{"))
		}, []string{"other", "third"}, func(*damagedDisk) []string { return []string{victim} }},
		{"a deletion interrupted, and another's record damaged", func(t *testing.T, d *damagedDisk) {
			mustDo(t, os.Rename(d.file(victim), d.file(d.victim.keptIn(trashDir)+".json")))
			d.put(t, other, nil)
		}, []string{"third"}, func(*damagedDisk) []string { return []string{other} }},
		{"its record in the archive, too", func(t *testing.T, d *damagedDisk) {
			d.write(t, d.victim.keptIn(archiveDir)+".json", record{State: archived, Deleted: now, Volume: func() Volume {
				v := d.victim
				v.OnDelete = ArchiveFiles
				return v
			}()})
		}, []string{"other", "third"}, func(d *damagedDisk) []string { return []string{victim, d.victim.keptIn(archiveDir) + ".json"} }},
		{"an archived volume's record put back", func(t *testing.T, d *damagedDisk) {
			d.put(t, recordFile("kept"), d.read(t, d.kept.keptIn(archiveDir)+".json"))
		}, []string{"other", "third", "victim"}, func(d *damagedDisk) []string {
			return []string{recordFile("kept"), d.kept.keptIn(archiveDir) + ".json"}
		}},
		{"one path twice, and one being archived", func(t *testing.T, d *damagedDisk) {
			d.write(t, twin, archivedTwin(d.victim))
		}, []string{"other", "third"}, func(*damagedDisk) []string { return []string{victim, twin} }},
		{"one path twice, and one without limits", func(t *testing.T, d *damagedDisk) {
			v := d.victim
			v.Name, v.ID, v.Options = "a-twin", 77, Options{}
			d.write(t, recordFile("a-twin"), record{State: ready, Volume: v})
		}, []string{"other", "third"}, func(*damagedDisk) []string { return []string{victim, recordFile("a-twin")} }},
		{"one path twice, in records of an older podnas", func(t *testing.T, d *damagedDisk) {
			d.put(t, twin, withoutSum(t, d.read(t, victim), func(r map[string]any) { r["name"], r["id"] = "twin", "77" }))
			d.put(t, victim, withoutSum(t, d.read(t, victim), nil))
		}, []string{"other", "third"}, func(*damagedDisk) []string { return []string{victim, twin} }},
		{"a path below another's", func(t *testing.T, d *damagedDisk) {
			v := d.victim
			v.Name, v.ID, v.Path = "twin", 77, "team/victim/deep/below"
			d.write(t, twin, record{State: ready, Volume: v})
		}, []string{"other", "third"}, func(*damagedDisk) []string { return []string{victim, twin} }},
		{"a path above others'", func(t *testing.T, d *damagedDisk) {
			v := d.victim
			v.Name, v.ID, v.Path = "twin", 77, "team"
			d.write(t, twin, record{State: ready, Volume: v})
		}, []string{"other"}, func(*damagedDisk) []string { return []string{victim, twin, recordFile("third")} }},
		{"one id twice", func(t *testing.T, d *damagedDisk) {
			mustDo(t, os.Mkdir(d.file("twin"), 0o700))
			d.write(t, twin, record{State: ready, Volume: Volume{Name: "twin", Path: "twin", Size: 1, ID: d.victim.ID}})
		}, []string{"other", "third"}, func(*damagedDisk) []string { return []string{victim, twin} }},
		{"one project twice", func(t *testing.T, d *damagedDisk) {
			v := d.victim
			v.Project = 70000
			d.write(t, victim, record{State: ready, Volume: v})
			d.write(t, fmt.Sprintf("%s/%016x.json", trashDir, 77), record{State: ready, Volume: Volume{Name: "old", Path: "old", Size: 1, ID: 77, Project: 70000}})
		}, []string{"other", "third"}, func(*damagedDisk) []string { return []string{victim, fmt.Sprintf("%s/%016x.json", trashDir, 77)} }},
		{"a copy under another name", func(t *testing.T, d *damagedDisk) {
			d.put(t, twin, d.read(t, victim))
		}, []string{"other", "third", "victim"}, func(*damagedDisk) []string { return []string{twin} }},
		{"a copy under its id", func(t *testing.T, d *damagedDisk) {
			d.put(t, d.victim.keptIn(volumesDir)+".json", d.read(t, victim))
		}, []string{"other", "third", "victim"}, func(d *damagedDisk) []string { return []string{d.victim.keptIn(volumesDir) + ".json"} }},
		{"a record of another disk, and the others are of an older podnas", func(t *testing.T, d *damagedDisk) {
			for _, name := range []string{other, recordFile("third"), d.kept.keptIn(archiveDir) + ".json"} {
				d.put(t, name, withoutSum(t, d.read(t, name), nil))
			}
			d.write(t, victim, record{State: ready, Disk: "another", Volume: d.victim})
		}, []string{"other", "third"}, func(*damagedDisk) []string { return []string{victim} }},
		{"a record of another disk, and no other", func(t *testing.T, d *damagedDisk) {
			mustDo(t, errors.Join(os.Remove(d.file(other)), os.Remove(d.file(recordFile("third"))), os.Remove(d.file(d.kept.keptIn(archiveDir)+".json"))))
			d.write(t, victim, record{State: ready, Disk: "another", Volume: d.victim})
		}, nil, func(*damagedDisk) []string { return []string{victim} }},
		{"a record of another disk", func(t *testing.T, d *damagedDisk) {
			d.write(t, victim, record{State: ready, Disk: "another", Volume: d.victim})
		}, []string{"other", "third"}, func(*damagedDisk) []string { return []string{victim} }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			d := newDamagedDisk(t)
			tt.bend(t, d)
			s := d.finds(t, tt.served, tt.files(d)...)
			if !slices.Contains(tt.served, "victim") {
				if err := s.Delete(t.Context(), "victim"); err == nil {
					t.Error("deleted")
				}
			}
			if err := s.Delete(t.Context(), "twin"); err == nil {
				t.Error("the twin is deleted")
			}
			time.Sleep(50 * time.Millisecond) // for the trash
			d.whole(t)
			for _, file := range tt.files(d) {
				if _, err := os.Lstat(d.file(file)); err != nil {
					t.Errorf("%s: %v", file, err)
				}
			}
		})
	}
}

// Of a record without a checksum, a state that the rest contradicts loses no directory.
func TestOldRecordsState(t *testing.T) {
	for _, st := range []state{creating, copyingState, adopting, retained, archived, "no state"} {
		for _, source := range []string{"", "other"} {
			t.Run(fmt.Sprintf("%s, copied from %q", st, source), func(t *testing.T) {
				d := newDamagedDisk(t)
				d.put(t, recordFile("victim"), withoutSum(t, d.read(t, recordFile("victim")), func(r map[string]any) {
					r["state"], r["source"] = st, source
					r["onDelete"] = DeleteFiles
				}))
				s, e := open(t, d.root)
				time.Sleep(50 * time.Millisecond)
				if st != adopting { // whose directory was a stray before, and has a finding
					if _, err := os.Lstat(d.file(recordFile("victim"))); err != nil {
						t.Error(err)
					}
				}
				if found, err := s.Check(); err != nil || len(found) == 0 || slices.Contains(e.names(), "victim") {
					t.Errorf("found %v, %v; served %v", found, err, e.names())
				}
				mustDo(t, s.Close())
				d.whole(t)
			})
		}
	}
}

// What a newer podnas writes into a record, also into what is in it, outlives an older one.
func TestUnknownFieldsAreKept(t *testing.T) {
	d := newDamagedDisk(t)
	file := recordFile("victim")
	// As a person would add it, who removes the checksum.
	d.put(t, file, withoutSum(t, d.read(t, file), func(r map[string]any) {
		r["future"] = map[string]any{"list": []int{1, 2}, "large": json.Number("12345678901234567890")}
		r["options"].(map[string]any)["mayFly"] = true
		r["claim"].(map[string]any)["cluster"] = "c"
	}))
	s, e := open(t, d.root)
	if !slices.Contains(e.names(), "victim") {
		t.Fatalf("served: %v", e.names())
	}
	_, err := s.Resize(t.Context(), "victim", 2<<20, 0)
	mustDo(t, err)
	text := string(d.read(t, file))
	for _, want := range []string{`"mayFly": true`, `"large": 12345678901234567890`, `"cluster": "c"`, `"checksum": "sha256:`, `"disk": "` + s.Identity()} {
		if !strings.Contains(text, want) {
			t.Errorf("no %s in\n%s", want, text)
		}
	}
	mustDo(t, s.Release(t.Context(), "victim"))
	mustDo(t, s.Delete(t.Context(), "victim")) // it is retained
	_, err = s.Adopt(t.Context(), Spec{Name: "victim"})
	mustDo(t, errors.Join(err, s.Close()))
	text = string(d.read(t, file))
	if !strings.Contains(text, `"mayFly": true`) || !strings.Contains(text, `"large": 12345678901234567890`) || strings.Contains(text, `"claim"`) {
		t.Errorf("released, retained and adopted:\n%s", text)
	}
	mustDo(t, d.finds(t, d.serving).Close())
}

// A deletion that waited for a damaged record goes on when that is put right.
func TestTrashWaitsForDamagedRecord(t *testing.T) {
	d := newDamagedDisk(t)
	trashed, other := d.victim.keptIn(trashDir)+".json", recordFile("other")
	mustDo(t, os.Rename(d.file(recordFile("victim")), d.file(trashed)))
	was := d.read(t, other)
	d.put(t, other, was[:20])
	mustDo(t, d.finds(t, []string{"third"}, other).Close())
	d.put(t, other, was)
	s, e := open(t, d.root)
	eventually(t, "its files are gone", func() bool {
		_, err := os.Lstat(d.file(trashed))
		return errors.Is(err, fs.ErrNotExist)
	})
	if _, err := os.Lstat(d.file("team/victim")); !errors.Is(err, fs.ErrNotExist) || !slices.Equal(e.names(), []string{"other", "third"}) {
		t.Errorf("%v, served %v", err, e.names())
	}
	mustDo(t, s.Close())
}

// What is in the way of files of podnas is put aside, but for the records.
func TestStateFilesInTheWay(t *testing.T) {
	fifo := func(file string) error { return unix.Mkfifo(file, 0o600) }
	for _, tt := range []struct {
		name, file string
		make       func(file string) error
		refused    bool
		aside      bool
	}{
		{"lock is a fifo", lockFile, fifo, false, true},
		{"lock is a folder", lockFile, func(file string) error { return os.MkdirAll(file+"/a", 0o700) }, false, true},
		{"lock is a link to a file of a volume", lockFile, func(file string) error { return os.Symlink("../other/data", file) }, false, true},
		{"trash is a file", trashDir, func(file string) error { return os.WriteFile(file, nil, 0o600) }, false, true},
		{"trash is a link to a volume", trashDir, func(file string) error { return os.Symlink("../other", file) }, false, true},
		{"trash is a fifo", trashDir, fifo, false, true},
		{"trash is gone", trashDir, func(string) error { return nil }, false, false},
		{"records are gone", volumesDir, func(string) error { return nil }, true, false},
		{"records are a fifo", volumesDir, fifo, true, false},
		{"records are a link", volumesDir, func(file string) error { return os.Symlink("../other", file) }, true, false},
		{"half a record is a folder", recordFile("victim") + ".tmp", func(file string) error { return os.MkdirAll(file+"/a", 0o700) }, false, true},
		{"half a record is a link to a file of a volume", recordFile("victim") + ".tmp", func(file string) error { return os.Symlink("../../other/data", file) }, false, false},
		{"half a record is a fifo", recordFile("victim") + ".tmp", fifo, false, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			d := newDamagedDisk(t)
			mustDo(t, errors.Join(os.RemoveAll(d.file(tt.file)), tt.make(d.file(tt.file))))
			s, err := Open(Config{Root: d.root, Exports: &exports{}, Log: slog.New(slog.DiscardHandler)})
			if tt.refused {
				if err == nil || !strings.Contains(err.Error(), tt.file) {
					t.Errorf("opened: %v", err)
				}
				d.whole(t)
				return
			}
			mustDo(t, err)
			_, err = s.Resize(t.Context(), "victim", 2<<20, 0)
			mustDo(t, err)
			aside := statedir.Aside(filepath.Dir(d.file(tt.file))) // podnas doctor lists them
			if want := d.file(tt.file) + ".damaged-1"; tt.aside != slices.Equal(aside, []string{want}) || !tt.aside && len(aside) > 0 {
				t.Errorf("put aside: %v, want %s: %v", aside, want, tt.aside)
			}
			mustDo(t, s.Close())
			mustDo(t, d.finds(t, d.serving).Close())
		})
	}
}

package volume

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/uuid"
	"golang.org/x/sys/unix"
)

func tryOpen(t *testing.T, root, newIdentity string) (*Store, error) {
	t.Helper()
	s, err := Open(Config{Root: root, Exports: &exports{}, NewIdentity: newIdentity, Log: slog.New(slog.DiscardHandler)})
	if err == nil {
		t.Cleanup(func() { _ = s.Close() }) // most tests have closed it
	}
	return s, err
}

// Without its identity a disk with records is not served, and nothing is changed on it.
func TestDamagedInstance(t *testing.T) {
	ways := waysToDamage()
	ways["taken away"] = func(t *testing.T, d *damagedDisk, file string) {
		t.Helper()
		mustDo(t, os.Remove(d.file(file)))
	}
	delete(ways, "another's copy") // is tested below
	ways["another disk's"] = func(t *testing.T, d *damagedDisk, file string) {
		t.Helper()
		another := newDamagedDisk(t)
		d.put(t, file, another.read(t, file))
	}
	for name, damage := range ways {
		t.Run(name, func(t *testing.T) {
			d := newDamagedDisk(t)
			s, _ := open(t, d.root)
			identity := s.Identity()
			mustDo(t, s.Close())
			was := d.read(t, InstanceFile)
			damage(t, d, InstanceFile)
			if _, err := tryOpen(t, d.root, ""); err == nil || !strings.Contains(err.Error(), InstanceFile) || !strings.Contains(err.Error(), "backup") {
				t.Errorf("opened: %v", err)
			}
			if got, err := IdentityOf(d.root); err == nil && name != "another disk's" {
				t.Errorf("it has the identity %q", got)
			}
			d.whole(t)
			d.put(t, InstanceFile, was)
			s = d.finds(t, d.serving)
			if s.Identity() != identity {
				t.Errorf("put back, it is %s", s.Identity())
			}
			mustDo(t, s.Close())
		})
	}
}

func TestInstanceWithAByteChanged(t *testing.T) {
	d := newDamagedDisk(t)
	s, _ := open(t, d.root)
	identity, key := s.Identity(), string(s.HandleKey())
	mustDo(t, s.Close())
	was := d.read(t, InstanceFile)
	for _, bits := range []byte{1, ' ', 0x80} {
		for at := range was {
			data := slices.Clone(was)
			data[at] ^= bits
			d.put(t, InstanceFile, data)
			s, err := tryOpen(t, d.root, "")
			if err == nil {
				if s.Identity() != identity || string(s.HandleKey()) != key || strings.TrimSpace(string(was[at:at+1])) != "" {
					t.Errorf("byte %d, which was %q, is %q: not noticed in\n%s", at, was[at], data[at], data)
				}
				mustDo(t, s.Close())
			}
		}
	}
	d.whole(t)
}

func TestLostIdentity(t *testing.T) {
	d := newDamagedDisk(t)
	s, _ := open(t, d.root)
	identity, key := s.Identity(), string(s.HandleKey())
	mustDo(t, s.Close())
	mustDo(t, os.Remove(d.file(InstanceFile)))
	for _, open := range []func() error{
		func() error { _, err := tryOpen(t, d.root, ""); return err },
		func() error { _, err := IdentityOf(d.root); return err },
	} {
		if err := open(); err == nil || !strings.Contains(err.Error(), "--new-identity=UUID") || !strings.Contains(err.Error(), identity) {
			t.Errorf("%v, want an error that names %s", err, identity)
		}
	}
	// It gets the one that the records name, or another.
	for _, as := range []string{identity, RandomIdentity} {
		_ = os.Remove(d.file(InstanceFile))
		s, err := tryOpen(t, d.root, as)
		mustDo(t, err)
		now := s.Identity()
		if (now == identity) != (as == identity) || string(s.HandleKey()) == key || uuid.Validate(now) != nil {
			t.Errorf("%s: it is %s", as, now)
		}
		mustDo(t, s.Close())
		s = d.finds(t, d.serving)
		if s.Identity() != now {
			t.Errorf("at the next start it is %s", s.Identity())
		}
		mustDo(t, s.Close())
	}
	// A disk that has its identity keeps it.
	s, err := tryOpen(t, d.root, uuid.NewString())
	mustDo(t, err)
	if got, err := IdentityOf(d.root); err != nil || got != s.Identity() {
		t.Errorf("%s, %v, want %s", got, err, s.Identity())
	}
	mustDo(t, s.Close())
}

func TestCheckNewIdentity(t *testing.T) {
	for s, ok := range map[string]bool{
		"": true, "random": true, uuid.NewString(): true, "x": false, "{" + uuid.NewString() + "}": false, strings.ToUpper(uuid.NewString()): false,
	} {
		if err := CheckNewIdentity(s); (err == nil) != ok {
			t.Errorf("%q: %v", s, err)
		}
	}
}

// An instance.json from before it had a checksum is taken, and what it does not know is kept.
func TestOldInstance(t *testing.T) {
	d := newDamagedDisk(t)
	s, _ := open(t, d.root)
	identity, key := s.Identity(), s.HandleKey()
	mustDo(t, s.Close())
	old, err := json.Marshal(map[string]any{"identity": identity, "handleKey": key, "future": 1})
	mustDo(t, err)
	d.put(t, InstanceFile, old)
	s = d.finds(t, d.serving)
	if s.Identity() != identity || !bytes.Equal(s.HandleKey(), key) {
		t.Error("it has another identity or key")
	}
	mustDo(t, s.Close())
	if text := string(d.read(t, InstanceFile)); !strings.Contains(text, `"checksum": "sha256:`) || !strings.Contains(text, `"future": 1`) {
		t.Errorf("%s", text)
	}
	// It is what the previous version reads.
	var i struct {
		Identity  string `json:"identity"`
		HandleKey []byte `json:"handleKey"`
	}
	if err := json.Unmarshal(d.read(t, InstanceFile), &i); err != nil || i.Identity != identity || !bytes.Equal(i.HandleKey, key) {
		t.Errorf("%+v, %v", i, err)
	}
}

// A copy of the root beside the original has its identity, but takes none of its handles, until the
// original is gone. What was moved or put back keeps its handles.
func TestCopiedRoot(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root, to open directories by their handles")
	}
	cp := func(from, to string) error {
		out, err := exec.Command("cp", "-a", from, to).CombinedOutput()
		if err != nil {
			return fmt.Errorf("cp: %w: %s", err, out)
		}
		return nil
	}
	for _, tt := range []struct {
		name   string
		change func(parent string) error // of parent/original
		root   string                    // of parent, to be opened then
		copied bool                      // from an original that is still there
		after  func(parent string) error // removes the original
	}{
		{
			"copied", func(p string) error { return cp(p+"/original", p+"/copy") }, "copy", true,
			func(p string) error { return os.RemoveAll(p + "/original") },
		},
		{
			"copied, and then moved", func(p string) error {
				return errors.Join(cp(p+"/original", p+"/copy"), os.Rename(p+"/copy", p+"/moved"))
			}, "moved", true, func(p string) error { return os.RemoveAll(p + "/original") },
		},
		{"the original of a copy", func(p string) error { return cp(p+"/original", p+"/copy") }, "original", false, nil},
		{"moved", func(p string) error { return os.Rename(p+"/original", p+"/moved") }, "moved", false, nil},
		{"copied, and the original removed", func(p string) error {
			return errors.Join(cp(p+"/original", p+"/copy"), os.RemoveAll(p+"/original"))
		}, "copy", false, nil},
		{"the state directory put back", func(p string) error {
			return errors.Join(os.Rename(p+"/original/.podnas", p+"/original/.podnas.old"), cp(p+"/original/.podnas.old", p+"/original/.podnas"))
		}, "original", false, nil},
		{"all moved into another root", func(p string) error {
			return errors.Join(os.Mkdir(p+"/new", 0o755), os.Rename(p+"/original/v", p+"/new/v"), os.Rename(p+"/original/.podnas", p+"/new/.podnas"))
		}, "new", false, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			parent := t.TempDir()
			original := filepath.Join(parent, "original")
			mustDo(t, os.Mkdir(original, 0o755))
			s, _ := open(t, original)
			makeVolume(Spec{Name: "v", Size: 1 << 20})(t, s, original)
			identity, key := s.Identity(), string(s.HandleKey())
			mustDo(t, s.Close())
			mustDo(t, tt.change(parent))
			check := func(copied bool) {
				t.Helper()
				root := filepath.Join(parent, tt.root)
				for range 2 {
					s, e := open(t, root)
					if s.Identity() != identity || (string(s.HandleKey()) == key) == copied || len(s.HandleKey()) != 32 || len(e.names()) != 1 {
						t.Errorf("identity %s, served %v, same key: %v", s.Identity(), e.names(), string(s.HandleKey()) == key)
					}
					found, err := s.Check()
					if is := slices.ContainsFunc(found, func(f Finding) bool { return strings.Contains(f.Problem, original) && f.Fix != "" }); err != nil || is != copied {
						t.Errorf("found %v, %v", found, err)
					}
					mustDo(t, s.Close())
				}
				isKept(t, filepath.Join(root, "v"))
			}
			check(tt.copied)
			if tt.after != nil {
				mustDo(t, tt.after(parent))
				check(false)
			}
		})
	}
}

// What is mounted over a volume's directory, or above it, is not served in its place.
func TestMountedOver(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root, to mount")
	}
	for _, over := range []string{"team/victim", "team"} {
		for _, bind := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, of the same file system: %v", over, bind), func(t *testing.T) {
				d := newDamagedDisk(t)
				var err error
				if bind {
					err = unix.Mount(d.file("other"), d.file(over), "", unix.MS_BIND, "")
				} else {
					err = unix.Mount("tmpfs", d.file(over), "tmpfs", 0, "size=1m")
				}
				if errors.Is(err, unix.EPERM) {
					t.Skip("needs root, to mount")
				}
				mustDo(t, err)
				mounted := true
				unmount := func() {
					if mounted {
						mustDo(t, unix.Unmount(d.file(over), 0))
						mounted = false
					}
				}
				t.Cleanup(unmount)
				if over == "team" {
					mustDo(t, os.MkdirAll(d.file("team/victim"), 0o755))
				}
				s, e := open(t, d.root)
				found, err := s.Check()
				if err != nil || slices.Contains(e.names(), "victim") || !slices.Contains(e.names(), "other") ||
					!slices.ContainsFunc(found, func(f Finding) bool {
						return f.Volume == "victim" && strings.Contains(f.Problem, "mounted over") && f.Fix != ""
					}) {
					t.Errorf("served %v, found %v, %v", e.names(), found, err)
				}
				if u := s.Unserved(); !slices.ContainsFunc(u, func(u Unserved) bool { return u.Name == "victim" && u.State == NotServed && u.Fix != "" }) {
					t.Errorf("not served: %v", u)
				}
				mustDo(t, s.Close())
				if over == "team" {
					_ = os.RemoveAll(d.file("team/victim")) // with bind it is in "other"
				}
				unmount()
				mustDo(t, d.finds(t, d.serving).Close())
			})
		}
	}
}

// What is to be copied into a shell has quotes where that needs them, and then none around it.
func TestAdoptCommand(t *testing.T) {
	for dir, want := range map[string]string{
		"team/photos":    "'podnas volume adopt NAME --path=team/photos --size=SIZE'",
		"photos;reboot":  "podnas volume adopt NAME --path='photos;reboot' --size=SIZE",
		"photos of 2026": "podnas volume adopt NAME --path='photos of 2026' --size=SIZE",
	} {
		if got := adoptCommand(dir); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}

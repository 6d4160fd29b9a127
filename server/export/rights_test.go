package export

import (
	"errors"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/podnas/podnas/test/testdisk"
)

// wantLacks is the variable that has what a child of TestTryRights lacks.
const wantLacks = "PODNAS_TEST_LACKS"

// Each right is found missing where it is, and no other is.
func TestTryRights(t *testing.T) {
	const all = "SETUID and SETGID, CHOWN, DAC_OVERRIDE, FOWNER, FSETID, MKNOD"
	for _, tt := range []struct {
		name  string
		user  testdisk.User
		lacks string
	}{
		{"root", testdisk.User{}, ""},
		{"nobody", testdisk.User{ID: testdisk.Nobody}, all},
		{"another user", testdisk.User{ID: 1000}, all},
		// Which has all capabilities, over nobody but itself.
		{"root of a namespace of one user", testdisk.User{ID: 1000, Namespace: true}, "SETUID and SETGID, CHOWN, FOWNER, FSETID, MKNOD"},
		{"no SETUID", testdisk.User{Drops: []uintptr{unix.CAP_SETUID}}, "SETUID and SETGID"},
		{"no SETGID", testdisk.User{Drops: []uintptr{unix.CAP_SETGID}}, "SETUID and SETGID"},
		{"no CHOWN", testdisk.User{Drops: []uintptr{unix.CAP_CHOWN}}, "CHOWN, FOWNER, FSETID"},
		{"no DAC_OVERRIDE", testdisk.User{Drops: []uintptr{unix.CAP_DAC_OVERRIDE, unix.CAP_DAC_READ_SEARCH}}, "DAC_OVERRIDE"},
		{"no FOWNER", testdisk.User{Drops: []uintptr{unix.CAP_FOWNER}}, "FOWNER"},
		{"no FSETID", testdisk.User{Drops: []uintptr{unix.CAP_FSETID}}, "FSETID"},
		{"no MKNOD", testdisk.User{Drops: []uintptr{unix.CAP_MKNOD}}, "MKNOD"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			testdisk.Child(t, tt.user, "^TestRightsOfChild$", wantLacks+"="+tt.lacks)
		})
	}
}

// TestRightsOfChild runs as a child of TestTryRights.
func TestRightsOfChild(t *testing.T) {
	want, ok := os.LookupEnv(wantLacks)
	if !ok {
		t.Skip("it runs as a child of TestTryRights")
	}
	dir := t.TempDir()
	for range 2 { // nothing is left that the second try meets
		r := TryRights(dir)
		var lacks []string
		for _, right := range r.Tried {
			if right.Err != nil {
				lacks = append(lacks, right.Capability)
			}
			if says := strings.Contains(r.String(), "without "+right.Capability+" "+right.Without); says != (right.Err != nil) {
				t.Errorf("%s: %v, and the line is %q", right.Capability, right.Err, r.String())
			}
		}
		if got := strings.Join(lacks, ", "); got != want {
			t.Errorf("lacks %s, want %s", got, want)
		}
		if users := !strings.Contains(want, "SETUID"); users != (r.Only == nil) {
			t.Errorf("the only user is %+v", r.Only)
		}
		if r.Only != nil && r.Only.Overrides != (os.Getuid() == 0 && !strings.Contains(want, "CHOWN")) {
			t.Errorf("the only user is %+v", *r.Only)
		}
		if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
			t.Errorf("left on the disk: %v, %v", left, err)
		}
	}
}

// What promises who callers are is not served as somebody else.
func TestOnlyRefuses(t *testing.T) {
	ordinary, root, nobody := &Only{UID: 1000, GID: 100}, &Only{Overrides: true}, &Only{UID: anonymous, GID: anonymous}
	for _, tt := range []struct {
		name    string
		only    *Only
		options Options
		refused string
	}{
		{"who can act as anybody", nil, Options{AllSquash: true, AnonUID: 1}, ""},
		{"nothing said", ordinary, Options{}, ""},
		{"other options", ordinary, Options{ReadOnly: true, PrivilegedPorts: true}, ""},
		{"all are the only user", ordinary, Options{AllSquash: true, AnonUID: 1000, AnonGID: 100}, ""},
		{"all are the only user, of any group", ordinary, Options{AllSquash: true, AnonUID: 1000}, ""},
		{"all are nobody, who is the only user", nobody, Options{AllSquash: true}, ""},
		{"all are another user", ordinary, Options{AllSquash: true, AnonUID: 1001, AnonGID: 100}, "anonUid 1000"},
		{"all are of another group", ordinary, Options{AllSquash: true, AnonUID: 1000, AnonGID: 1}, "anonGid 100"},
		{"all are nobody", ordinary, Options{AllSquash: true}, "allSquash"},
		{"root is another user", ordinary, Options{RootSquash: true, AnonUID: 1000}, "none of rootSquash"},
		{"the anonymous user has a number", ordinary, Options{AnonUID: 7}, "anonUid"},
		{"the only user is root", root, Options{}, "SETUID and SETGID"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			err := tt.only.Refuses(&tt.options)
			if (err == nil) != (tt.refused == "") || err != nil && !strings.Contains(err.Error(), tt.refused) {
				t.Errorf("%v, want %q", err, tt.refused)
			}
			// No client uses what is refused, not by a handle of before either.
			var log strings.Builder
			table := &Table{Only: tt.only, Log: slog.New(slog.NewTextHandler(&log, nil))}
			mustDo(t, table.Export(Exported{ID: 1, Path: "/v", Dir: t.TempDir(), Options: tt.options}))
			defer table.Remove(1)
			key := NewKey(make([]byte, 32))
			o := NewOpener(table, key, slog.New(slog.DiscardHandler))
			defer o.Close()
			v, _ := table.ByID(1)
			client := netip.MustParseAddr("192.0.2.1")
			f, openErr := o.Open(client, key.Handle(1, v.rootID), UseAttr)
			if f != nil {
				f.Close()
			}
			if refused := errors.Is(openErr, unix.EACCES); refused != (err != nil) || v.Allows(client) == refused {
				t.Errorf("opened: %v", openErr)
			}
			if logged := strings.Contains(log.String(), "no client may use a volume"); logged != (err != nil) {
				t.Errorf("log: %s", log.String())
			}
		})
	}
}

// The only user may use files whose modes do not let it, as owners may who have made them.
func TestOwnFilesWhateverTheirModes(t *testing.T) {
	if os.Getuid() == 0 {
		testdisk.Child(t, testdisk.User{ID: testdisk.Nobody, Keeps: []uintptr{unix.CAP_DAC_READ_SEARCH}}, "^"+t.Name()+"$")
		return
	}
	if err := ProbeHandles(t.TempDir()); err != nil {
		t.Skip(err)
	}
	table, v, dir := volumeAt(t)
	table.Only, table.Modes = TryRights(dir).Only, filepath.Join(t.TempDir(), "modes")
	o := NewOpener(table, NewKey(make([]byte, 32)), slog.New(slog.DiscardHandler))
	defer o.Close()
	root, err := o.Root(v)
	mustDo(t, err)
	file, sub := filepath.Join(dir, "file"), filepath.Join(dir, "sub")
	mustDo(t, os.WriteFile(file, []byte("content"), 0o600))
	mustDo(t, os.Mkdir(sub, 0o700))
	for _, mode := range []os.FileMode{0, 0o200, 0o400, 0o070} {
		mustDo(t, os.Chmod(file, mode))
		for _, use := range []Use{UseWrite, UseRead} {
			f, err := o.Open(netip.Addr{}, handleOf(t, o, root, "file"), use)
			if err != nil {
				t.Errorf("mode %o, use %d: %v", mode, use, err)
				continue
			}
			id := f.ID
			f.Close()
			o.files.drop(v, id)
			if info, err := os.Stat(file); err != nil || info.Mode() != mode {
				t.Errorf("mode %o is %v, %v afterwards", mode, info.Mode(), err)
			}
		}
	}
	mustDo(t, os.Chmod(sub, 0o300))
	d, err := o.Open(netip.Addr{}, handleOf(t, o, root, "sub"), UseNames)
	mustDo(t, err)
	d.Close()
	mustDo(t, os.Chmod(sub, 0o700))
	// A file of another owner stays closed.
	shadow, err := unix.Open("/etc/shadow", unix.O_PATH, 0)
	if err == nil {
		defer unix.Close(shadow)
		if _, err := o.openOwn(v, FileID{}, shadow, UseRead); !errors.Is(err, unix.EACCES) {
			t.Errorf("another's file: %v", err)
		}
	}
}

package actas_test

import (
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/podnas/podnas/server/actas"
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
		r := actas.TryRights(dir)
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

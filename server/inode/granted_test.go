package inode

import (
	"testing"
	"time"

	"github.com/podnas/podnas/server/actas"
	"github.com/podnas/podnas/server/disk"
)

// What the kernel has said to a caller is known while the file says that it would say it again.
func TestGranted(t *testing.T) {
	old := time.Now().Add(-time.Minute)
	attr := disk.Attr{Mode: 0o100640, UID: 2000, GID: 3000, Ctime: old}
	caller := actas.Identity{UID: 1000, GID: 3000}
	for _, tt := range []struct {
		name   string
		change func(id *actas.Identity, a *disk.Attr, mode *uint32)
		later  bool // than an answer is used for a file that changes
		want   bool
	}{
		{"the same", func(*actas.Identity, *disk.Attr, *uint32) {}, false, true},
		{"the same, later", func(*actas.Identity, *disk.Attr, *uint32) {}, true, true},
		{"for writing", func(_ *actas.Identity, _ *disk.Attr, mode *uint32) { *mode = MayWrite }, false, false},
		{"another user", func(id *actas.Identity, _ *disk.Attr, _ *uint32) { id.UID++ }, false, false},
		{"another group", func(id *actas.Identity, _ *disk.Attr, _ *uint32) { id.GID++ }, false, false},
		{"one group more", func(id *actas.Identity, _ *disk.Attr, _ *uint32) {
			*id = actas.Squash{}.Identity(1000, 3000, []uint32{5})
		}, false, false},
		{"chmod", func(_ *actas.Identity, a *disk.Attr, _ *uint32) { a.Mode = 0o100600 }, false, false},
		{"chown", func(_ *actas.Identity, a *disk.Attr, _ *uint32) { a.UID++ }, false, false},
		{"chgrp", func(_ *actas.Identity, a *disk.Attr, _ *uint32) { a.GID++ }, false, false},
		{"written", func(_ *actas.Identity, a *disk.Attr, _ *uint32) { a.Ctime = time.Now() }, false, true},
		{"changed, which may be an ACL, and later", func(_ *actas.Identity, a *disk.Attr, _ *uint32) { a.Ctime = time.Now() }, true, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var h Held
			h.Grant(&caller, MayRead, &attr)
			if tt.later {
				h.grants.read.Load().asked = time.Now().Add(-2 * grantKept)
			}
			id, a, mode := caller, attr, uint32(MayRead)
			tt.change(&id, &a, &mode)
			if got := h.granted(&id, mode, &a); got != tt.want {
				t.Errorf("granted: %v, want %v", got, tt.want)
			}
		})
	}
	// A file that has just changed may change again within the same tick of the clock.
	var h Held
	attr.Ctime = time.Now()
	h.Grant(&caller, MayRead, &attr)
	h.grants.read.Load().asked = time.Now().Add(-2 * grantKept)
	if h.granted(&caller, MayRead, &attr) {
		t.Error("granted for good by a ctime that two changes may have")
	}
}

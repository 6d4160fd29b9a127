package inode

import (
	"bytes"
	"errors"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/podnas/podnas/server/actas"
	"github.com/podnas/podnas/test/testdisk"
)

func userACL(perm uint16) []ACLEntry {
	return []ACLEntry{{ACLUserObj, 7, 0}, {ACLUser, perm, 1003}, {ACLGroupObj, 5, 0}, {ACLMask, 7, 0}, {ACLOther, 0, 0}}
}

// The format on the disk is that of the kernel.
func TestACLFormat(t *testing.T) {
	b := encodeACL(userACL(6))
	want := []byte{
		2, 0, 0, 0, 1, 0, 7, 0, 255, 255, 255, 255, 2, 0, 6, 0, 0xeb, 3, 0, 0, 4, 0, 5, 0, 255, 255, 255, 255,
		16, 0, 7, 0, 255, 255, 255, 255, 32, 0, 0, 0, 255, 255, 255, 255,
	}
	if !bytes.Equal(b, want) {
		t.Errorf("%x, want %x", b, want)
	}
	if acl, err := decodeACL(b); err != nil || !slices.Equal(acl, userACL(6)) {
		t.Errorf("%v, %v", acl, err)
	}
	for _, bad := range [][]byte{nil, {2, 0, 0}, {1, 0, 0, 0}, want[:len(want)-1]} {
		if acl, err := decodeACL(bad); err == nil {
			t.Errorf("%x: %v", bad, acl)
		}
	}
}

// FuzzACL decodes anything: what comes out goes back to the same bytes, but for the IDs of entries that have none.
func FuzzACL(f *testing.F) {
	f.Add(encodeACL(userACL(6)))
	f.Fuzz(func(t *testing.T, b []byte) {
		acl, err := decodeACL(b)
		if err != nil {
			return
		}
		again, err := decodeACL(encodeACL(acl))
		valid := SortACL(slices.Clone(acl))
		if err != nil || valid && !slices.EqualFunc(acl, again, func(a, b ACLEntry) bool {
			return a.Tag == b.Tag && a.Perm == b.Perm && (a.ID == b.ID || a.Tag != ACLUser && a.Tag != ACLGroup)
		}) {
			t.Errorf("%v became %v, %v", acl, again, err)
		}
	})
}

// Files that are made in a directory with a default ACL are charged for theirs, and no more when they are removed.
func TestACLsAreCharged(t *testing.T) {
	testdisk.Each(t, func(t *testing.T, dir string) {
		x := newXattrsIn(t, dir, 1<<40)
		set := func(handle []byte, kind ACLKind, acl []ACLEntry) error {
			return x.does(handle, func(f *File) error { return f.SetACL(actas.AsProcess(), kind, acl) })
		}
		if err := set(x.root, DefaultACL, userACL(6)); errors.Is(err, unix.EOPNOTSUPP) {
			t.Skip("there are no ACLs here")
		} else {
			mustDo(t, err)
		}
		before := x.used()
		for i := range 20 {
			file := x.make("file")
			if i%2 == 0 {
				mustDo(t, set(file, AccessACL, append(userACL(6)[:2:2], append([]ACLEntry{{ACLUser, 1, 1004}}, userACL(6)[2:]...)...)))
			}
			if i%3 == 0 {
				mustDo(t, set(file, AccessACL, nil))
			}
			x.removed("file")
		}
		if used := x.used(); used < before || used > before+8*blockSize {
			t.Errorf("%d bytes are charged, before %d", used, before)
		}
		made := x.make("made")
		mustDo(t, x.does(made, func(f *File) error {
			acl, err := f.ACL(AccessACL)
			if len(acl) != 5 || acl[1] != (ACLEntry{ACLUser, 6, 1003}) {
				t.Errorf("it has inherited %v", acl)
			}
			return err
		}))
		mustDo(t, set(x.root, DefaultACL, nil))
		mustDo(t, set(x.root, DefaultACL, nil)) // where there is none
	})
}

package inode_test

import (
	"bytes"
	"errors"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/podnas/podnas/server/actas"
	"github.com/podnas/podnas/server/inode"
	"github.com/podnas/podnas/test/testdisk"
)

func userACL(perm uint16) []inode.ACLEntry {
	return []inode.ACLEntry{{inode.ACLUserObj, 7, 0}, {inode.ACLUser, perm, 1003}, {inode.ACLGroupObj, 5, 0}, {inode.ACLMask, 7, 0}, {inode.ACLOther, 0, 0}}
}

// The format on the disk is that of the kernel.
func TestACLFormat(t *testing.T) {
	b := inode.EncodeACL(userACL(6))
	want := []byte{
		2, 0, 0, 0, 1, 0, 7, 0, 255, 255, 255, 255, 2, 0, 6, 0, 0xeb, 3, 0, 0, 4, 0, 5, 0, 255, 255, 255, 255,
		16, 0, 7, 0, 255, 255, 255, 255, 32, 0, 0, 0, 255, 255, 255, 255,
	}
	if !bytes.Equal(b, want) {
		t.Errorf("%x, want %x", b, want)
	}
	if acl, err := inode.DecodeACL(b); err != nil || !slices.Equal(acl, userACL(6)) {
		t.Errorf("%v, %v", acl, err)
	}
	for _, bad := range [][]byte{nil, {2, 0, 0}, {1, 0, 0, 0}, want[:len(want)-1]} {
		if acl, err := inode.DecodeACL(bad); err == nil {
			t.Errorf("%x: %v", bad, acl)
		}
	}
}

// FuzzACL decodes anything: what comes out goes back to the same bytes, but for the IDs of entries that have none.
func FuzzACL(f *testing.F) {
	f.Add(inode.EncodeACL(userACL(6)))
	f.Fuzz(func(t *testing.T, b []byte) {
		acl, err := inode.DecodeACL(b)
		if err != nil {
			return
		}
		again, err := inode.DecodeACL(inode.EncodeACL(acl))
		valid := inode.SortACL(slices.Clone(acl))
		if err != nil || valid && !slices.EqualFunc(acl, again, func(a, b inode.ACLEntry) bool {
			return a.Tag == b.Tag && a.Perm == b.Perm && (a.ID == b.ID || a.Tag != inode.ACLUser && a.Tag != inode.ACLGroup)
		}) {
			t.Errorf("%v became %v, %v", acl, again, err)
		}
	})
}

// Files that are made in a directory with a default ACL are charged for theirs, and no more when they are removed.
func TestACLsAreCharged(t *testing.T) {
	testdisk.Each(t, func(t *testing.T, dir string) {
		x := newXattrsIn(t, dir, 1<<40)
		set := func(handle []byte, kind inode.ACLKind, acl []inode.ACLEntry) error {
			return x.does(handle, func(f *inode.File) error { return f.SetACL(actas.AsProcess(), kind, acl) })
		}
		if err := set(x.root, inode.DefaultACL, userACL(6)); errors.Is(err, unix.EOPNOTSUPP) {
			t.Skip("there are no ACLs here")
		} else {
			mustDo(t, err)
		}
		before := x.used()
		for i := range 20 {
			file := x.make("file")
			if i%2 == 0 {
				mustDo(t, set(file, inode.AccessACL, append(userACL(6)[:2:2], append([]inode.ACLEntry{{inode.ACLUser, 1, 1004}}, userACL(6)[2:]...)...)))
			}
			if i%3 == 0 {
				mustDo(t, set(file, inode.AccessACL, nil))
			}
			x.removed("file")
		}
		if used := x.used(); used < before || used > before+8*blockSize {
			t.Errorf("%d bytes are charged, before %d", used, before)
		}
		made := x.make("made")
		mustDo(t, x.does(made, func(f *inode.File) error {
			acl, err := f.ACL(inode.AccessACL)
			if len(acl) != 5 || acl[1] != (inode.ACLEntry{inode.ACLUser, 6, 1003}) {
				t.Errorf("it has inherited %v", acl)
			}
			return err
		}))
		mustDo(t, set(x.root, inode.DefaultACL, nil))
		mustDo(t, set(x.root, inode.DefaultACL, nil)) // where there is none
	})
}

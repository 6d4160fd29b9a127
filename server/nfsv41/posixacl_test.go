package nfsv41

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/podnas/podnas/nfs/nfs4"
	"github.com/podnas/podnas/server/inode"
	"github.com/podnas/podnas/server/vfs"
)

// parseACEs reads ACEs as nfs4_getfacl(1) writes them, with r, w, x for a permission of a POSIX ACL and single letters for
// rights: "A::OWNER@:rw D:g:100:x".
func parseACEs(text string, ofDir bool) (aces []nfs4.ACE) {
	kinds := map[string]uint32{"A": nfs4.ACEAllowed, "D": nfs4.ACEDenied, "U": nfs4.ACEAudit, "L": nfs4.ACEAlarm}
	flags := map[rune]uint32{
		'f': nfs4.ACEFileInherit, 'd': nfs4.ACEDirectoryInherit, 'n': nfs4.ACENoPropagate, 'i': nfs4.ACEInheritOnly,
		'g': nfs4.ACEIdentifierGroup, 'S': 0x10, 'I': 0x80,
	}
	rights := map[rune]uint32{
		'r': rightsOf(4, ofDir), 'w': rightsOf(2, ofDir), 'x': rightsOf(1, ofDir), 'W': nfs4.ACEWriteData, 'a': nfs4.ACEAppendData,
		'D': nfs4.ACEDeleteChild, 't': nfs4.ACEReadAttributes, 'T': nfs4.ACEWriteAttributes, 'c': nfs4.ACEReadACL,
		'C': nfs4.ACEWriteACL, 'y': nfs4.ACESynchronize, 'o': 0x8_0000, '?': 1 << 31,
		'.': aceOfAll | nfs4.ACESynchronize, ',': aceOfOwner,
	}
	for one := range strings.FieldsSeq(text) {
		part := strings.Split(one, ":")
		a := nfs4.ACE{Type: kinds[part[0]], Who: []byte(part[2])}
		for _, c := range part[1] {
			a.Flag |= flags[c]
		}
		for _, c := range part[3] {
			a.Mask |= rights[c]
		}
		aces = append(aces, a)
	}
	return aces
}

// showACL writes a POSIX ACL as getfacl(1) does, in short.
func showACL(acl []inode.ACLEntry) string {
	tags := map[uint16]string{1: "u:", 2: "u:", 4: "g:", 8: "g:", 16: "m:", 32: "o:"}
	var parts []string
	for _, e := range acl {
		id := ""
		if e.Tag == inode.ACLUser || e.Tag == inode.ACLGroup {
			id = fmt.Sprint(e.ID)
		}
		perm := []byte("---")
		for i, c := range "rwx" {
			if e.Perm&(4>>i) != 0 {
				perm[i] = byte(c)
			}
		}
		parts = append(parts, tags[e.Tag]+id+":"+string(perm))
	}
	return strings.Join(parts, " ")
}

func parseACL(text string) (acl []inode.ACLEntry) {
	for one := range strings.FieldsSeq(text) {
		part := strings.Split(one, ":")
		tag := map[string]uint16{"u": 1, "g": 4, "m": 16, "o": 32}[part[0]]
		e := inode.ACLEntry{Tag: tag}
		if part[1] != "" {
			e.Tag *= 2
			_, _ = fmt.Sscan(part[1], &e.ID)
		}
		for i, c := range "rwx" {
			if rune(part[2][i]) == c {
				e.Perm |= 4 >> i
			}
		}
		acl = append(acl, e)
	}
	return acl
}

func sameACEs(a, b []nfs4.ACE) bool {
	return slices.EqualFunc(a, b, func(a, b nfs4.ACE) bool {
		return a.Type == b.Type && a.Flag == b.Flag && a.Mask == b.Mask && bytes.Equal(a.Who, b.Who)
	})
}

func TestACEsOf(t *testing.T) {
	for _, tt := range []struct{ acl, want string }{
		{"u::rw- g::r-- o::r--", "A::OWNER@:rw., A::GROUP@:r. A::EVERYONE@:r."},
		{"u::rwx g::--- o::---", "A::OWNER@:rwx., A::GROUP@:. A::EVERYONE@:."},
		{"u::--- g::rw- o::r-x", "D::OWNER@:rwx A::OWNER@:., A::GROUP@:rw. D::GROUP@:x A::EVERYONE@:rx."},
		{"u::rw- u:5:r-- g::rw- g:6:--- m::rwx o::-w-", "A::OWNER@:rw., D::5:w A::5:r. A::GROUP@:rw. A:g:6:. D:g:6:w A::EVERYONE@:w."},
		{"u::rw- u:5:rwx g::rwx m::r-- o::---", "A::OWNER@:rw., A::5:r. A::GROUP@:r. A::EVERYONE@:."},
		{"u::rw- g::rwx m::r-- o::---", "A::OWNER@:rw., A::GROUP@:r. A::EVERYONE@:."},
	} {
		got := acesOf(vfs.ACLs{Access: parseACL(tt.acl)}, false)
		if want := parseACEs(tt.want, false); !sameACEs(got, want) {
			t.Errorf("%s:\n%+v, want\n%+v", tt.acl, got, want)
		}
	}
	got := acesOf(vfs.ACLs{Access: parseACL("u::rwx g::r-x o::---"), Default: parseACL("u::rwx g::r-x g:9:-w- m::rwx o::---")}, true)
	want := "A::OWNER@:rwx., A::GROUP@:rx. A::EVERYONE@:. A:fdi:OWNER@:rwx., A:fdi:GROUP@:rx. A:fdig:9:w. A:fdi:EVERYONE@:."
	if !sameACEs(got, parseACEs(want, true)) {
		t.Errorf("a directory: %+v", got)
	}
	if got[0].Mask&nfs4.ACEDeleteChild == 0 {
		t.Error("who may write to a directory may remove names")
	}
}

func TestPosixACLs(t *testing.T) {
	for _, tt := range []struct{ aces, want string }{
		{"A::OWNER@:rw A::GROUP@:r A::EVERYONE@:r", "u::rw- g::r-- o::r--"},
		{"A:g:GROUP@:r", "u::--- g::r-- o::---"}, // the flag means nothing there: section 6.2.1.4.1
		{"", "u::--- g::--- o::---"},
		{"A::EVERYONE@:rwx", "u::rwx g::rwx o::rwx"},
		{"D::EVERYONE@:w A::EVERYONE@:rwx", "u::r-x g::r-x o::r-x"},
		{"A::EVERYONE@:rwx D::EVERYONE@:w", "u::rwx g::rwx o::rwx"},
		{"A::OWNER@:W", "u::--- g::--- o::---"}, // WRITE takes both
		{"A::OWNER@:W A::OWNER@:a", "u::-w- g::--- o::---"},
		{"A::5:rw A::OWNER@:rw", "u::rw- u:5:rw- g::--- m::rw- o::---"},
		{"A::7:x A::5:r A::7:r", "u::--- u:5:r-- u:7:r-x g::--- m::r-x o::---"},
		{"D::5:r A::OWNER@:r", "u::--- u:5:--- g::--- m::--- o::---"}, // 5 may own the file
		{"A::OWNER@:r D::5:r", "u::r-- u:5:--- g::--- m::--- o::---"},
		{"D:g:5:r A::EVERYONE@:r A::6:r", "u::--- u:6:--- g::--- g:5:--- m::--- o::r--"}, // all may be in group 5
		{"A::EVERYONE@:r D:g:5:r", "u::r-- g::r-- g:5:r-- m::r-- o::r--"},
		{"A::EVERYONE@:r A::5:w", "u::r-- u:5:rw- g::r-- m::rw- o::r--"},
		{"D::GROUP@:x A:g:5:rx A::GROUP@:r", "u::--- g::r-- g:5:r-- m::r-- o::---"},
		{"A:g:5:rx D:g:5:x A::6:x D:g:6:w", "u::--- u:6:--x g::--- g:5:r-x g:6:--- m::r-x o::---"},
		{"A::OWNER@:rwx D::OWNER@:rwx D::GROUP@:rwx D::EVERYONE@:rwxo", "u::rwx g::--- o::---"},
		{"A::OWNER@:r A::OWNER@:w A::OWNER@:x", "u::rwx g::--- o::---"},
		{"A::OWNER@:tTcC D::GROUP@:TC", "u::--- g::--- o::---"},
		{"A::EVERYONE@:tc D::EVERYONE@:tc", "u::--- g::--- o::---"},
	} {
		got, err := posixACLs(parseACEs(tt.aces, false), false)
		if show := showACL(got.Access); err != nil || show != tt.want || got.Default != nil {
			t.Errorf("%s: %s, %v, want %s", tt.aces, show, err, tt.want)
		}
	}
}

func TestPosixACLsOfDirectory(t *testing.T) {
	for _, tt := range []struct{ aces, access, inherited string }{
		{"A::OWNER@:rwx", "u::rwx g::--- o::---", ""},
		{"A:fdi:OWNER@:rwx", "u::--- g::--- o::---", "u::rwx g::--- o::---"},
		{"A:fd:OWNER@:rwx A:fd:GROUP@:rx A:fd:EVERYONE@:x", "u::rwx g::r-x o::--x", "u::rwx g::r-x o::--x"},
		{"A:f:OWNER@:rwx A:d:GROUP@:rx A::EVERYONE@:x", "u::rwx g::r-x o::--x", "u::rwx g::r-x o::--x"},
		{"A::OWNER@:rwx A::GROUP@:rx A::EVERYONE@:x A:fdi:5:rw", "u::rwx g::r-x o::--x", "u::rwx u:5:rw- g::r-x m::rwx o::--x"},
		{"A::OWNER@:rwx A::GROUP@:rwx D:fdig:5:w", "u::rwx g::rwx o::---", "u::r-x g::r-x g:5:--- m::r-x o::---"},
		{"A::OWNER@:rwx A::EVERYONE@:x A:fdi:EVERYONE@:r", "u::rwx g::--x o::--x", "u::r-- g::r-- o::r--"},
	} {
		got, err := posixACLs(parseACEs(tt.aces, true), true)
		if a, d := showACL(got.Access), showACL(got.Default); err != nil || a != tt.access || d != tt.inherited {
			t.Errorf("%s:\n%s, %s, %v, want\n%s, %s", tt.aces, a, d, err, tt.access, tt.inherited)
		}
	}
	// WRITE takes the right to remove names.
	if got, err := posixACLs([]nfs4.ACE{{Mask: aceWrite, Who: []byte(whoOwner)}}, true); err != nil || got.Access[0].Perm != 0 {
		t.Errorf("%v, %v", got, err)
	}
}

func TestPosixACLsRefused(t *testing.T) {
	for _, tt := range []struct {
		aces  string
		ofDir bool
		want  nfs4.Status
	}{
		{"U::OWNER@:r", false, nfs4.ErrAttrNotSupp},
		{"L::OWNER@:r", false, nfs4.ErrAttrNotSupp},
		{"A:f:OWNER@:r", false, nfs4.ErrInval},
		{"A:d:OWNER@:r", false, nfs4.ErrInval},
		{"A:i:OWNER@:r", true, nfs4.ErrInval},
		{"A:fdn:OWNER@:r", true, nfs4.ErrInval},
		{"A:S:OWNER@:r", true, nfs4.ErrInval},
		{"A:I:OWNER@:r", true, nfs4.ErrInval},
		{"A::OWNER@:?", false, nfs4.ErrInval},
		{"D::EVERYONE@:t", false, nfs4.ErrAttrNotSupp},
		{"D::5:c", false, nfs4.ErrAttrNotSupp},
		{"D:g:5:c", false, nfs4.ErrAttrNotSupp},
		{"D::OWNER@:T", false, nfs4.ErrAttrNotSupp},
		{"D::OWNER@:C", false, nfs4.ErrAttrNotSupp},
		{"A::OWNER@:r D:fdi:GROUP@:t", true, nfs4.ErrAttrNotSupp},
		{"A::alice@example.com:r", false, nfs4.ErrBadOwner},
		{"A:::r", false, nfs4.ErrBadOwner},
		{"A::05:r", false, nfs4.ErrBadOwner},
		{"A::-1:r", false, nfs4.ErrBadOwner},
		{"A::4294967295:r", false, nfs4.ErrBadOwner},
		{"A:g:4294967296:r", false, nfs4.ErrBadOwner},
		{"A::INTERACTIVE@:r", false, nfs4.ErrBadOwner},
		{"A::owner@:r", false, nfs4.ErrBadOwner},
	} {
		got, err := posixACLs(parseACEs(tt.aces, tt.ofDir), tt.ofDir)
		if status := statusOf(err); status != tt.want || got.Default != nil {
			t.Errorf("%s: %v, %v, want %v", tt.aces, got, err, tt.want)
		}
	}
	var aces []nfs4.ACE
	for i := range aclMax {
		aces = append(aces, nfs4.ACE{Mask: aceRead, Who: fmt.Append(nil, i)})
	}
	if _, err := posixACLs(aces, false); !errors.Is(err, statusError(nfs4.ErrNoSpc)) {
		t.Errorf("an entry for each of %d users: %v", aclMax, err)
	}
	if _, err := posixACLs(aces[:aclMax-4], false); err != nil {
		t.Error(err)
	}
}

// The most ACEs that there can be take little time, whatever they are.
func TestPosixACLsOfMany(t *testing.T) {
	for name, of := range map[string]func(i int) nfs4.ACE{
		"users": func(i int) nfs4.ACE { return nfs4.ACE{Mask: aceRead, Who: fmt.Append(nil, i)} },
		"groups that are denied": func(i int) nfs4.ACE {
			return nfs4.ACE{Type: nfs4.ACEDenied, Flag: nfs4.ACEIdentifierGroup, Mask: aceRead | 1<<(i%3), Who: fmt.Append(nil, i)}
		},
		"users and everyone": func(i int) nfs4.ACE {
			return nfs4.ACE{Type: uint32(i % 2), Mask: 1 << (i % 7), Who: []byte([]string{whoEveryone, fmt.Sprint(i)}[i%2])}
		},
	} {
		var aces []nfs4.ACE
		for i := range nfs4.MaxAttrs / 16 {
			aces = append(aces, of(i))
		}
		began := time.Now()
		for range 10 {
			_, _ = posixACLs(aces, false)
		}
		if took := time.Since(began) / 10; took > 50*time.Millisecond {
			t.Errorf("%s: %v", name, took)
		}
	}
}

// somebody is who may use a file.
type somebody struct {
	uid    uint32
	owner  bool
	member bool // of the file's group
	groups []uint32
}

// byACEs are the rights of ACEs for somebody, by section 6.2.1: the first ACE for who asks decides on a right, and what none
// gives is denied.
func (s somebody) byACEs(aces []nfs4.ACE, flag func(*nfs4.ACE) bool) (allowed uint32) {
	var denied uint32
	for i := range aces {
		a := &aces[i]
		var is bool
		switch who := string(a.Who); {
		case who == whoOwner:
			is = s.owner
		case who == whoGroup:
			is = s.member
		case who == whoEveryone:
			is = true
		case a.Flag&nfs4.ACEIdentifierGroup != 0:
			is = slices.ContainsFunc(s.groups, func(g uint32) bool { return fmt.Sprint(g) == who })
		default:
			is = fmt.Sprint(s.uid) == who
		}
		switch {
		case !is || !flag(a):
		case a.Type == nfs4.ACEAllowed:
			allowed |= a.Mask &^ denied
		default:
			denied |= a.Mask &^ allowed
		}
	}
	return allowed
}

// byACL reports whether somebody has permissions by a POSIX ACL: acl(5), "ACCESS CHECK ALGORITHM".
func (s somebody) byACL(acl []inode.ACLEntry, perm uint16) bool {
	perms := effective(acl)
	find := func(is func(e inode.ACLEntry) bool) (found, may bool) {
		for i, e := range acl {
			if is(e) {
				found, may = true, may || perms[i]&perm == perm
			}
		}
		return found, may
	}
	if s.owner {
		_, may := find(func(e inode.ACLEntry) bool { return e.Tag == inode.ACLUserObj })
		return may
	}
	if found, may := find(func(e inode.ACLEntry) bool { return e.Tag == inode.ACLUser && e.ID == s.uid }); found {
		return may
	}
	if found, may := find(func(e inode.ACLEntry) bool {
		return e.Tag == inode.ACLGroupObj && s.member || e.Tag == inode.ACLGroup && slices.Contains(s.groups, e.ID)
	}); found {
		return may
	}
	_, may := find(func(e inode.ACLEntry) bool { return e.Tag == inode.ACLOther })
	return may
}

// everybody are all kinds of users that ACLs of users and groups 1 to 3 can tell apart.
func everybody() (all []somebody) {
	for uid := range uint32(4) {
		for bits := range 32 {
			s := somebody{uid: uid + 1, owner: bits&1 != 0, member: bits&2 != 0}
			for g := range uint32(3) {
				if bits&(4<<g) != 0 {
					s.groups = append(s.groups, g+1)
				}
			}
			all = append(all, s)
		}
	}
	return all
}

// checkNotWider checks that nobody gets from a POSIX ACL what the ACEs that count do not give.
func checkNotWider(t *testing.T, aces []nfs4.ACE, acl []inode.ACLEntry, ofDir bool, counts func(*nfs4.ACE) bool) {
	t.Helper()
	if !inode.SortACL(slices.Clone(acl)) {
		t.Fatalf("%+v became %s, which is no ACL", aces, showACL(acl))
	}
	for _, s := range everybody() {
		rights := s.byACEs(aces, counts)
		for perm := uint16(1); perm <= 7; perm++ {
			if need := rightsOf(perm, ofDir); s.byACL(acl, perm) && rights&need != need {
				t.Fatalf("%+v became %s: %+v has %o, and by the ACEs only %x", aces, showACL(acl), s, perm, rights)
			}
		}
	}
}

func acesFor(r interface{ IntN(n int) int }, ofDir bool) (aces []nfs4.ACE) {
	whos := []string{whoOwner, whoGroup, whoEveryone, "1", "2", "3"}
	masks := []uint32{aceRead, aceWrite, aceExec, nfs4.ACEWriteData, nfs4.ACEAppendData, nfs4.ACEDeleteChild, nfs4.ACESynchronize}
	for range r.IntN(9) {
		a := nfs4.ACE{Type: uint32(r.IntN(2)), Who: []byte(whos[r.IntN(len(whos))])}
		for range 1 + r.IntN(4) {
			a.Mask |= masks[r.IntN(len(masks))]
		}
		if r.IntN(2) == 0 {
			a.Flag |= nfs4.ACEIdentifierGroup
		}
		if ofDir {
			a.Flag |= []uint32{0, aceInherits, aceInherits | nfs4.ACEInheritOnly}[r.IntN(3)]
		}
		aces = append(aces, a)
	}
	return aces
}

// Nobody gets a right by an ACL that is set which its ACEs do not give.
func TestNeverWider(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	useful := 0
	for range 20_000 {
		ofDir := r.IntN(2) == 0
		aces := acesFor(r, ofDir)
		acls, err := posixACLs(aces, ofDir)
		if err != nil {
			t.Fatalf("%+v: %v", aces, err)
		}
		checkNotWider(t, aces, acls.Access, ofDir, func(a *nfs4.ACE) bool { return a.Flag&nfs4.ACEInheritOnly == 0 })
		if acls.Access[0].Perm != 0 {
			useful++
		}
		// A default ACL gets what it must have, and the ACEs have not, from the other one.
		complete := map[string]bool{}
		for _, a := range aces {
			if a.Flag&aceInherits != 0 {
				complete[string(a.Who)] = true
			}
		}
		if acls.Default != nil && complete[whoEveryone] {
			checkNotWider(t, aces, acls.Default, ofDir, func(a *nfs4.ACE) bool { return a.Flag&aceInherits != 0 })
		}
	}
	if useful < 4000 {
		t.Errorf("only %d ACLs give the owner anything", useful)
	}
}

// What is shown of any ACL gives each user what the ACL does, and sets the same again, but for bits under the mask.
func TestShownAndSet(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	perm := func() uint16 { return uint16(r.IntN(8)) }
	random := func() []inode.ACLEntry {
		acl := []inode.ACLEntry{{Tag: inode.ACLUserObj, Perm: perm()}, {Tag: inode.ACLGroupObj, Perm: perm()}, {Tag: inode.ACLOther, Perm: perm()}}
		for id := range uint32(3) {
			for _, tag := range []uint16{inode.ACLUser, inode.ACLGroup} {
				if r.IntN(3) == 0 {
					acl = append(acl, inode.ACLEntry{Tag: tag, Perm: perm(), ID: id + 1})
				}
			}
		}
		if len(acl) > 3 || r.IntN(3) == 0 {
			acl = append(acl, inode.ACLEntry{Tag: inode.ACLMask, Perm: perm()})
		}
		inode.SortACL(acl)
		return acl
	}
	for range 5000 {
		ofDir := r.IntN(2) == 0
		acls := vfs.ACLs{Access: random()}
		if ofDir && r.IntN(2) == 0 {
			acls.Default = random()
		}
		aces := acesOf(acls, ofDir)
		again, err := posixACLs(aces, ofDir)
		if err != nil {
			t.Fatalf("%v: %v", acls, err)
		}
		for _, pair := range [][2][]inode.ACLEntry{{acls.Access, again.Access}, {acls.Default, again.Default}} {
			if was, is := showACL(underMask(pair[0])), showACL(pair[1]); was != is {
				t.Fatalf("%s became %s, by %+v", was, is, aces)
			}
		}
		if !sameACEs(acesOf(again, ofDir), aces) {
			t.Fatalf("%v is shown as another one when it is set again", acls)
		}
		checkNotWider(t, aces, acls.Access, ofDir, func(a *nfs4.ACE) bool { return a.Flag&nfs4.ACEInheritOnly == 0 })
		for _, s := range everybody() { // and the other way: one permission at a time, as several groups may give them
			rights := s.byACEs(aces, func(a *nfs4.ACE) bool { return a.Flag&nfs4.ACEInheritOnly == 0 })
			for perm := uint16(1); perm <= 4; perm <<= 1 {
				if need := rightsOf(perm, ofDir); rights&need == need && !s.byACL(acls.Access, perm) {
					t.Fatalf("%s is shown as %+v, by which %+v has %o", showACL(acls.Access), aces, s, perm)
				}
			}
		}
	}
}

// underMask is an ACL without the bits that its mask takes from its entries.
func underMask(acl []inode.ACLEntry) []inode.ACLEntry {
	acl = slices.Clone(acl)
	var mask uint16
	for i, p := range effective(acl) {
		acl[i].Perm = p
		if tag := acl[i].Tag; tag == inode.ACLUser || tag == inode.ACLGroup || tag == inode.ACLGroupObj {
			mask |= p
		}
	}
	named := slices.ContainsFunc(acl, func(e inode.ACLEntry) bool { return e.Tag == inode.ACLUser || e.Tag == inode.ACLGroup })
	for i := range acl {
		if acl[i].Tag == inode.ACLMask {
			if !named {
				return slices.Delete(acl, i, i+1)
			}
			acl[i].Perm = mask
			break
		}
	}
	return acl
}

// fuzzed are random numbers that a fuzzer chooses.
type fuzzed []byte

func (f *fuzzed) IntN(n int) int {
	if len(*f) == 0 {
		return 0
	}
	v := int((*f)[0]) % n
	*f = (*f)[1:]
	return v
}

// FuzzPosixACLs has a fuzzer choose the ACEs.
func FuzzPosixACLs(f *testing.F) {
	f.Add([]byte("8 ACEs of owners and groups, rights and flags: any bytes will do"), false)
	f.Fuzz(func(t *testing.T, b []byte, ofDir bool) {
		aces := acesFor((*fuzzed)(&b), ofDir)
		acls, err := posixACLs(aces, ofDir)
		if err != nil {
			t.Fatalf("%+v: %v", aces, err)
		}
		checkNotWider(t, aces, acls.Access, ofDir, func(a *nfs4.ACE) bool { return a.Flag&nfs4.ACEInheritOnly == 0 })
	})
}

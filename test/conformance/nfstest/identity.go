package nfstest

import (
	"github.com/podnas/podnas/nfs/nfs3"
)

var identityTests = []test{
	{"owner of what is made", testIdentityOwner},
	{"permission to files", testIdentityFiles},
	{"permission to directories", testIdentityDirectories},
	{"groups", testIdentityGroups},
	{"sticky directory", testIdentitySticky},
	{"change of attributes", testIdentitySetattr},
	{"nobody is not root", testIdentityMinusOne},
	{"truth of ACCESS", testAccessTruth},
}

const (
	alice, bob = 20001, 20002 // uids, and gids of the same numbers
	team       = 20100        // a gid
)

// setMode is SETATTR of a mode that must succeed.
func (e *env) setMode(fh nfs3.FH, m uint32) {
	e.Helper()
	e.ok("SETATTR of the mode", e.setattr(fh, mode(m)))
}

func testIdentityOwner(e *env) {
	e.need(FeatureIdentity)
	e.setMode(e.dir, 0o777)
	a := e.as(alice, team)
	for name, fh := range map[string]nfs3.FH{
		"file": a.create(e.dir, "file"), "directory": a.mkdir(e.dir, "dir"), "symbolic link": a.symlink(e.dir, "link", "to"),
	} {
		if attr := e.attr(fh); attr.UID != alice || attr.GID != team {
			e.Errorf("%s: owner %d:%d, want %d:%d", name, attr.UID, attr.GID, alice, team)
		}
	}
	// New files inherit the group of a setgid directory.
	e.need(FeatureModeBits)
	e.need(FeatureChown)
	shared := e.mkdir(e.dir, "shared")
	e.ok("SETATTR", e.setattr(shared, nfs3.Sattr{GID: nfs3.SetUint32{Set: true, Value: team}}))
	e.setMode(shared, 0o2777)
	b := e.as(bob, bob)
	if attr := e.attr(b.create(shared, "file")); attr.UID != bob || attr.GID != team {
		e.Errorf("file in a setgid directory: owner %d:%d, want %d:%d", attr.UID, attr.GID, bob, team)
	}
	if attr := e.attr(b.mkdir(shared, "dir")); attr.GID != team || attr.Mode&nfs3.ModeSetGID == 0 {
		e.Errorf("directory in a setgid directory: gid %d, mode %o", attr.GID, attr.Mode)
	}
}

func testIdentityFiles(e *env) {
	e.need(FeatureIdentity)
	e.setMode(e.dir, 0o777)
	a, b := e.as(alice, alice), e.as(bob, bob)
	file := a.create(e.dir, "file")
	a.write(file, 0, []byte("content"))
	for _, tt := range []struct {
		mode        uint32
		read, write bool // for others
	}{{0o600, false, false}, {0o644, true, false}, {0o622, false, true}, {0o666, true, true}} {
		a.setMode(file, tt.mode)
		if res := b.readRes(file, 0, 10); tt.read {
			e.ok("READ", res.Status)
		} else {
			e.refused("READ by another", res.Status, nfs3.ErrAcces)
		}
		if res := b.writeRes(file, 0, nfs3.Unstable, []byte("content")); tt.write {
			e.ok("WRITE", res.Status)
		} else {
			e.refused("WRITE by another", res.Status, nfs3.ErrAcces)
		}
		if status := b.setattr(file, size(7)); tt.write {
			e.ok("SETATTR of the size", status)
		} else {
			e.refused("SETATTR of the size by another", status, nfs3.ErrAcces)
		}
		// What Linux sends for open(2) with O_TRUNC.
		truncate := size(0)
		truncate.Mtime.How = nfs3.SetToServerTime
		if status := b.setattr(file, truncate); tt.write {
			e.ok("SETATTR of the size and mtime", status)
		} else {
			e.refused("SETATTR of the size and mtime by another", status, nfs3.ErrAcces, nfs3.ErrPerm)
		}
		a.write(file, 0, []byte("content"))
	}
	// As a client may have the file open, its owner can read and write whatever
	// the mode is now (RFC 1813 section 4.4).
	a.setMode(file, 0)
	a.content(file, []byte("content"))
	a.write(file, 0, []byte("content"))
	e.content(file, []byte("content"))
}

func testIdentityDirectories(e *env) {
	e.need(FeatureIdentity)
	dir := e.mkdir(e.dir, "dir")
	e.create(dir, "file")
	e.mkdir(dir, "sub")
	b := e.as(bob, bob)
	refused := func() {
		e.Helper()
		e.refused("CREATE", b.createRes(nfs3.CreateArgs{Where: *where(dir, "new"), Mode: nfs3.Guarded}).Status, nfs3.ErrAcces)
		e.refused("MKDIR", b.mkdirRes(dir, "new").Status, nfs3.ErrAcces)
		e.refused("SYMLINK", b.symlinkRes(dir, "new", "to").Status, nfs3.ErrAcces)
		e.refused("REMOVE", b.remove(dir, "file").Status, nfs3.ErrAcces)
		e.refused("RMDIR", b.rmdir(dir, "sub").Status, nfs3.ErrAcces)
		e.refused("RENAME", b.rename(dir, "file", dir, "new").Status, nfs3.ErrAcces)
	}
	refused()
	b.handle(dir, "file")
	b.names(dir)

	e.setMode(dir, 0o700)
	refused()
	e.refused("LOOKUP", b.lookup(dir, "file").Status, nfs3.ErrAcces)
	e.refused("READDIR", b.readdir(nfs3.ReaddirArgs{Dir: dir, Count: 8192}).Status, nfs3.ErrAcces)

	e.setMode(dir, 0o711) // search, but no list
	b.handle(dir, "file")
	e.refused("READDIR", b.readdir(nfs3.ReaddirArgs{Dir: dir, Count: 8192}).Status, nfs3.ErrAcces)

	e.setMode(dir, 0o777)
	b.create(dir, "new")
	e.ok("REMOVE", b.remove(dir, "file").Status)
}

func testIdentityGroups(e *env) {
	e.need(FeatureIdentity)
	e.need(FeatureChown)
	file := e.create(e.dir, "file")
	e.write(file, 0, []byte("content"))
	e.ok("SETATTR", e.setattr(file, nfs3.Sattr{Mode: nfs3.SetUint32{Set: true, Value: 0o660}, GID: nfs3.SetUint32{Set: true, Value: team}}))
	e.refused("READ by one who is not in the group", e.as(bob, bob).readRes(file, 0, 10).Status, nfs3.ErrAcces)
	var groups []uint32
	for i := range uint32(15) {
		groups = append(groups, 30000+i)
	}
	for name, member := range map[string]*env{
		"primary group":     e.as(bob, team),
		"second group":      e.as(bob, bob, team),
		"last of 16 groups": e.as(bob, bob, append(groups, team)...),
	} {
		res := member.readRes(file, 0, 10)
		if res.Status != nfs3.OK || string(res.Data) != "content" {
			e.Errorf("%s: %v, %q", name, res.Status, res.Data)
		}
		e.ok(name, member.writeRes(file, 0, nfs3.Unstable, []byte("content")).Status)
	}
	// The groups of one call don't apply to the next.
	e.refused("READ after a member's", e.as(bob, bob).readRes(file, 0, 10).Status, nfs3.ErrAcces)
}

func testIdentitySticky(e *env) {
	e.need(FeatureIdentity)
	e.need(FeatureModeBits)
	e.setMode(e.dir, 0o1777)
	a, b := e.as(alice, alice), e.as(bob, bob)
	a.create(e.dir, "file")
	e.refused("REMOVE of another's file", b.remove(e.dir, "file").Status, nfs3.ErrPerm, nfs3.ErrAcces)
	e.refused("RENAME of another's file", b.rename(e.dir, "file", e.dir, "mine").Status, nfs3.ErrPerm, nfs3.ErrAcces)
	e.ok("REMOVE of one's own", a.remove(e.dir, "file").Status)
}

func testIdentitySetattr(e *env) {
	e.need(FeatureIdentity)
	e.setMode(e.dir, 0o777)
	a, b := e.as(alice, alice, team), e.as(bob, bob)
	file := a.create(e.dir, "file")
	old := nfs3.Time{Sec: 1_000_000_000}
	e.refused("chmod by another", b.setattr(file, mode(0o777)), nfs3.ErrPerm, nfs3.ErrAcces)
	e.refused("utimes by another", b.setattr(file, nfs3.Sattr{Mtime: clientTime(old)}), nfs3.ErrPerm, nfs3.ErrAcces)
	e.refused("chown by the owner", a.setattr(file, nfs3.Sattr{UID: nfs3.SetUint32{Set: true, Value: bob}}), nfs3.ErrPerm, nfs3.ErrAcces)
	e.refused("chgrp to a group not one's own", a.setattr(file, nfs3.Sattr{GID: nfs3.SetUint32{Set: true, Value: bob}}), nfs3.ErrPerm, nfs3.ErrAcces)
	e.ok("chgrp to a group of one's own", a.setattr(file, nfs3.Sattr{GID: nfs3.SetUint32{Set: true, Value: team}}))
	e.ok("utimes by the owner", a.setattr(file, nfs3.Sattr{Mtime: clientTime(old)}))
	if attr := e.attr(file); attr.UID != alice || attr.GID != team || attr.Mode&nfs3.ModePerm != 0o644 || attr.Mtime != old {
		e.Errorf("%+v", attr)
	}
}

// The system calls that switch identity take a uid of 2^32-1 as "no change".
func testIdentityMinusOne(e *env) {
	e.need(FeatureIdentity)
	file := e.create(e.dir, "file")
	e.setMode(file, 0o600)
	for name, other := range map[string]*env{
		"uid":         e.as(1<<32-1, bob),
		"uid and gid": e.as(1<<32-1, 1<<32-1),
	} {
		// An RPC error is a refusal, too.
		if res, err := other.client.Read(e.Context(), file, 0, 1); err == nil && res.Status == nfs3.OK {
			e.Errorf("%s of 2^32-1 may read root's file", name)
		}
		args := nfs3.CreateArgs{Where: *where(e.dir, "new"), Mode: nfs3.Guarded}
		if res, err := other.client.Create(e.Context(), args); err == nil && res.Status == nfs3.OK {
			e.Errorf("%s of 2^32-1 may write to root's directory", name)
		}
	}
}

func testAccessTruth(e *env) {
	e.need(FeatureAccessTruth)
	e.need(FeatureIdentity)
	const (
		r, l, m, x, d, ex = nfs3.AccessRead, nfs3.AccessLookup, nfs3.AccessModify, nfs3.AccessExtend, nfs3.AccessDelete, nfs3.AccessExecute
	)
	file, dir := e.create(e.dir, "file"), e.mkdir(e.dir, "dir")
	b := e.as(bob, bob)
	for _, tt := range []struct {
		name string
		fh   nfs3.FH
		mode uint32
		asks uint32 // LOOKUP is for directories, EXECUTE for files (section 3.3.4)
		want uint32
	}{
		{"file", file, 0o700, r | m | x | ex, 0},
		{"file", file, 0o704, r | m | x | ex, r},
		{"file", file, 0o702, r | m | x | ex, m | x},
		{"file", file, 0o701, r | m | x | ex, ex},
		{"file", file, 0o707, r | m | x | ex, r | m | x | ex},
		{"directory", dir, 0o700, r | l | m | x | d, 0},
		{"directory", dir, 0o704, r | l | m | x | d, r},
		{"directory", dir, 0o701, r | l | m | x | d, l},
		{"directory", dir, 0o705, r | l | m | x | d, r | l},
		{"directory", dir, 0o707, r | l | m | x | d, r | l | m | x | d},
	} {
		e.setMode(tt.fh, tt.mode)
		res := b.access(tt.fh, tt.asks)
		e.ok("ACCESS", res.Status)
		if res.Access != tt.want {
			e.Errorf("%s of mode %o: %#x, want %#x", tt.name, tt.mode, res.Access, tt.want)
		}
	}
}

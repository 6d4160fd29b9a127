package nfstest4

import (
	"testing"

	"github.com/podnas/podnas/nfs/nfs4"
)

// The current stateid.

// Section 16.2.3.1.2.
func testCurrentStateid(e *env) {
	cur := nfs4.CurrentStateid()
	args := e.openArgs(opening{name: "f", create: true})
	r := e.ok(putfh(e.dir), open(args), write(cur, 0, "content"), read(cur, 0, 100), getfh(), closeOp(cur))
	if res := get[nfs4.ReadRes](e, r); string(res.Data) != "content" {
		e.Errorf("read %q", res.Data)
	}
	fh := get[nfs4.GetfhRes](e, r).FH
	e.refused([]op{putfh(fh), read(get[nfs4.OpenRes](e, r).Stateid, 0, 1)}, nfs4.ErrBadStateid)
	// An operation that sets the file handle takes the stateid away.
	e.refused([]op{putfh(e.dir), open(args), putfh(fh), read(cur, 0, 1)}, nfs4.ErrBadStateid)
	e.refused([]op{putfh(e.dir), open(args), putrootfh(), putfh(fh), closeOp(cur)}, nfs4.ErrBadStateid)
	// SAVEFH and RESTOREFH keep both.
	e.ok(putfh(e.dir), open(args), savefh(), putrootfh(), restorefh(), read(cur, 0, 1), closeOp(cur))
	// LOCK and LOCKU set it.
	e.ok(putfh(e.dir), open(args),
		lock(nfs4.LockArgs{Type: nfs4.LockWrite, Length: 10, NewOwner: true, OpenStateid: cur, Owner: nfs4.StateOwner{Owner: []byte("l")}}),
		locku(cur, 0, 10))
	e.refused([]op{putfh(e.dir), open(args), closeOp(cur), read(cur, 0, 1)}, nfs4.ErrBadStateid) // CLOSE's is invalid
}

// Section 8.2.3: what stands for the current stateid has a seqid of zero, the latest, but for CLOSE and
// OPEN_DOWNGRADE. So another OPEN, LOCK or LOCKU between does not make it an old one.
func testCurrentSeqid(e *env) {
	cur := nfs4.CurrentStateid()
	fh := e.file("f", "content")
	args := e.openArgs(opening{name: "f"})
	// The saved stateid is one behind that of the file.
	behind := func(last op) []op {
		return []op{putfh(e.dir), open(args), savefh(), putfh(e.dir), open(args), restorefh(), last}
	}
	lockOf := func(args nfs4.LockArgs) op {
		args.Type, args.Length, args.Owner = nfs4.LockWrite, 10, nfs4.StateOwner{Owner: []byte("l")}
		return lock(args)
	}
	first, more := lockOf(nfs4.LockArgs{NewOwner: true, OpenStateid: cur}), lockOf(nfs4.LockArgs{LockStateid: cur, Offset: 20})
	for _, tt := range []struct {
		name string
		ops  []op
		want nfs4.Status
	}{
		{"READ", behind(read(cur, 0, 1)), nfs4.OK},
		{"WRITE", behind(write(cur, 0, "C")), nfs4.OK},
		{"SETATTR of the size", behind(setattr(cur, size(7))), nfs4.OK},
		{"LOCK by the open's", behind(first), nfs4.OK},
		{"CLOSE", behind(closeOp(cur)), nfs4.ErrOldStateid},
		{"OPEN_DOWNGRADE", behind(downgrade(cur, nfs4.ShareAccessBoth, 0)), nfs4.ErrOldStateid},
		{"LOCK by the lock's", []op{putfh(e.dir), open(args), first, savefh(), more, restorefh(), more}, nfs4.OK},
		{"READ by the lock's", []op{putfh(e.dir), open(args), first, savefh(), more, restorefh(), read(cur, 0, 1)}, nfs4.OK},
		{"LOCKU", []op{putfh(e.dir), open(args), first, savefh(), more, restorefh(), locku(cur, 0, 10)}, nfs4.OK},
		{"FREE_STATEID", []op{putfh(e.dir), open(args), first, savefh(), locku(cur, 0, 100), restorefh(), freeStateid(cur)}, nfs4.OK},
		// What is no open's or lock's does not become another special one.
		{"READ after CLOSE", []op{putfh(e.dir), open(args), closeOp(cur), read(cur, 0, 1)}, nfs4.ErrBadStateid},
		{"WRITE after CLOSE", []op{putfh(e.dir), open(args), closeOp(cur), write(cur, 0, "x")}, nfs4.ErrBadStateid},
	} {
		e.Run(tt.name, func(t *testing.T) {
			c := e.with(t)
			c.refused(tt.ops, tt.want)
			c.ok(putfh(e.dir), open(args), closeOp(cur)) // and all that is locked
		})
	}
	e.content(fh, "Content")
}

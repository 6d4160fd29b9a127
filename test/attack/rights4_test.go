//go:build attack

package attack_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/podnas/podnas/nfs/nfs4"
	"github.com/podnas/podnas/nfs/rpc"
	"github.com/podnas/podnas/nfs/xdr"
)

// Rights by version 4.1. Each operation is tried with each kind of credential, and compared with what a local user may do, as
// permissions_test.go has it.

// credKind is a kind of credential, and in which volume it is used.
type credKind struct {
	name   string
	volume string
	// cred is for the user of a case. It changes the case to who the caller counts as.
	cred func(p *permissionCase) rpc.Auth
	// refused: it is no credential, so nothing is done.
	refused bool
}

// asNobody is the anonymous user.
func (p *permissionCase) asNobody() { p.uid, p.gid, p.groups = 65534, 65534, nil }

func (p *permissionCase) caller() rpc.Auth { return caller(p.uid, p.gid, p.groups...) }

var credKinds = []credKind{
	{name: "any user", volume: "plain", cred: (*permissionCase).caller},
	{name: "root", volume: "plain", cred: func(p *permissionCase) rpc.Auth {
		p.uid, p.gid = 0, 0
		return p.caller()
	}},
	{name: "16 groups", volume: "plain", cred: func(p *permissionCase) rpc.Auth {
		p.groups = []uint32{3001, 3002, 3003, 3004, 3005, 3006, 3007, 3008, 3009, 3010, 3011, 3012, 3013, 3014, 3015, p.dir.gid}
		return p.caller()
	}},
	{name: "a machine's name of 255 bytes", volume: "plain", cred: func(p *permissionCase) rpc.Auth {
		p.groups = nil
		return machine(255, p.uid, p.gid)
	}},
	{name: "root, with rootSquash", volume: "squashed", cred: func(p *permissionCase) rpc.Auth {
		p.asNobody()
		return caller(0, 0, 0)
	}},
	{name: "any user but root, with rootSquash", volume: "squashed", cred: func(p *permissionCase) rpc.Auth {
		p.uid, p.gid = 1000+p.uid%3, 2000
		cred := caller(p.uid, p.gid, append(p.groups, 0)...)
		p.groups = slices.DeleteFunc(p.groups, func(g uint32) bool { return g == 0 })
		return cred
	}},
	{name: "any user, with allSquash", volume: "nobody", cred: func(p *permissionCase) rpc.Auth {
		cred := p.caller()
		p.asNobody()
		return cred
	}},
	{name: "AUTH_NONE", volume: "plain", refused: true, cred: func(*permissionCase) rpc.Auth { return rpc.Auth{} }},
	{name: "AUTH_SHORT", volume: "plain", refused: true, cred: func(*permissionCase) rpc.Auth {
		return rpc.Auth{Flavor: rpc.AuthShort, Body: caller(0, 0).Body}
	}},
	{name: "RPCSEC_GSS", volume: "plain", refused: true, cred: func(*permissionCase) rpc.Auth {
		return rpc.Auth{Flavor: rpc.AuthGSS, Body: caller(0, 0).Body}
	}},
	{name: "a machine's name of 256 bytes", volume: "plain", refused: true, cred: func(*permissionCase) rpc.Auth { return machine(256, 0, 0) }},
	{name: "17 groups", volume: "plain", refused: true, cred: func(*permissionCase) rpc.Auth {
		cred := caller(0, 0, make([]uint32, 16)...)
		cred.Body[len(cred.Body)-16*4-1] = 17
		cred.Body = append(cred.Body, 0, 0, 0, 0)
		return cred
	}},
	{name: "a credential cut short", volume: "plain", refused: true, cred: func(*permissionCase) rpc.Auth {
		cred := caller(0, 0, 1, 2, 3)
		cred.Body = cred.Body[:len(cred.Body)-4]
		return cred
	}},
	{name: "a credential of 404 bytes", volume: "plain", refused: true, cred: func(*permissionCase) rpc.Auth {
		return rpc.Auth{Flavor: rpc.AuthSys, Body: append(caller(0, 0).Body, make([]byte, 404-len(caller(0, 0).Body))...)}
	}},
}

// machine is a credential with a long name.
func machine(n int, uid, gid uint32) rpc.Auth {
	cred := rpc.SysCred{MachineName: []byte(strings.Repeat("m", n)), UID: uid, GID: gid}
	return cred.Auth()
}

var right4Attacks = []attack{
	{
		name:  "rights by 4.1",
		does:  "tries each operation with each kind of credential, by sessions of root and of another user, on files of random owners, modes and ACLs",
		holds: "nothing is allowed that a local user may not do, nor refused that one may, but owners may read and write; what is no credential is refused",
		on:    isNative,
		also:  kinds{race, xfs},
		run: func(a *assault) {
			a.volume("plain", "64Mi")
			a.volume("squashed", "64Mi", "--root-squash")
			a.volume("nobody", "64Mi", "--all-squash")
			user := a.client4(1)
			user.cred = caller(1002, 1002)
			if !user.introduce("a user's") || !user.createSession() {
				a.Fatal("no session for a user")
			}
			clients := []*client4{a.ready4(0, "root's"), user}
			granted, refused, n := 0, 0, 0
			for until := time.Now().Add(2 * a.window); time.Now().Before(until) && !a.Failed(); {
				var cases []*rightCase
				for _, kind := range credKinds {
					for _, op := range allOps {
						cases = append(cases, newRightCase(a, clients[a.rng.IntN(2)], kind, op, fmt.Sprint(n)))
						n++
					}
				}
				for _, r := range cases {
					r.protect(a, r.nfs)
					r.protect(a, r.local)
				}
				time.Sleep(movedNoticed) // then what was changed directly on the disk is seen
				for _, r := range cases {
					if r.compare(a) {
						granted++
					} else {
						refused++
					}
				}
			}
			a.note("%d cases allowed, %d refused", granted, refused)
			notTheirs(a, clients[0])
		},
	},
}

// rightCase is a case by version 4.1.
type rightCase struct {
	*permissionCase
	kind                  credKind
	client                *client4
	cred                  rpc.Auth
	nfs, local            string // the twins
	dir, other, file, sub nfs4.FH
}

// newRightCase makes it, for everybody, so that there are handles of all.
func newRightCase(a *assault, c *client4, kind credKind, op, name string) *rightCase {
	a.Helper()
	p := newCase(a.rng, op)
	r := &rightCase{permissionCase: p, kind: kind, client: c, cred: kind.cred(p), nfs: a.path(kind.volume, "nfs", name), local: a.path(kind.volume, "local", name)}
	r.build(a, r.nfs)
	r.build(a, r.local)
	fh := func(path ...string) nfs4.FH { return c.fh(append([]string{kind.volume, "nfs", name}, path...)...) }
	r.dir, r.other, r.file, r.sub = fh("dir"), fh("other"), fh("dir", "file"), fh("dir", "sub")
	return r
}

// compare reports whether the operation was allowed.
func (r *rightCase) compare(a *assault) bool {
	a.Helper()
	what := r.String()
	over, local := r.over4(a), !r.kind.refused && r.locally(a, r.local)
	overState, localState := state(a.T, r.nfs), state(a.T, r.local)
	switch {
	case over == local && overState == localState:
	case over && !local && !r.kind.refused && r.ownersRight():
	default:
		a.Errorf("%s, %s:\nover NFS %v:\n%slocally %v:\n%s", r.kind.name, what, over, overState, local, localState)
	}
	return over
}

// over4 does the operation by version 4.1, and reports whether it was allowed.
func (r *rightCase) over4(a *assault) bool {
	a.Helper()
	c, ops := r.client, r.ops4()
	own := c.cred
	defer func() { c.cred = own }()
	var reply []byte
	eventually(a, 20*time.Second, r.op+" gets no answer but DELAY", func() bool {
		c.cred = r.cred
		all := ops4{}.do(nfs4.OpSequence, &nfs4.SequenceArgs{SessionID: c.session, SequenceID: c.slot + 1}).and(ops)
		var err error
		reply, err = c.send(c.conn, all.n, all.bytes)
		if refused := (*rpc.RPCError)(nil); errors.As(err, &refused) {
			reply = xdr.AppendUint32(nil, uint32(nfs4.ErrAccess))
			return true
		}
		must(a, err)
		c.slot++
		return status4(reply) != nfs4.ErrDelay
	})
	if r.op == "access" && status4(reply) == nfs4.OK {
		return binary.BigEndian.Uint32(reply[len(reply)-4:])&r.accessBit() != 0
	}
	return status4(reply) == nfs4.OK
}

func (r *rightCase) accessBit() uint32 {
	return []uint32{nfs4.AccessRead, nfs4.AccessModify, nfs4.AccessExecute, nfs4.AccessLookup}[r.arg%4]
}

// ops4 are the operations of the case.
func (r *rightCase) ops4() ops4 {
	dir, target := onFH(r.dir), onFH(r.file)
	if r.target == "sub" {
		target = onFH(r.sub)
	}
	set := func(attr nfs4.Sattr, attrs ...uint32) ops4 {
		attr.Mask = nfs4.BitmapOf(attrs...)
		return target.do(nfs4.OpSetattr, &nfs4.SetattrArgs{Attr: attr})
	}
	create := func(kind nfs4.FType) ops4 {
		return dir.do(nfs4.OpCreate, &nfs4.CreateArgs{Type: kind, Name: []byte("new"), Link: []byte("target"), Spec: nfs4.SpecData{Major: 1, Minor: 3}, Attr: mode4(0o666)})
	}
	rename := func(to nfs4.FH, name string) ops4 {
		return dir.do(nfs4.OpSavefh, nil).and(onFH(to)).do(nfs4.OpRename, &nfs4.RenameArgs{OldName: []byte("file"), NewName: []byte(name)})
	}
	id := someIDs[r.arg%6]
	opened := func(access uint32) (ops4, nfs4.Stateid) { // by OPEN, or by no open
		if r.arg%2 == 0 {
			return target, nfs4.Stateid{}
		}
		return target.do(nfs4.OpOpen, &nfs4.OpenArgs{ShareAccess: access, Owner: nfs4.StateOwner{Owner: []byte(r.nfs)}, Claim: nfs4.ClaimFH}), nfs4.CurrentStateid()
	}
	switch r.op {
	case "read":
		ops, by := opened(nfs4.ShareAccessRead)
		return ops.do(nfs4.OpRead, &nfs4.ReadArgs{Stateid: by, Count: 10})
	case "write":
		ops, by := opened(nfs4.ShareAccessWrite)
		return ops.do(nfs4.OpWrite, &nfs4.WriteArgs{Stateid: by, Data: []byte("other")})
	case "truncate":
		return set(nfs4.Sattr{Size: 3}, nfs4.AttrSize)
	case "chmod":
		return set(nfs4.Sattr{Mode: r.arg & 0o7777}, nfs4.AttrMode)
	case "chown":
		return set(nfs4.Sattr{Owner: fmt.Append(nil, id)}, nfs4.AttrOwner)
	case "chgrp":
		return set(nfs4.Sattr{OwnerGroup: fmt.Append(nil, id)}, nfs4.AttrOwnerGroup)
	case "touch":
		return set(nfs4.Sattr{}, nfs4.AttrTimeAccessSet, nfs4.AttrTimeModifySet)
	case "set times":
		at := nfs4.SetTime{How: nfs4.SetToClientTime, Time: nfs4.Time{Sec: 1_000_000}}
		return set(nfs4.Sattr{TimeAccess: at, TimeModify: at}, nfs4.AttrTimeAccessSet, nfs4.AttrTimeModifySet)
	case "create":
		return dir.and(open4("new", nfs4.Guarded))
	case "mkdir":
		return dir.and(mkdir4("new"))
	case "symlink":
		return create(nfs4.TypeLnk)
	case "mkfifo":
		return create(nfs4.TypeFIFO)
	case "mknod":
		return create(nfs4.TypeChr)
	case "remove":
		return dir.name(nfs4.OpRemove, "file")
	case "rmdir":
		return dir.name(nfs4.OpRemove, "sub")
	case "rename":
		return rename(r.dir, "renamed")
	case "rename over":
		return rename(r.dir, "over")
	case "rename out":
		return rename(r.other, "renamed")
	case "link":
		return target.do(nfs4.OpSavefh, nil).and(onFH(r.other)).name(nfs4.OpLink, "linked")
	case "list":
		return dir.do(nfs4.OpReaddir, &nfs4.ReaddirArgs{MaxCount: 4096})
	case "lookup":
		return dir.name(nfs4.OpLookup, "file")
	}
	return target.do(nfs4.OpAccess, &nfs4.AccessArgs{Access: r.accessBit()})
}

// notTheirs has another user try to take a client, whose session it may use.
func notTheirs(a *assault, c *client4) {
	a.Helper()
	held, own := c.mustOpen("plain", "held"), c.cred
	c.cred = caller(1001, 1001)
	for what, call := range map[string]func() (nfs4.Status, xdr.Decoder){
		"DESTROY_CLIENTID": func() (nfs4.Status, xdr.Decoder) {
			return c.call(nfs4.OpDestroyClientID, &nfs4.DestroyClientIDArgs{ClientID: c.id})
		},
		"EXCHANGE_ID": func() (nfs4.Status, xdr.Decoder) {
			return c.call(nfs4.OpExchangeID, &nfs4.ExchangeIDArgs{OwnerID: []byte("root's 0"), Verf: nfs4.Verifier{2}})
		},
	} {
		if status, _ := call(); status == nfs4.OK {
			a.Errorf("%s of another user's client succeeded", what)
		}
	}
	if status := c.write("plain", "held", held); status == nfs4.OK {
		a.Error("WRITE by the stateid of another user's open succeeded")
	}
	c.cred = own
	if status := c.write("plain", "held", held); status != nfs4.OK {
		a.Errorf("the owner's WRITE: %v", status)
	}
}

package gonfs

import (
	"encoding/binary"
	"fmt"

	"github.com/podnas/podnas/nfs/mount3"
	"github.com/podnas/podnas/nfs/nfs3"
	"github.com/podnas/podnas/nfs/rpc"
	"github.com/podnas/podnas/nfs/xdr"
)

// check decides whether the library gets a call. It returns nil if so, else a reply
// of RFC 5531 section 9. A record that is no call is an error, and ends the
// connection. allows reports whether the client may use the volume of a handle,
// which the library does not check.
func check(record []byte, allows func(handle []byte) bool) (*rpc.ReplyHeader, error) {
	d := xdr.NewDecoder(record)
	var call rpc.CallHeader
	call.Decode(&d)
	if err := d.Err(); err != nil {
		return nil, fmt.Errorf("decode a call: %w", err)
	}
	reply := &rpc.ReplyHeader{XID: call.XID}
	if call.RPCVersion != rpc.Version {
		reply.Stat, reply.Reject = rpc.MsgDenied, rpc.RPCMismatch
		reply.Low, reply.High = rpc.Version, rpc.Version
		return reply, nil
	}
	if auth := checkCred(&call); auth != rpc.AuthOK {
		reply.Stat, reply.Reject, reply.Auth = rpc.MsgDenied, rpc.AuthError, auth
		return reply, nil
	}
	args := d
	reply.Accept = checkArgs(&call, d)
	if reply.Accept == rpc.Success && call.Prog == nfs3.Program && call.Proc != nfs3.ProcNull {
		var first nfs3.HandleArgs // the first argument of every other procedure
		if first.Decode(&args); !allows(first.Object) {
			reply.Stat, reply.Reject, reply.Auth = rpc.MsgDenied, rpc.AuthError, rpc.AuthTooWeak
			return reply, nil
		}
	}
	if reply.Accept == rpc.ProgMismatch {
		reply.Low, reply.High = nfs3.Version, nfs3.Version // MOUNT's is the same
	}
	if reply.Accept == rpc.Success {
		return nil, nil
	}
	return reply, nil
}

// bound limits the size that a checked call requests, because the library allocates the
// reply, and returns the reply's size: a client may get less than it requested.
func bound(record []byte) (size int) {
	d := xdr.NewDecoder(record)
	var call rpc.CallHeader
	call.Decode(&d)
	if call.Prog != nfs3.Program {
		return 0
	}
	counts := 0 // at the end of the arguments
	switch call.Proc {
	case nfs3.ProcRead, nfs3.ProcReaddir:
		counts = 1
	case nfs3.ProcReaddirplus:
		counts = 2
	}
	for at := len(record) - 4*counts; at < len(record); at += 4 {
		size = int(min(binary.BigEndian.Uint32(record[at:]), replyMax))
		xdr.Patch(record, at, uint32(size))
	}
	return size
}

// checkCred refuses a malformed credential, and calls of NFS without one, which RFC
// 1813 section 2.6 allows only for NULL.
func checkCred(call *rpc.CallHeader) rpc.AuthStat {
	switch call.Cred.Flavor {
	case rpc.AuthSys:
		d := xdr.NewDecoder(call.Cred.Body)
		var cred rpc.SysCred
		if cred.Decode(&d); d.Finish() != nil {
			return rpc.AuthBadCred
		}
	case rpc.AuthNone:
		if call.Prog == nfs3.Program && call.Proc != nfs3.ProcNull {
			return rpc.AuthTooWeak
		}
	default:
		return rpc.AuthRejectedCred
	}
	return rpc.AuthOK
}

// checkArgs returns Success for a call that the library supports, with arguments
// that it can decode.
func checkArgs(call *rpc.CallHeader, args xdr.Decoder) rpc.AcceptStat {
	var decode func(*xdr.Decoder)
	var ok bool
	switch call.Prog {
	case mount3.Program:
		decode, ok = mountArgs(call.Proc)
	case nfs3.Program:
		decode, ok = nfsArgs(call.Proc)
	default:
		return rpc.ProgUnavail
	}
	switch {
	case call.Vers != nfs3.Version: // MOUNT's is the same
		return rpc.ProgMismatch
	case !ok:
		return rpc.ProcUnavail
	}
	if decode != nil {
		decode(&args)
	}
	if args.Finish() != nil {
		return rpc.GarbageArgs
	}
	return rpc.Success
}

// mountArgs decodes the arguments of a MOUNT procedure of the library.
func mountArgs(proc uint32) (decode func(*xdr.Decoder), ok bool) {
	switch proc {
	case mount3.ProcNull:
		return nil, true
	case mount3.ProcMnt, mount3.ProcUmnt:
		return new(mount3.PathArgs).Decode, true
	}
	return nil, false
}

// nfsArgs decodes the arguments of an NFS procedure that the library does right. It
// misreads LINK, and creates the handle in MKNOD's reply before the file.
func nfsArgs(proc uint32) (decode func(*xdr.Decoder), ok bool) {
	switch proc {
	case nfs3.ProcNull:
		return nil, true
	case nfs3.ProcGetattr, nfs3.ProcReadlink, nfs3.ProcFsstat, nfs3.ProcFsinfo, nfs3.ProcPathconf:
		return new(nfs3.HandleArgs).Decode, true
	case nfs3.ProcLookup, nfs3.ProcRemove, nfs3.ProcRmdir:
		return new(nfs3.DirOpArgs).Decode, true
	case nfs3.ProcSetattr:
		return new(nfs3.SetattrArgs).Decode, true
	case nfs3.ProcAccess:
		return new(nfs3.AccessArgs).Decode, true
	case nfs3.ProcRead:
		return new(nfs3.ReadArgs).Decode, true
	case nfs3.ProcWrite:
		return new(nfs3.WriteArgs).Decode, true
	case nfs3.ProcCreate:
		return new(nfs3.CreateArgs).Decode, true
	case nfs3.ProcMkdir:
		return new(nfs3.MkdirArgs).Decode, true
	case nfs3.ProcSymlink:
		return new(nfs3.SymlinkArgs).Decode, true
	case nfs3.ProcRename:
		return new(nfs3.RenameArgs).Decode, true
	case nfs3.ProcReaddir:
		return new(nfs3.ReaddirArgs).Decode, true
	case nfs3.ProcReaddirplus:
		return new(nfs3.ReaddirplusArgs).Decode, true
	case nfs3.ProcCommit:
		return new(nfs3.CommitArgs).Decode, true
	}
	return nil, false
}

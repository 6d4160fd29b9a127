package gonfs

import (
	"encoding/binary"
	"fmt"

	"github.com/podnas/podnas/server/mount3"
	"github.com/podnas/podnas/server/nfs3"
	"github.com/podnas/podnas/server/oncrpc"
	"github.com/podnas/podnas/server/xdr"
)

// noProcedure takes the place of a call's procedure so that the library answers
// PROC_UNAVAIL, RFC 5531 section 9.
const noProcedure = 1 << 31

// procAt is where the procedure stands in a call: after the xid, the message
// type, the RPC version, the program and the version.
const procAt = 5 * 4

// checkCall makes a call safe for the library. The library allocates what a
// length says before it looks at how long the record is, takes every version of
// a program for version 3, misreads LINK, and makes the handle of a MKNOD before
// the file. Those calls are answered PROC_UNAVAIL. What is no call at all is an
// error, and ends the connection: the library would stop reading from it and
// leave it open.
func checkCall(record []byte) error {
	d := xdr.NewDecoder(record)
	var call oncrpc.CallHeader
	call.Decode(&d)
	if err := d.Err(); err != nil {
		return fmt.Errorf("decode a call: %w", err)
	}
	if call.RPCVersion != oncrpc.Version {
		return fmt.Errorf("call of RPC version %d", call.RPCVersion)
	}
	if !servable(&call, d) {
		binary.BigEndian.PutUint32(record[procAt:], noProcedure)
	}
	return nil
}

// servable tells whether the library can be given a call with its arguments.
func servable(call *oncrpc.CallHeader, args xdr.Decoder) bool {
	switch {
	case call.Prog == mount3.Program && call.Vers == mount3.Version:
		if call.Proc != mount3.ProcMnt && call.Proc != mount3.ProcUmnt {
			return true // none has arguments
		}
		new(mount3.PathArgs).Decode(&args)
		return args.Err() == nil
	case call.Prog == nfs3.Program && call.Vers == nfs3.Version:
		if call.Proc == nfs3.ProcNull {
			return true
		}
		a := arguments(call.Proc)
		if a == nil {
			return false
		}
		a.Decode(&args)
		return args.Err() == nil
	}
	return false
}

// arguments are those of an NFS procedure, nil if the library can't do it.
func arguments(proc uint32) interface{ Decode(*xdr.Decoder) } {
	switch proc {
	case nfs3.ProcGetattr, nfs3.ProcReadlink, nfs3.ProcFsstat, nfs3.ProcFsinfo, nfs3.ProcPathconf:
		return &nfs3.HandleArgs{}
	case nfs3.ProcLookup, nfs3.ProcRemove, nfs3.ProcRmdir:
		return &nfs3.DirOpArgs{}
	case nfs3.ProcSetattr:
		return &nfs3.SetattrArgs{}
	case nfs3.ProcAccess:
		return &nfs3.AccessArgs{}
	case nfs3.ProcRead:
		return &nfs3.ReadArgs{}
	case nfs3.ProcWrite:
		return &nfs3.WriteArgs{}
	case nfs3.ProcCreate:
		return &nfs3.CreateArgs{}
	case nfs3.ProcMkdir:
		return &nfs3.MkdirArgs{}
	case nfs3.ProcSymlink:
		return &nfs3.SymlinkArgs{}
	case nfs3.ProcRename:
		return &nfs3.RenameArgs{}
	case nfs3.ProcReaddir:
		return &nfs3.ReaddirArgs{}
	case nfs3.ProcReaddirplus:
		return &nfs3.ReaddirplusArgs{}
	case nfs3.ProcCommit:
		return &nfs3.CommitArgs{}
	}
	return nil
}

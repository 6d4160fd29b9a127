package nfsv3

import (
	"github.com/podnas/podnas/nfs/nfs3"
	"github.com/podnas/podnas/nfs/rpc"
	"github.com/podnas/podnas/nfs/xdr"
	"github.com/podnas/podnas/server/oncrpc"
	"github.com/podnas/podnas/server/vfs"
)

// task is a call that is being answered, and the memory for that. It is the Call's State and
// is reused with it, so that the most frequent calls allocate nothing.
type task struct {
	vfs.Call

	rpc    *oncrpc.Call
	handle [nfs3.FHSize]byte // of LOOKUP's result, and of what was made
	args   struct {
		getattr nfs3.GetattrArgs
		lookup  nfs3.LookupArgs
		access  nfs3.AccessArgs
		read    nfs3.ReadArgs
		write   nfs3.WriteArgs
	}
	res struct {
		getattr nfs3.GetattrRes
		lookup  nfs3.LookupRes
		access  nfs3.AccessRes
		read    nfs3.ReadRes
		write   nfs3.WriteRes
	}
	names *naming // nil until it is needed first
}

// naming is the memory of a CREATE, REMOVE, RMDIR or RENAME. It is not in the task, so that other calls need not clear it.
type naming struct {
	args struct {
		create nfs3.CreateArgs
		remove nfs3.RemoveArgs
		rename nfs3.RenameArgs
	}
	res struct {
		create nfs3.CreateRes
		remove nfs3.RemoveRes
		rename nfs3.RenameRes
	}
	set vfs.SetAttr // of CREATE
}

// procedure answers a call: with a result, or not at all if it can't be executed.
type procedure func(*task) (result, rpc.AcceptStat)

// result is what a procedure answers.
type result interface{ Append([]byte) []byte }

// handler is the handler of a procedure. One with arguments of its own decodes them.
func (s *service) handler(do procedure) func(*oncrpc.Call) rpc.AcceptStat {
	return func(c *oncrpc.Call) rpc.AcceptStat {
		t, ok := c.State.(*task)
		if !ok {
			t = &task{}
			c.State = t
		}
		t.rpc = c
		t.Begin(s.files, c, vfs.Caller{Client: c.Client, UID: c.Cred.UID, GID: c.Cred.GID, Groups: c.Cred.Groups()}, &c.Served)
		defer t.end()
		res, stat := do(t)
		if stat == rpc.Success {
			c.Reply = res.Append(c.Reply)
		}
		return stat
	}
}

// end ends the call and forgets it: what stays must not refer to the buffers of arguments and results.
func (t *task) end() {
	t.End()
	*t = task{names: t.names}
}

// with is a procedure whose arguments are decoded first. The most frequent procedures have them in the
// task.
func with[A any, D interface {
	*A
	Decode(*xdr.Decoder)
}](do func(*task, D) (result, rpc.AcceptStat)) procedure {
	return func(t *task) (result, rpc.AcceptStat) {
		args := D(new(A))
		if !t.decode(args) {
			return nil, rpc.GarbageArgs
		}
		return do(t, args)
	}
}

// naming returns the memory for a call that changes names.
func (t *task) naming() *naming {
	if t.names == nil {
		t.names = &naming{}
	}
	*t.names = naming{}
	return t.names
}

// decode decodes the call's arguments. It returns false if they are malformed.
func (t *task) decode(args interface{ Decode(*xdr.Decoder) }) bool {
	args.Decode(&t.rpc.Args)
	return t.rpc.Args.Finish() == nil
}

package nfsv3

import (
	"encoding/binary"
	"errors"
	"syscall"

	"github.com/podnas/podnas/nfs/nfs3"
	"github.com/podnas/podnas/nfs/rpc"
	"github.com/podnas/podnas/nfs/xdr"
	"github.com/podnas/podnas/server/exports"
	"github.com/podnas/podnas/server/oncrpc"
	"github.com/podnas/podnas/server/vfs"
)

// service answers the procedures: each decodes a call, opens the files of its handles,
// calls the operation of package vfs, and encodes its result.
type service struct{ files *vfs.Service }

// NewProgram returns the server's side of NFS version 3.
func NewProgram(files *vfs.Service) oncrpc.Program {
	s := &service{files}
	repeated := newReplays().repeated
	// A WRITE that is done again could overwrite what the client has written since. There are many: they would push the others out.
	written := newReplays().repeated
	return oncrpc.Program{
		Number:  nfs3.Program,
		Version: nfs3.Version,
		Procedures: []oncrpc.Procedure{
			nfs3.ProcNull:        {Name: "NULL", Handle: s.null, AnyAuth: true},
			nfs3.ProcGetattr:     {Name: "GETATTR", Handle: s.handler((*task).getattr)},
			nfs3.ProcSetattr:     {Name: "SETATTR", Handle: s.handler(with((*task).setattr)), Repeated: repeated},
			nfs3.ProcLookup:      {Name: "LOOKUP", Handle: s.handler((*task).lookup)},
			nfs3.ProcAccess:      {Name: "ACCESS", Handle: s.handler((*task).access)},
			nfs3.ProcReadlink:    {Name: "READLINK", Handle: s.handler(with((*task).readlink))},
			nfs3.ProcRead:        {Name: "READ", Handle: s.handler((*task).read)},
			nfs3.ProcWrite:       {Name: "WRITE", Handle: s.handler((*task).write), Repeated: written},
			nfs3.ProcCreate:      {Name: "CREATE", Handle: s.handler((*task).create), Repeated: repeated},
			nfs3.ProcMkdir:       {Name: "MKDIR", Handle: s.handler(with((*task).mkdir)), Repeated: repeated},
			nfs3.ProcSymlink:     {Name: "SYMLINK", Handle: s.handler(with((*task).symlink)), Repeated: repeated},
			nfs3.ProcMknod:       {Name: "MKNOD", Handle: s.handler(with((*task).mknod)), Repeated: repeated},
			nfs3.ProcRemove:      {Name: "REMOVE", Handle: s.handler((*task).remove), Repeated: repeated},
			nfs3.ProcRmdir:       {Name: "RMDIR", Handle: s.handler((*task).rmdir), Repeated: repeated},
			nfs3.ProcRename:      {Name: "RENAME", Handle: s.handler((*task).rename), Repeated: repeated},
			nfs3.ProcLink:        {Name: "LINK", Handle: s.handler(with((*task).link)), Repeated: repeated},
			nfs3.ProcReaddir:     {Name: "READDIR", Handle: s.handler(with((*task).readdir))},
			nfs3.ProcReaddirplus: {Name: "READDIRPLUS", Handle: s.handler(with((*task).readdirplus))},
			nfs3.ProcFsstat:      {Name: "FSSTAT", Handle: s.handler(with((*task).fsstat))},
			nfs3.ProcFsinfo:      {Name: "FSINFO", Handle: s.handler(with((*task).fsinfo))},
			nfs3.ProcPathconf:    {Name: "PATHCONF", Handle: s.handler(with((*task).pathconf))},
			nfs3.ProcCommit:      {Name: "COMMIT", Handle: s.handler(with((*task).commit))},
		},
	}
}

// writeVerf encodes the write verifier: when it changes, clients send their uncommitted writes
// again.
func writeVerf(v uint64) (verf [nfs3.WriteVerfSize]byte) {
	binary.BigEndian.PutUint64(verf[:], v)
	return verf
}

func (s *service) null(*oncrpc.Call) rpc.AcceptStat { return rpc.Success }

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

// statusOf is the status of an error of the call. The reply waits for nothing if podnas itself refuses a change.
func (t *task) statusOf(err error) nfs3.Status {
	if errors.Is(err, exports.ErrReadOnly) {
		t.rpc.Sure = true
	}
	return statusOf(err)
}

// statusOf is the one place where an error becomes a status.
func statusOf(err error) nfs3.Status {
	switch {
	case err == nil:
		return nfs3.OK
	case errors.Is(err, vfs.ErrNotSync):
		return nfs3.ErrNotSync
	case errors.Is(err, syscall.ELOOP): // a symbolic link in the place of something else
		return nfs3.ErrInval
	}
	return nfs3.Status(vfs.Status(err))
}

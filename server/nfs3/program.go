package nfs3

import (
	"encoding/binary"
	"log/slog"

	"github.com/podnas/podnas/nfs/nfs3"
	"github.com/podnas/podnas/nfs/rpc"
	"github.com/podnas/podnas/nfs/xdr"
	"github.com/podnas/podnas/server/export"
	"github.com/podnas/podnas/server/oncrpc"
)

// Config says how to make the program. All fields are needed.
type Config struct {
	Opener  *export.Opener
	Workers *export.Workers
	Log     *slog.Logger
}

// service answers the procedures. A call runs in two parts: its handler decodes
// it and opens the files of its handles on the connection's goroutine, as root;
// what acts for the caller runs on a worker with the caller's identity, unless that
// is root's, or it needs none.
type service struct {
	opener  *export.Opener
	workers *export.Workers
	log     *slog.Logger
}

// NewProgram makes the server's side of NFS version 3.
func NewProgram(cfg Config) oncrpc.Program {
	s := &service{opener: cfg.Opener, workers: cfg.Workers, log: cfg.Log}
	repeated := newReplays().repeated
	return oncrpc.Program{
		Number:  nfs3.Program,
		Version: nfs3.Version,
		Procedures: []oncrpc.Procedure{
			nfs3.ProcNull:        {Name: "NULL", Handle: s.null, AnyAuth: true},
			nfs3.ProcGetattr:     {Name: "GETATTR", Handle: s.getattr},
			nfs3.ProcSetattr:     {Name: "SETATTR", Handle: s.setattr, Repeated: repeated},
			nfs3.ProcLookup:      {Name: "LOOKUP", Handle: s.lookup},
			nfs3.ProcAccess:      {Name: "ACCESS", Handle: s.access},
			nfs3.ProcReadlink:    {Name: "READLINK", Handle: s.readlink},
			nfs3.ProcRead:        {Name: "READ", Handle: s.read},
			nfs3.ProcWrite:       {Name: "WRITE", Handle: s.write},
			nfs3.ProcCreate:      {Name: "CREATE", Handle: s.create, Repeated: repeated},
			nfs3.ProcMkdir:       {Name: "MKDIR", Handle: s.mkdir, Repeated: repeated},
			nfs3.ProcSymlink:     {Name: "SYMLINK", Handle: s.symlink, Repeated: repeated},
			nfs3.ProcMknod:       {Name: "MKNOD", Handle: s.mknod, Repeated: repeated},
			nfs3.ProcRemove:      {Name: "REMOVE", Handle: s.remove, Repeated: repeated},
			nfs3.ProcRmdir:       {Name: "RMDIR", Handle: s.rmdir, Repeated: repeated},
			nfs3.ProcRename:      {Name: "RENAME", Handle: s.rename, Repeated: repeated},
			nfs3.ProcLink:        {Name: "LINK", Handle: s.link, Repeated: repeated},
			nfs3.ProcReaddir:     {Name: "READDIR", Handle: s.readdir},
			nfs3.ProcReaddirplus: {Name: "READDIRPLUS", Handle: s.readdirplus},
			nfs3.ProcFsstat:      {Name: "FSSTAT", Handle: s.fsstat},
			nfs3.ProcFsinfo:      {Name: "FSINFO", Handle: s.fsinfo},
			nfs3.ProcPathconf:    {Name: "PATHCONF", Handle: s.pathconf},
			nfs3.ProcCommit:      {Name: "COMMIT", Handle: s.commit},
		},
	}
}

// writeVerf is the write verifier: a client that sees it change sends again what was not
// committed.
func writeVerf(v *export.Volume) (verf [nfs3.WriteVerfSize]byte) {
	binary.BigEndian.PutUint64(verf[:], v.WriteVerifier())
	return verf
}

func (s *service) null(*oncrpc.Call) oncrpc.Answer { return oncrpc.Done(rpc.Success) }

// decode takes a call's arguments apart. It is false if they can't be.
func decode(c *oncrpc.Call, args interface{ Decode(*xdr.Decoder) }) bool {
	args.Decode(&c.Args)
	return c.Args.Finish() == nil
}

func badArgs(c *oncrpc.Call) oncrpc.Answer { return finishCall(c, rpc.GarbageArgs) }

// result is what a procedure answers.
type result interface{ Append([]byte) []byte }

func reply(c *oncrpc.Call, res result) oncrpc.Answer {
	c.Reply = res.Append(c.Reply)
	return finishCall(c, rpc.Success)
}

// finishCall ends a call's task. That stays with the Call and must not hold on to buffers
// that arguments and results were in.
func finishCall(c *oncrpc.Call, stat rpc.AcceptStat) oncrpc.Answer {
	if t, ok := c.State.(*task); ok {
		*t = task{}
	}
	return oncrpc.Done(stat)
}

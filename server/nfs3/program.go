package nfs3

import (
	"encoding/binary"
	"log/slog"

	"github.com/podnas/podnas/server/export"
	"github.com/podnas/podnas/server/oncrpc"
	"github.com/podnas/podnas/server/xdr"
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
	return oncrpc.Program{
		Number:  Program,
		Version: Version,
		Procedures: []oncrpc.Procedure{
			ProcNull:        {Name: "NULL", Handle: s.null, AnyAuth: true},
			ProcGetattr:     {Name: "GETATTR", Handle: s.getattr},
			ProcSetattr:     {Name: "SETATTR", Handle: s.setattr, Replay: true},
			ProcLookup:      {Name: "LOOKUP", Handle: s.lookup},
			ProcAccess:      {Name: "ACCESS", Handle: s.access},
			ProcReadlink:    {Name: "READLINK", Handle: s.readlink},
			ProcRead:        {Name: "READ", Handle: s.read},
			ProcWrite:       {Name: "WRITE", Handle: s.write},
			ProcCreate:      {Name: "CREATE", Handle: s.create, Replay: true},
			ProcMkdir:       {Name: "MKDIR", Handle: s.mkdir, Replay: true},
			ProcSymlink:     {Name: "SYMLINK", Handle: s.symlink, Replay: true},
			ProcMknod:       {Name: "MKNOD", Handle: s.mknod, Replay: true},
			ProcRemove:      {Name: "REMOVE", Handle: s.remove, Replay: true},
			ProcRmdir:       {Name: "RMDIR", Handle: s.rmdir, Replay: true},
			ProcRename:      {Name: "RENAME", Handle: s.rename, Replay: true},
			ProcLink:        {Name: "LINK", Handle: s.link, Replay: true},
			ProcReaddir:     {Name: "READDIR", Handle: s.readdir},
			ProcReaddirplus: {Name: "READDIRPLUS", Handle: s.readdirplus},
			ProcFsstat:      {Name: "FSSTAT", Handle: s.fsstat},
			ProcFsinfo:      {Name: "FSINFO", Handle: s.fsinfo},
			ProcPathconf:    {Name: "PATHCONF", Handle: s.pathconf},
			ProcCommit:      {Name: "COMMIT", Handle: s.commit},
		},
	}
}

// writeVerf is the write verifier: a client that sees it change sends again what was not
// committed.
func writeVerf(v *export.Volume) (verf [WriteVerfSize]byte) {
	binary.BigEndian.PutUint64(verf[:], v.WriteVerifier())
	return verf
}

func (s *service) null(c *oncrpc.Call) { c.Finish(oncrpc.Success) }

// decode takes a call's arguments apart, and answers it if they can't be.
func decode(c *oncrpc.Call, args interface{ Decode(*xdr.Decoder) }) bool {
	args.Decode(&c.Args)
	if c.Args.Finish() != nil {
		finishCall(c, oncrpc.GarbageArgs)
		return false
	}
	return true
}

// result is what a procedure answers.
type result interface{ Append([]byte) []byte }

func reply(c *oncrpc.Call, res result) {
	c.Reply = res.Append(c.Reply)
	finishCall(c, oncrpc.Success)
}

// finishCall sends the reply. The task stays with the Call and must not hold on to buffers
// that arguments and results were in.
func finishCall(c *oncrpc.Call, stat oncrpc.AcceptStat) {
	if t, ok := c.State.(*task); ok {
		*t = task{}
	}
	c.Finish(stat)
}

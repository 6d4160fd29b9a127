package nfs3

import (
	"encoding/binary"

	"github.com/podnas/podnas/nfs/nfs3"
	"github.com/podnas/podnas/nfs/rpc"
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
	return oncrpc.Program{
		Number:  nfs3.Program,
		Version: nfs3.Version,
		Procedures: []oncrpc.Procedure{
			nfs3.ProcNull:        {Name: "NULL", Handle: s.null, AnyAuth: true},
			nfs3.ProcGetattr:     {Name: "GETATTR", Handle: s.getattr},
			nfs3.ProcSetattr:     {Name: "SETATTR", Handle: procedure(s, (*task).setattr), Repeated: repeated},
			nfs3.ProcLookup:      {Name: "LOOKUP", Handle: s.lookup},
			nfs3.ProcAccess:      {Name: "ACCESS", Handle: s.access},
			nfs3.ProcReadlink:    {Name: "READLINK", Handle: procedure(s, (*task).readlink)},
			nfs3.ProcRead:        {Name: "READ", Handle: s.read},
			nfs3.ProcWrite:       {Name: "WRITE", Handle: s.write},
			nfs3.ProcCreate:      {Name: "CREATE", Handle: s.create, Repeated: repeated},
			nfs3.ProcMkdir:       {Name: "MKDIR", Handle: procedure(s, (*task).mkdir), Repeated: repeated},
			nfs3.ProcSymlink:     {Name: "SYMLINK", Handle: procedure(s, (*task).symlink), Repeated: repeated},
			nfs3.ProcMknod:       {Name: "MKNOD", Handle: procedure(s, (*task).mknod), Repeated: repeated},
			nfs3.ProcRemove:      {Name: "REMOVE", Handle: s.remove, Repeated: repeated},
			nfs3.ProcRmdir:       {Name: "RMDIR", Handle: s.rmdir, Repeated: repeated},
			nfs3.ProcRename:      {Name: "RENAME", Handle: s.rename, Repeated: repeated},
			nfs3.ProcLink:        {Name: "LINK", Handle: procedure(s, (*task).link), Repeated: repeated},
			nfs3.ProcReaddir:     {Name: "READDIR", Handle: procedure(s, (*task).readdir)},
			nfs3.ProcReaddirplus: {Name: "READDIRPLUS", Handle: procedure(s, (*task).readdirplus)},
			nfs3.ProcFsstat:      {Name: "FSSTAT", Handle: procedure(s, (*task).fsstat)},
			nfs3.ProcFsinfo:      {Name: "FSINFO", Handle: procedure(s, (*task).fsinfo)},
			nfs3.ProcPathconf:    {Name: "PATHCONF", Handle: procedure(s, (*task).pathconf)},
			nfs3.ProcCommit:      {Name: "COMMIT", Handle: s.commit},
		},
	}
}

// writeVerf encodes the write verifier: when it changes, clients send their uncommitted writes
// again.
func writeVerf(v uint64) (verf [nfs3.WriteVerfSize]byte) {
	binary.BigEndian.PutUint64(verf[:], v)
	return verf
}

func (s *service) null(*oncrpc.Call) oncrpc.Answer { return oncrpc.Done(rpc.Success) }

// result is what a procedure answers.
type result interface{ Append([]byte) []byte }

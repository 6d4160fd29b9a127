package nfsv3

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

package gonfs

import (
	"encoding/binary"

	"github.com/podnas/podnas/nfs/mount3"
	"github.com/podnas/podnas/nfs/nfs3"
	"github.com/podnas/podnas/nfs/rpc"
	"github.com/podnas/podnas/nfs/xdr"
	"github.com/podnas/podnas/server/stats"
)

// procedureNames returns the counted procedures: NFS's by their numbers, then
// MOUNT's.
func procedureNames() []string {
	return []string{
		"NULL", "GETATTR", "SETATTR", "LOOKUP", "ACCESS", "READLINK", "READ", "WRITE", "CREATE", "MKDIR", "SYMLINK",
		"MKNOD", "REMOVE", "RMDIR", "RENAME", "LINK", "READDIR", "READDIRPLUS", "FSSTAT", "FSINFO", "PATHCONF", "COMMIT",
		"MOUNT NULL", "MNT", "DUMP", "UMNT",
	}
}

// procedureOf returns the index of a call's procedure in the names. The call is one
// for the library.
func procedureOf(h *rpc.CallHeader) int {
	if h.Prog == mount3.Program {
		return nfs3.ProcCommit + 1 + int(h.Proc)
	}
	return int(h.Proc)
}

// served counts the calls of a connection. The library answers them, so served reads
// the status from the beginning of the reply.
type served struct {
	*stats.Conn

	call   stats.Call
	header rpc.CallHeader // aliases the record
	write  uint32         // the bytes to write of WRITE
	reply  []byte         // its beginning, replyHead at most
}

// replyHead is how much of a reply is parsed: the header and READ's result up to the
// count.
const replyHead = 6*4 + 4 + 4 + 84 + 4

// begin starts a call for the library.
func (s *served) begin(record []byte, volume func(handle []byte) *stats.Volume) {
	d := xdr.NewDecoder(record)
	s.header = rpc.CallHeader{}
	s.header.Decode(&d)
	s.call, s.write, s.reply = stats.Call{}, 0, s.reply[:0]
	if s.header.Prog == nfs3.Program && s.header.Proc != nfs3.ProcNull {
		args := d
		var first nfs3.HandleArgs // the first argument of every other procedure
		first.Decode(&args)
		s.call.Volume = volume(first.Object)
	}
	if s.header.Prog == nfs3.Program && s.header.Proc == nfs3.ProcWrite {
		var args nfs3.WriteArgs
		args.Decode(&d)
		s.write = args.Count
	}
	s.Begin(&s.call, procedureOf(&s.header))
}

// add adds a part of the reply.
func (s *served) add(p []byte) {
	s.reply = append(s.reply, p[:min(len(p), replyHead-len(s.reply))]...)
}

// end counts the call when its reply is written.
func (s *served) end() {
	d := xdr.NewDecoder(s.reply)
	var h rpc.ReplyHeader
	h.Decode(&d)
	results := s.reply[len(s.reply)-d.Len():]
	status := stats.Status(0)
	switch {
	case d.Err() != nil || h.Stat != rpc.MsgAccepted:
		status = stats.Other
	case h.Accept != rpc.Success:
		status = stats.RPCError + stats.Status(h.Accept)
	case len(results) >= 4:
		status = stats.Status(binary.BigEndian.Uint32(results))
	}
	if status == 0 && s.header.Prog == nfs3.Program {
		switch s.header.Proc {
		case nfs3.ProcRead:
			s.call.Read = readCount(results)
		case nfs3.ProcWrite:
			s.call.Written = int(s.write)
		}
	}
	s.End(&s.call, status, s.header.XID)
}

// readCount returns the count in READ's result, RFC 1813 section 3.3.6.
func readCount(results []byte) int {
	at := 4 + 4 // status, and whether there are attributes
	if len(results) >= at && binary.BigEndian.Uint32(results[4:]) != 0 {
		at += 84
	}
	if len(results) < at+4 {
		return 0
	}
	return int(binary.BigEndian.Uint32(results[at:]))
}

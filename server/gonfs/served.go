package gonfs

import (
	"encoding/binary"

	"github.com/podnas/podnas/nfs/mount3"
	"github.com/podnas/podnas/nfs/nfs3"
	"github.com/podnas/podnas/nfs/rpc"
	"github.com/podnas/podnas/nfs/xdr"
	"github.com/podnas/podnas/server/stats"
)

// procedureNames are the procedures that are counted: NFS's by their numbers, then
// MOUNT's.
func procedureNames() []string {
	return []string{
		"NULL", "GETATTR", "SETATTR", "LOOKUP", "ACCESS", "READLINK", "READ", "WRITE", "CREATE", "MKDIR", "SYMLINK",
		"MKNOD", "REMOVE", "RMDIR", "RENAME", "LINK", "READDIR", "READDIRPLUS", "FSSTAT", "FSINFO", "PATHCONF", "COMMIT",
		"MOUNT NULL", "MNT", "DUMP", "UMNT",
	}
}

// procedureOf is the place of a call's procedure among the names. The call is one
// that the library does.
func procedureOf(h *rpc.CallHeader) int {
	if h.Prog == mount3.Program {
		return nfs3.ProcCommit + 1 + int(h.Proc)
	}
	return int(h.Proc)
}

// served counts the calls of a connection. The library answers them, so what became
// of one is read from the beginning of its reply.
type served struct {
	*stats.Conn

	call   stats.Call
	header rpc.CallHeader // aliases the record
	write  uint32         // the bytes that WRITE is to write
	reply  []byte         // as much as there is of it, replyHead at most
}

// replyHead is how much of a reply is looked at: the header and READ's result up to
// the count.
const replyHead = 6*4 + 4 + 4 + 84 + 4

// begin notes a call that the library gets.
func (s *served) begin(record []byte, volume func(handle []byte) *stats.Volume) {
	d := xdr.NewDecoder(record)
	s.header = rpc.CallHeader{}
	s.header.Decode(&d)
	s.call, s.write, s.reply = stats.Call{}, 0, s.reply[:0]
	if s.header.Prog == nfs3.Program && s.header.Proc != nfs3.ProcNull {
		args := d
		var first nfs3.HandleArgs // with which the arguments of every other procedure begin
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

// add looks at a part of the reply.
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

// readCount is the count in READ's result, RFC 1813 section 3.3.6.
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

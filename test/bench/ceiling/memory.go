package main

import (
	"github.com/podnas/podnas/nfs/nfs3"
	"github.com/podnas/podnas/nfs/xdr"
)

// memory knows as much of NFS as the loads null, getattr, access, lookup, read-* and
// write-* need, and keeps what is written, since the bench looks.
type memory struct {
	files [4][]byte
}

// The objects there are, which are also their handles.
const (
	dir = iota
	readFile
	writeFile
	emptyFile
)

func newMemory(size int) *memory {
	return &memory{[4][]byte{readFile: make([]byte, size), writeFile: make([]byte, size)}}
}

func (m *memory) root() nfs3.FH { return handle(dir) }

func (m *memory) waits(uint32, xdr.Decoder) bool { return false }

func (m *memory) answer(proc uint32, d *xdr.Decoder, out, _ []byte) (results, data []byte) {
	switch proc {
	case nfs3.ProcGetattr:
		var args nfs3.GetattrArgs
		args.Decode(d)
		res := nfs3.GetattrRes{Attr: m.attr(args.Object)}
		out = res.Append(out)
	case nfs3.ProcAccess:
		var args nfs3.AccessArgs
		args.Decode(d)
		res := nfs3.AccessRes{Attr: m.attrAfter(args.Object), Access: args.Access}
		out = res.Append(out)
	case nfs3.ProcLookup:
		var args nfs3.LookupArgs
		args.Decode(d)
		fh := named(args.Name)
		res := nfs3.LookupRes{Object: fh, Attr: m.attrAfter(fh), DirAttr: m.attrAfter(args.Dir)}
		out = res.Append(out)
	case nfs3.ProcRead:
		var args nfs3.ReadArgs
		args.Decode(d)
		data := m.files[args.File[0]][args.Offset : args.Offset+uint64(args.Count)]
		return readRes(&nfs3.ReadRes{Attr: m.attrAfter(args.File), Data: data}, out)
	case nfs3.ProcWrite:
		var args nfs3.WriteArgs
		args.Decode(d)
		copy(m.files[args.File[0]][args.Offset:], args.Data)
		res := nfs3.WriteRes{Count: args.Count, Committed: args.Stable, Wcc: nfs3.WccData{After: m.attrAfter(args.File)}}
		out = res.Append(out)
	case nfs3.ProcCommit:
		out = (&nfs3.CommitRes{}).Append(out)
	case nfs3.ProcCreate:
		var args nfs3.CreateArgs
		args.Decode(d)
		out = (&nfs3.CreateRes{Object: named(args.Where.Name)}).Append(out)
	case nfs3.ProcMkdir:
		out = (&nfs3.MkdirRes{Object: handle(dir)}).Append(out)
	case nfs3.ProcFsinfo:
		out = (&nfs3.FsinfoRes{RtMax: 1 << 20, WtMax: 1 << 20}).Append(out)
	case nfs3.ProcReaddirplus:
		out = (&nfs3.ReaddirplusRes{EOF: true}).Append(out)
	case nfs3.ProcRmdir:
		out = (&nfs3.RmdirRes{}).Append(out)
	}
	return out, nil
}

func handle(object byte) nfs3.FH { return nfs3.FH{object, 0, 0, 0, 0, 0, 0, 0} }

func named(name []byte) nfs3.FH {
	switch string(name) {
	case "read":
		return handle(readFile)
	case "write":
		return handle(writeFile)
	}
	if len(name) > 5 && string(name[:5]) == "file-" {
		return handle(emptyFile)
	}
	return handle(dir)
}

func (m *memory) attr(fh nfs3.FH) nfs3.Fattr {
	a := nfs3.Fattr{Type: nfs3.TypeReg, Mode: 0o644, Nlink: 1, Size: uint64(len(m.files[fh[0]])), FileID: uint64(fh[0]) + 1}
	if fh[0] == dir {
		a.Type, a.Mode = nfs3.TypeDir, 0o755
	}
	return a
}

func (m *memory) attrAfter(fh nfs3.FH) nfs3.PostOpAttr {
	return nfs3.PostOpAttr{Present: true, Attr: m.attr(fh)}
}

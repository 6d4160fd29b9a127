// Command ceiling is a server that does next to nothing: two files in memory,
// and the same answer to everything else. What podnas bench reaches with it is
// what the client, the loopback and the protocol leave for any server.
//
// With -dir the two files are on a disk, or rather in the kernel's cache of it: data is
// copied once more, by one pread(2) or pwrite(2) for a call, which no server of files can
// do without.
//
// It knows as much of NFS as the loads null, getattr, access, lookup, read-* and
// write-* need, and keeps what is written, since the bench looks.
package main

import (
	"bufio"
	"flag"
	"fmt"
	"net"
	"os"
	"path/filepath"

	"github.com/podnas/podnas/server/mount3"
	"github.com/podnas/podnas/server/nfs3"
	"github.com/podnas/podnas/server/oncrpc"
	"github.com/podnas/podnas/server/xdr"
)

// The objects there are, which are also their handles.
const (
	dir = iota
	readFile
	writeFile
	emptyFile
)

// large is how much data a READ must ask for to be worth a write of its own,
// straight from the file.
const large = 16 << 10

func main() {
	listen := flag.String("listen", "127.0.0.1:20499", "address to serve on")
	size := flag.Int("file-size", 64, "MiB of each file, as of podnas bench")
	disk := flag.String("dir", "", "directory to have the files in (default: in memory)")
	flag.Parse()
	l, err := net.Listen("tcp", *listen)
	if err != nil {
		fmt.Fprintln(os.Stderr, "ceiling: listen:", err)
		os.Exit(1)
	}
	s := &server{files: [4][]byte{readFile: make([]byte, *size<<20), writeFile: make([]byte, *size<<20)}}
	if *disk != "" {
		if err := s.moveTo(*disk); err != nil {
			fmt.Fprintln(os.Stderr, "ceiling:", err)
			os.Exit(1)
		}
	}
	fmt.Println(l.Addr()) // for scripts
	for {
		conn, err := l.Accept()
		if err != nil {
			fmt.Fprintln(os.Stderr, "ceiling: accept:", err)
			os.Exit(1)
		}
		go s.serve(conn)
	}
}

type server struct {
	files [4][]byte
	disk  [4]*os.File // with what is in files, nil: it is in memory alone
}

// moveTo has what is in files read from and written to a directory.
func (s *server) moveTo(dir string) error {
	for _, i := range []int{readFile, writeFile} {
		f, err := os.Create(filepath.Join(dir, fmt.Sprint("file-", i)))
		if err != nil {
			return err
		}
		if _, err := f.Write(s.files[i]); err != nil {
			return err
		}
		s.disk[i] = f
	}
	return nil
}

// serve answers a connection, as many calls in one write as have come together.
func (s *server) serve(conn net.Conn) {
	defer conn.Close()
	r := bufio.NewReaderSize(conn, 128<<10)
	var record, out []byte
	block := make([]byte, nfs3.MaxData)
	for {
		var err error
		if record, err = oncrpc.ReadRecord(r, record[:0], nfs3.MaxData+4096); err != nil {
			return
		}
		d := xdr.NewDecoder(record)
		var h oncrpc.CallHeader
		h.Decode(&d)
		var at int
		out, at = oncrpc.BeginRecord(out)
		reply := oncrpc.ReplyHeader{XID: h.XID}
		out = reply.Append(out)
		var data []byte
		if out, data = s.answer(&h, &d, out, block); data != nil {
			xdr.Patch(out, at, 1<<31|uint32(len(out)-at-4+len(data)))
			both := net.Buffers{out, data}
			if _, err := both.WriteTo(conn); err != nil {
				return
			}
			out = out[:0]
			continue
		}
		oncrpc.EndRecord(out, at)
		if r.Buffered() == 0 || len(out) > 64<<10 {
			if _, err := conn.Write(out); err != nil {
				return
			}
			out = out[:0]
		}
	}
}

// answer appends a call's results. Data is what follows them, from memory or in block.
func (s *server) answer(h *oncrpc.CallHeader, d *xdr.Decoder, out, block []byte) (results, data []byte) {
	if h.Prog == mount3.Program {
		res := mount3.MntRes{Handle: handle(dir), Flavors: []oncrpc.AuthFlavor{oncrpc.AuthSys}}
		return res.Append(out), nil
	}
	switch h.Proc {
	case nfs3.ProcGetattr:
		var args nfs3.GetattrArgs
		args.Decode(d)
		res := nfs3.GetattrRes{Attr: s.attr(args.Object)}
		out = res.Append(out)
	case nfs3.ProcAccess:
		var args nfs3.AccessArgs
		args.Decode(d)
		res := nfs3.AccessRes{Attr: s.attrAfter(args.Object), Access: args.Access}
		out = res.Append(out)
	case nfs3.ProcLookup:
		var args nfs3.LookupArgs
		args.Decode(d)
		fh := named(args.Name)
		res := nfs3.LookupRes{Object: fh, Attr: s.attrAfter(fh), DirAttr: s.attrAfter(args.Dir)}
		out = res.Append(out)
	case nfs3.ProcRead:
		return s.read(d, out, block)
	case nfs3.ProcWrite:
		var args nfs3.WriteArgs
		args.Decode(d)
		if f := s.disk[args.File[0]]; f != nil {
			if _, err := f.WriteAt(args.Data, int64(args.Offset)); err != nil {
				return (&nfs3.WriteRes{Status: nfs3.ErrIO}).Append(out), nil
			}
		} else {
			copy(s.files[args.File[0]][args.Offset:], args.Data)
		}
		res := nfs3.WriteRes{Count: args.Count, Committed: args.Stable, Wcc: nfs3.WccData{After: s.attrAfter(args.File)}}
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

func (s *server) read(d *xdr.Decoder, out, block []byte) (results, data []byte) {
	var args nfs3.ReadArgs
	args.Decode(d)
	if f := s.disk[args.File[0]]; f != nil {
		data = block[:args.Count]
		if _, err := f.ReadAt(data, int64(args.Offset)); err != nil {
			return (&nfs3.ReadRes{Status: nfs3.ErrIO}).Append(out), nil
		}
	} else {
		data = s.files[args.File[0]][args.Offset : args.Offset+uint64(args.Count)]
	}
	res := nfs3.ReadRes{Attr: s.attrAfter(args.File), Data: data}
	if len(data) < large {
		return res.Append(out), nil
	}
	res.Data = nil
	out = res.Append(out)
	xdr.Patch(out, len(out)-12, args.Count) // the count
	xdr.Patch(out, len(out)-4, args.Count)  // and the data's length
	return out, data
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

func (s *server) attr(fh nfs3.FH) nfs3.Fattr {
	a := nfs3.Fattr{Type: nfs3.TypeReg, Mode: 0o644, Nlink: 1, Size: uint64(len(s.files[fh[0]])), FileID: uint64(fh[0]) + 1}
	if fh[0] == dir {
		a.Type, a.Mode = nfs3.TypeDir, 0o755
	}
	return a
}

func (s *server) attrAfter(fh nfs3.FH) nfs3.PostOpAttr {
	return nfs3.PostOpAttr{Present: true, Attr: s.attr(fh)}
}

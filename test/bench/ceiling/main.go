// Command ceiling is a server that does next to nothing, so that what podnas bench
// reaches with it is what is left for any server.
//
// By itself it has two files in memory (memory.go), and the same answer to everything
// else: what client, loopback and protocol leave.
//
// With -dir it serves a directory (disk.go): for a call it makes the system calls that no
// server of files can do without, and nothing else. What it leaves out is most of what
// makes a server: it checks no rights and no handles, remembers no calls, counts nothing,
// lets two clients change a directory between the looks at its times, loses files that are
// renamed while they are open, and lets anybody out of the directory. Nothing but the
// bench may use it.
package main

import (
	"bufio"
	"flag"
	"fmt"
	"net"
	"os"
	"sync/atomic"

	"github.com/podnas/podnas/nfs/mount3"
	"github.com/podnas/podnas/nfs/nfs3"
	"github.com/podnas/podnas/nfs/rpc"
	"github.com/podnas/podnas/nfs/socket"
	"github.com/podnas/podnas/nfs/xdr"
)

// large is how much data a READ must ask for to be worth a write of its own,
// straight from the file.
const large = 16 << 10

// files are what is served.
type files interface {
	root() nfs3.FH
	// answer appends the results of a call of NFS. data, if it is not nil, is what
	// follows them, from memory or in block; it is good until the next call.
	answer(proc uint32, d *xdr.Decoder, out, block []byte) (results, data []byte)
	// waits tells whether to answer a call is to wait for the disk.
	waits(proc uint32, d xdr.Decoder) bool
}

func main() {
	listen := flag.String("listen", "127.0.0.1:20499", "address to serve on")
	size := flag.Int("file-size", 64, "MiB of each file in memory, as of podnas bench")
	dir := flag.String("dir", "", "directory to serve (default: files in memory)")
	counts := flag.Bool("counts", false, "look at a file before it is removed, as who counts space must, and keep what CREATE has opened for the WRITE that follows")
	flag.Parse()
	fmt.Fprintln(os.Stderr, "ceiling:", run(*listen, *dir, *counts, *size<<20))
	os.Exit(1)
}

// run serves until it can't.
func run(listen, dir string, counts bool, size int) error {
	l, err := net.Listen("tcp", listen)
	if err != nil {
		return err
	}
	var f files = newMemory(size)
	if dir != "" {
		f = &disk{dir: dir, counts: counts}
	}
	fmt.Println(l.Addr()) // for scripts
	for {
		conn, err := l.Accept()
		if err != nil {
			return err
		}
		on, err := socket.New(conn)
		if err != nil {
			return err
		}
		go serve(on, f)
	}
}

// serve answers a connection, as many calls in one write as have come together.
func serve(conn *socket.Conn, f files) {
	defer conn.Close()
	r := bufio.NewReaderSize(conn, 32<<10)
	var record, out []byte
	block := make([]byte, nfs3.MaxData)
	pieces := make([][]byte, 2)
	var waiting atomic.Int32 // calls answered by other goroutines
	for {
		var err error
		if record, err = rpc.ReadRecord(r, record[:0], nfs3.MaxData+4096); err != nil {
			return
		}
		d := xdr.NewDecoder(record)
		var h rpc.CallHeader
		h.Decode(&d)
		var data []byte
		alone := r.Buffered() == 0 && len(out) == 0 && waiting.Load() == 0
		if h.Prog == nfs3.Program && f.waits(h.Proc, d) && !alone {
			record = nil // it is the other goroutine's
			waiting.Add(1)
			go func() {
				out, _ := reply(f, &h, &d, nil, nil) // without data: it is no READ
				waiting.Add(-1)
				_, _ = conn.Write(out) // the reader meets the error
			}()
		} else {
			at := len(out)
			out, data = reply(f, &h, &d, out, block)
			if data != nil {
				xdr.Patch(out, at, 1<<31|uint32(len(out)-at-4+len(data)))
			}
		}
		if data == nil && r.Buffered() > 0 && len(out) < 64<<10 {
			continue
		}
		if err := conn.WriteAll(append(pieces[:0], out, data)); err != nil {
			return
		}
		out = out[:0]
	}
}

// reply appends the reply to a call, without the data that follows it.
func reply(f files, h *rpc.CallHeader, d *xdr.Decoder, out, block []byte) (record, data []byte) {
	head := rpc.ReplyHeader{XID: h.XID}
	if h.Prog != mount3.Program && h.Prog != nfs3.Program { // NFS_ACL, of Linux
		head.Accept = rpc.ProgUnavail
	}
	out, at := rpc.BeginRecord(out)
	out = head.Append(out)
	switch h.Prog {
	case mount3.Program:
		res := mount3.MntRes{Handle: f.root(), Flavors: []rpc.AuthFlavor{rpc.AuthSys}}
		out = res.Append(out)
	case nfs3.Program:
		out, data = f.answer(h.Proc, d, out, block)
	}
	rpc.EndRecord(out, at)
	return out, data
}

// readRes appends the result of a READ. Much data follows it.
func readRes(res *nfs3.ReadRes, out []byte) (results, data []byte) {
	data = res.Data
	if len(data) < large {
		return res.Append(out), nil
	}
	res.Data = nil
	out = res.Append(out)
	xdr.Patch(out, len(out)-12, uint32(len(data))) // the count
	xdr.Patch(out, len(out)-4, uint32(len(data)))  // and the data's length
	return out, data
}

package nfsbench

import (
	"fmt"

	"github.com/podnas/podnas/nfs/nfs3"
	"github.com/podnas/podnas/nfs/rpc"
	"github.com/podnas/podnas/nfs/xdr"
)

// lane makes one call at a time over a connection that it shares with others.
// Decoded results alias its buffer, and are valid until its next call.
type lane struct {
	conn *conn
	cred rpc.Auth
	done chan error // of the call in flight
	out  []byte     // the call, kept for the next
	in   []byte     // the reply, kept for the next

	// The arguments of the most frequent calls, to save their allocation.
	handle  nfs3.HandleArgs
	access  nfs3.AccessArgs
	where   nfs3.DirOpArgs
	readAt  nfs3.ReadArgs
	writeAt writeArgs
	list    nfs3.ReaddirplusArgs
}

func newLane(cred rpc.Auth) *lane {
	return &lane{cred: cred, done: make(chan error, 1)}
}

// statusError is the error of a call that the server refused.
type statusError struct {
	call   string
	status nfs3.Status
}

func (e *statusError) Error() string { return e.call + ": " + e.status.String() }

// refused returns the error of a call's status, nil for OK.
func refused(call string, status nfs3.Status) error {
	if status == nfs3.OK {
		return nil
	}
	return &statusError{call, status}
}

// call makes a call and returns its results. Args may be nil.
func (l *lane) call(prog, vers, proc uint32, args rpc.Args) (xdr.Decoder, error) {
	h := rpc.CallHeader{RPCVersion: rpc.Version, Prog: prog, Vers: vers, Proc: proc, Cred: l.cred}
	b, at := rpc.BeginRecord(l.out[:0])
	b = h.Append(b)
	if args != nil {
		b = args.Append(b)
	}
	rpc.EndRecord(b, at)
	l.out = b
	if err := l.conn.start(l); err != nil {
		return xdr.Decoder{}, &connError{err}
	}
	if err := <-l.done; err != nil {
		return xdr.Decoder{}, &connError{err}
	}
	d := xdr.NewDecoder(l.in)
	var reply rpc.ReplyHeader
	reply.Decode(&d)
	if err := d.Err(); err != nil {
		return d, fmt.Errorf("decode the reply's header: %w", err)
	}
	return d, reply.Err()
}

// connError is the error of a broken connection, for all calls on it.
type connError struct{ err error }

func (e *connError) Error() string { return e.err.Error() }
func (e *connError) Unwrap() error { return e.err }

// nfs calls NFS. An error in the results is the decoder's.
func (l *lane) nfs(proc uint32, args rpc.Args) (xdr.Decoder, error) {
	return l.call(nfs3.Program, nfs3.Version, proc, args)
}

// decoded returns an error if the results can't be decoded. Servers may append
// bytes, and some omit the rest after a failure's status.
func decoded(call string, d *xdr.Decoder, status nfs3.Status) error {
	if err := d.Err(); err != nil && status == nfs3.OK {
		return fmt.Errorf("%s: decode the results: %w", call, err)
	}
	return refused(call, status)
}

func (l *lane) null() error {
	_, err := l.nfs(nfs3.ProcNull, nil)
	return err
}

func (l *lane) getattr(fh nfs3.FH) (attr nfs3.Fattr, err error) {
	l.handle.Object = fh
	d, err := l.nfs(nfs3.ProcGetattr, &l.handle)
	if err != nil {
		return attr, err
	}
	var res nfs3.GetattrRes
	res.Decode(&d)
	return res.Attr, decoded("GETATTR", &d, res.Status)
}

func (l *lane) accessOf(fh nfs3.FH, want uint32) (uint32, error) {
	l.access.Object, l.access.Access = fh, want
	d, err := l.nfs(nfs3.ProcAccess, &l.access)
	if err != nil {
		return 0, err
	}
	var res nfs3.AccessRes
	res.Decode(&d)
	return res.Access, decoded("ACCESS", &d, res.Status)
}

func (l *lane) lookup(dir nfs3.FH, name []byte) (nfs3.FH, error) {
	l.where.Dir, l.where.Name = dir, name
	d, err := l.nfs(nfs3.ProcLookup, &l.where)
	if err != nil {
		return nil, err
	}
	var res nfs3.LookupRes
	res.Decode(&d)
	return res.Object, decoded("LOOKUP", &d, res.Status)
}

// read reads up to n bytes at once, fewer if the server returns fewer.
func (l *lane) read(fh nfs3.FH, offset uint64, n int) (data []byte, eof bool, err error) {
	l.readAt.File, l.readAt.Offset, l.readAt.Count = fh, offset, uint32(n)
	d, err := l.nfs(nfs3.ProcRead, &l.readAt)
	if err != nil {
		return nil, false, err
	}
	var res nfs3.ReadRes
	res.Decode(&d)
	if err := decoded("READ", &d, res.Status); err != nil {
		return nil, false, err
	}
	if int(res.Count) != len(res.Data) || len(res.Data) > n {
		return nil, false, fmt.Errorf("READ of %d bytes: count %d with %d bytes of data", n, res.Count, len(res.Data))
	}
	return res.Data, res.EOF, nil
}

// writeArgs are WRITE3args whose data is generated in the call's buffer.
type writeArgs struct {
	filler *filler
	file   nfs3.FH
	offset uint64
	n      int
	seed   uint64
	stable nfs3.StableHow
}

// Append appends the arguments.
func (a *writeArgs) Append(b []byte) []byte {
	b = xdr.AppendOpaque(b, a.file)
	b = xdr.AppendUint64(b, a.offset)
	b = xdr.AppendUint32(b, uint32(a.n))
	b = xdr.AppendUint32(b, uint32(a.stable))
	b = xdr.AppendUint32(b, uint32(a.n))
	b = a.filler.append(b, a.seed, a.offset, a.n)
	var zero [4]byte
	return append(b, zero[:xdr.Pad(a.n)]...)
}

// write writes up to n bytes of the pattern, fewer if the server accepts fewer.
func (l *lane) write(f *filler, fh nfs3.FH, seed, offset uint64, n int, stable nfs3.StableHow) (nfs3.WriteRes, error) {
	l.writeAt = writeArgs{f, fh, offset, n, seed, stable}
	var res nfs3.WriteRes
	d, err := l.nfs(nfs3.ProcWrite, &l.writeAt)
	if err != nil {
		return res, err
	}
	res.Decode(&d)
	if err := decoded("WRITE", &d, res.Status); err != nil {
		return res, err
	}
	if res.Count == 0 || int(res.Count) > n {
		return res, fmt.Errorf("WRITE of %d bytes: the server says that it wrote %d", n, res.Count)
	}
	if res.Committed < stable {
		return res, fmt.Errorf("WRITE: asked for stable_how %d, got %d", stable, res.Committed)
	}
	return res, nil
}

func (l *lane) commit(fh nfs3.FH) (nfs3.CommitRes, error) {
	var res nfs3.CommitRes
	d, err := l.nfs(nfs3.ProcCommit, &nfs3.CommitArgs{File: fh})
	if err != nil {
		return res, err
	}
	res.Decode(&d)
	return res, decoded("COMMIT", &d, res.Status)
}

// create creates a new file.
func (l *lane) create(dir nfs3.FH, name []byte) (nfs3.FH, error) {
	args := nfs3.CreateArgs{Where: nfs3.DirOpArgs{Dir: dir, Name: name}, Mode: nfs3.Guarded, Attr: mode(0o644)}
	return l.made("CREATE", nfs3.ProcCreate, &args, dir, name)
}

func (l *lane) mkdir(dir nfs3.FH, name []byte) (nfs3.FH, error) {
	args := nfs3.MkdirArgs{Where: nfs3.DirOpArgs{Dir: dir, Name: name}, Attr: mode(0o755)}
	return l.made("MKDIR", nfs3.ProcMkdir, &args, dir, name)
}

// made creates something and returns its handle. It looks the handle up if the
// server omits it.
func (l *lane) made(call string, proc uint32, args rpc.Args, dir nfs3.FH, name []byte) (nfs3.FH, error) {
	d, err := l.nfs(proc, args)
	if err != nil {
		return nil, err
	}
	var res nfs3.CreateRes
	res.Decode(&d)
	if err := decoded(call, &d, res.Status); err != nil {
		return nil, err
	}
	if res.Object == nil {
		return l.lookup(dir, name)
	}
	return res.Object, nil
}

// setattr sets mode and times, like an archiver at the end of a file.
func (l *lane) setattr(fh nfs3.FH, attr nfs3.Sattr) error {
	d, err := l.nfs(nfs3.ProcSetattr, &nfs3.SetattrArgs{Object: fh, Attr: attr})
	if err != nil {
		return err
	}
	var res nfs3.SetattrRes
	res.Decode(&d)
	return decoded("SETATTR", &d, res.Status)
}

func (l *lane) remove(dir nfs3.FH, name []byte) error {
	return l.unlink("REMOVE", nfs3.ProcRemove, dir, name)
}

func (l *lane) rmdir(dir nfs3.FH, name []byte) error {
	return l.unlink("RMDIR", nfs3.ProcRmdir, dir, name)
}

func (l *lane) unlink(call string, proc uint32, dir nfs3.FH, name []byte) error {
	l.where.Dir, l.where.Name = dir, name
	d, err := l.nfs(proc, &l.where)
	if err != nil {
		return err
	}
	var res nfs3.WccRes
	res.Decode(&d)
	return decoded(call, &d, res.Status)
}

func (l *lane) rename(dir nfs3.FH, from, to []byte) error {
	d, err := l.nfs(nfs3.ProcRename, &nfs3.RenameArgs{
		From: nfs3.DirOpArgs{Dir: dir, Name: from}, To: nfs3.DirOpArgs{Dir: dir, Name: to},
	})
	if err != nil {
		return err
	}
	var res nfs3.RenameRes
	res.Decode(&d)
	return decoded("RENAME", &d, res.Status)
}

// mode is an Sattr that sets the mode.
func mode(m uint32) nfs3.Sattr {
	return nfs3.Sattr{Mode: nfs3.SetUint32{Set: true, Value: m}}
}

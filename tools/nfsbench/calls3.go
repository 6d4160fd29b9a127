package nfsbench

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"

	"github.com/podnas/podnas/nfs/mount3"
	"github.com/podnas/podnas/nfs/nfs3"
	"github.com/podnas/podnas/nfs/rpc"
	"github.com/podnas/podnas/nfs/xdr"
)

// protocol3 is version 3, which has no state.
type protocol3 struct {
	cfg    *Config
	target Target
}

func (p *protocol3) join(int, *conn) error { return nil }
func (p *protocol3) leave(*lane) error     { return nil }

func (p *protocol3) newCalls(l *lane, _, _ int) (calls, error) { return &calls3{lane: l}, nil }

// root gets the handle from MOUNT.
func (p *protocol3) root(ctx context.Context, _ *lane) ([]byte, error) {
	cfg, t := p.cfg, p.target
	c, err := dial(ctx, t.address(t.MountPort), cfg.timeout())
	if err != nil {
		return nil, fmt.Errorf("connect to MOUNT at port %d: %w: write HOST:PORT:/path if the server has another port (see podnas volume show), and --mountport if MOUNT has one of its own", t.MountPort, err)
	}
	defer c.close()
	defer context.AfterFunc(ctx, func() { c.fail(ctx.Err()) })()
	l := newLane(cfg.cred())
	l.conn = c
	d, err := l.call(mount3.Program, mount3.Version, mount3.ProcMnt, &mount3.PathArgs{Path: []byte(t.Path)})
	if err != nil {
		if rpc := (*rpc.RPCError)(nil); errors.As(err, &rpc) {
			err = fmt.Errorf("%w (is MOUNT on another port than %d? see rpcinfo -p %s, and set --mountport)", err, t.MountPort, t.Host)
		}
		return nil, fmt.Errorf("mount %s: %w", t, err)
	}
	var res mount3.MntRes
	res.Decode(&d)
	if err := d.Err(); err != nil {
		return nil, fmt.Errorf("mount %s: decode the results: %w", t, err)
	}
	switch res.Status {
	case mount3.OK:
	case mount3.ErrAcces, mount3.ErrPerm:
		return nil, fmt.Errorf("mount %s: %v: the server does not let this machine in, or lets in callers from ports below 1024 alone (privilegedPorts of podnas, secure of knfsd): then run this as root", t, res.Status)
	default:
		return nil, fmt.Errorf("mount %s: %v", t, res.Status)
	}
	return bytes.Clone(res.Handle), nil
}

// calls3 are the calls of version 3.
type calls3 struct {
	*lane

	// The arguments of the most frequent calls, to save their allocation.
	handle  nfs3.HandleArgs
	may     nfs3.AccessArgs
	where   nfs3.DirOpArgs
	readAt  nfs3.ReadArgs
	writeAt writeArgs
	page    nfs3.ReaddirplusArgs
	opened  []byte // the handle of the file that was opened last
}

// refused returns the error of a call's status, nil for OK.
func refused(call string, status nfs3.Status) error {
	if status == nfs3.OK {
		return nil
	}
	return &statusError{call, uint32(status), status}
}

// nfs calls NFS. An error in the results is the decoder's.
func (l *calls3) nfs(proc uint32, args rpc.Args) (xdr.Decoder, error) {
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

// limits gets the server's maxima for READ and WRITE.
func (l *calls3) limits(fh []byte) (rtmax, wtmax int, err error) {
	l.handle.Object = fh
	d, err := l.nfs(nfs3.ProcFsinfo, &l.handle)
	if err != nil {
		return 0, 0, err
	}
	var res nfs3.FsinfoRes
	res.Decode(&d)
	if err := decoded("FSINFO", &d, res.Status); err != nil {
		return 0, 0, err
	}
	if res.RtMax == 0 || res.WtMax == 0 {
		return 0, 0, fmt.Errorf("FSINFO: the server reads %d bytes at once and writes %d", res.RtMax, res.WtMax)
	}
	return int(min(res.RtMax, nfs3.MaxData)), int(min(res.WtMax, nfs3.MaxData)), nil
}

// room gets the bytes that are free for the caller.
func (l *calls3) room(fh []byte) (int64, error) {
	l.handle.Object = fh
	d, err := l.nfs(nfs3.ProcFsstat, &l.handle)
	if err != nil {
		return 0, err
	}
	var res nfs3.FsstatRes
	res.Decode(&d)
	return int64(min(res.ABytes, math.MaxInt64)), decoded("FSSTAT", &d, res.Status)
}

func (l *calls3) null() error {
	_, err := l.nfs(nfs3.ProcNull, nil)
	return err
}

func (l *calls3) renew() error { return nil }

func (l *calls3) getattr(fh []byte) (attributes, error) {
	l.handle.Object = fh
	d, err := l.nfs(nfs3.ProcGetattr, &l.handle)
	if err != nil {
		return attributes{}, err
	}
	var res nfs3.GetattrRes
	res.Decode(&d)
	return attributes{res.Attr.Type == nfs3.TypeReg, res.Attr.Size}, decoded("GETATTR", &d, res.Status)
}

func (l *calls3) access(fh []byte, want uint32) (uint32, error) {
	l.may.Object, l.may.Access = fh, want
	d, err := l.nfs(nfs3.ProcAccess, &l.may)
	if err != nil {
		return 0, err
	}
	var res nfs3.AccessRes
	res.Decode(&d)
	return res.Access, decoded("ACCESS", &d, res.Status)
}

func (l *calls3) lookup(dir, name []byte) ([]byte, error) {
	l.where.Dir, l.where.Name = dir, name
	d, err := l.nfs(nfs3.ProcLookup, &l.where)
	if err != nil {
		return nil, err
	}
	var res nfs3.LookupRes
	res.Decode(&d)
	return res.Object, decoded("LOOKUP", &d, res.Status)
}

// open is what a client does of which the file is new: version 3 has no OPEN.
func (l *calls3) open(dir, name []byte) (file, error) {
	fh, err := l.lookup(dir, name)
	if err != nil {
		return file{}, err
	}
	l.opened = append(l.opened[:0], fh...)
	const want = accessRead | accessModify | accessExtend
	got, err := l.access(l.opened, want)
	return file{fh: l.opened}, given(got, want, err)
}

func (l *calls3) close(*file) error { return nil }

func (l *calls3) lock(*file) error   { return errors.ErrUnsupported }
func (l *calls3) unlock(*file) error { return errors.ErrUnsupported }

func (l *calls3) read(f *file, offset uint64, n int) (data []byte, eof bool, err error) {
	l.readAt.File, l.readAt.Offset, l.readAt.Count = f.fh, offset, uint32(n)
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
	file   []byte
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

func (l *calls3) write(p *filler, f *file, seed, offset uint64, n int, stable bool) (written, error) {
	how := nfs3.Unstable
	if stable {
		how = nfs3.FileSync
	}
	l.writeAt = writeArgs{p, f.fh, offset, n, seed, how}
	d, err := l.nfs(nfs3.ProcWrite, &l.writeAt)
	if err != nil {
		return written{}, err
	}
	var res nfs3.WriteRes
	res.Decode(&d)
	if err := decoded("WRITE", &d, res.Status); err != nil {
		return written{}, err
	}
	w := written{int(res.Count), res.Verf}
	err = w.check(n, stable, res.Committed == nfs3.FileSync)
	return w, err
}

func (l *calls3) commit(fh []byte) (verifier, error) {
	d, err := l.nfs(nfs3.ProcCommit, &nfs3.CommitArgs{File: fh})
	if err != nil {
		return verifier{}, err
	}
	var res nfs3.CommitRes
	res.Decode(&d)
	return res.Verf, decoded("COMMIT", &d, res.Status)
}

func (l *calls3) create(dir, name []byte) (file, error) {
	fh, err := l.touch(dir, name)
	l.opened = append(l.opened[:0], fh...)
	return file{fh: l.opened}, err
}

func (l *calls3) touch(dir, name []byte) ([]byte, error) {
	args := nfs3.CreateArgs{Where: nfs3.DirOpArgs{Dir: dir, Name: name}, Mode: nfs3.Guarded, Attr: mode(0o644)}
	return l.made("CREATE", nfs3.ProcCreate, &args, dir, name)
}

func (l *calls3) mkdir(dir, name []byte) ([]byte, error) {
	args := nfs3.MkdirArgs{Where: nfs3.DirOpArgs{Dir: dir, Name: name}, Attr: mode(0o755)}
	return l.made("MKDIR", nfs3.ProcMkdir, &args, dir, name)
}

// made creates something and returns its handle. It looks the handle up if the
// server omits it.
func (l *calls3) made(call string, proc uint32, args rpc.Args, dir, name []byte) ([]byte, error) {
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

func (l *calls3) setattr(fh []byte, bits uint32, mtime int64) error {
	attr := mode(bits)
	attr.Mtime = nfs3.SetTime{How: nfs3.SetToClientTime, Time: nfs3.Time{Sec: uint32(mtime)}}
	d, err := l.nfs(nfs3.ProcSetattr, &nfs3.SetattrArgs{Object: fh, Attr: attr})
	if err != nil {
		return err
	}
	var res nfs3.SetattrRes
	res.Decode(&d)
	return decoded("SETATTR", &d, res.Status)
}

func (l *calls3) remove(dir, name []byte) error {
	return l.unlink("REMOVE", nfs3.ProcRemove, dir, name)
}

func (l *calls3) rmdir(dir, name []byte) error {
	return l.unlink("RMDIR", nfs3.ProcRmdir, dir, name)
}

func (l *calls3) unlink(call string, proc uint32, dir, name []byte) error {
	l.where.Dir, l.where.Name = dir, name
	d, err := l.nfs(proc, &l.where)
	if err != nil {
		return err
	}
	var res nfs3.WccRes
	res.Decode(&d)
	return decoded(call, &d, res.Status)
}

func (l *calls3) rename(dir, from, to []byte) error {
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

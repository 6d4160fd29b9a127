package nfsv3

import (
	"syscall"

	"github.com/podnas/podnas/nfs/nfs3"
	"github.com/podnas/podnas/nfs/rpc"
	"github.com/podnas/podnas/server/inode"
	"github.com/podnas/podnas/server/vfs"
)

const (
	// ioMax is the maximum size of a READ or WRITE, which FSINFO returns: Linux clients
	// never request more.
	ioMax = 1 << 20
	// readHead is the size of READ's result before the data: status, attributes,
	// count, eof and length.
	readHead = 4 + 4 + 84 + 4 + 4 + 4
)

// read: RFC 1813 section 3.3.6.
func (t *task) read() (result, rpc.AcceptStat) {
	args, res := &t.args.read, &t.res.read
	if !t.decode(args) {
		return nil, rpc.GarbageArgs
	}
	count := int(min(args.Count, ioMax))
	if !t.rpc.Reserve(readHead + count + 3) {
		return nil, rpc.SystemErr
	}
	f, err := t.Open(args.File, inode.UseRead, inode.AtOnce)
	if err != nil {
		res.Status = t.statusOf(err)
		return res, rpc.Success
	}
	// The data goes where the result will have it.
	at := len(t.rpc.Reply) + readHead
	data, err := t.Read(f, t.rpc.Reply[at:at+count:at+count], args.Offset)
	res.Status, res.Data, res.EOF = t.statusOf(err), data.Bytes, data.EOF
	res.Attr = postOp(f.Volume, &data.Attr)
	return res, rpc.Success
}

// write: section 3.3.7.
//
// The arguments' data aliases the record, which does not change until the reply, and is
// written to the file from there.
func (t *task) write() (result, rpc.AcceptStat) {
	args, res := &t.args.write, &t.res.write
	if !t.decode(args) {
		return nil, rpc.GarbageArgs
	}
	f, err := t.Open(args.File, inode.UseWrite)
	if err != nil {
		res.Status = t.statusOf(err)
		return res, rpc.Success
	}
	if int(args.Count) > len(args.Data) {
		attr := vfs.AttrsOf(f)
		res.Status, res.Wcc = t.statusOf(syscall.EINVAL), wcc(f.Volume, &attr, &attr)
		return res, rpc.Success
	}
	w, err := t.Write(f, args.Data[:args.Count], args.Offset)
	if err == nil {
		res.Count, res.Committed = uint32(w.Count), args.Stable
		if args.Stable != nfs3.Unstable {
			err = t.Sync(f, args.Stable == nfs3.DataSync)
		}
	}
	res.Status, res.Wcc = t.statusOf(err), wcc(f.Volume, &w.Before, &w.After)
	res.Verf = writeVerf(w.Verifier)
	return res, rpc.Success
}

// commit: section 3.3.21. The whole file is synced, whatever the range.
func (t *task) commit(args *nfs3.CommitArgs) (result, rpc.AcceptStat) {
	res := &nfs3.CommitRes{}
	f, err := t.Open(args.File, inode.UseWrite)
	if err != nil {
		res.Status = t.statusOf(err)
		return res, rpc.Success
	}
	attr, err := t.Commit(f)
	res.Status, res.Wcc = t.statusOf(err), wcc(f.Volume, &attr, &attr)
	res.Verf = writeVerf(f.Volume.Durable.WriteVerifier()) // from after the sync
	return res, rpc.Success
}

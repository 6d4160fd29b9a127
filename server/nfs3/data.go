package nfs3

import (
	"syscall"

	"github.com/podnas/podnas/nfs/nfs3"
	"github.com/podnas/podnas/nfs/rpc"
	"github.com/podnas/podnas/server/export"
	"github.com/podnas/podnas/server/oncrpc"
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
func (s *service) read(c *oncrpc.Call) oncrpc.Answer {
	t := s.task(c)
	args, res := &t.args.read, &t.res.read
	if !decode(c, args) {
		return t.badArgs()
	}
	args.Count = min(args.Count, ioMax)
	if !c.Reserve(readHead + int(args.Count) + 3) {
		return t.fail(rpc.SystemErr)
	}
	f, err := t.OpenAtOnce(args.File, export.UseRead)
	if err != nil {
		res.Status = statusOf(err)
		return t.reply(res)
	}
	t.file = f
	return t.answer((*task).read)
}

func (t *task) read() result {
	args, res := &t.args.read, &t.res.read
	// The data goes where the result will have it.
	at, count := len(t.Call.Reply)+readHead, int(args.Count)
	data, done, err := t.Read(t.file, t.Call.Reply[at:at+count:at+count], args.Offset)
	if !done {
		return nil
	}
	res.Status, res.Data, res.EOF = statusOf(err), data.Bytes, data.EOF
	res.Attr = postOp(t.file.Volume, &data.Attr)
	return res
}

// write: section 3.3.7.
//
// The arguments' data aliases the record, which does not change until the reply, and is
// written to the file from there.
func (s *service) write(c *oncrpc.Call) oncrpc.Answer {
	t := s.task(c)
	args, res := &t.args.write, &t.res.write
	if !decode(c, args) {
		return t.badArgs()
	}
	f, err := t.Open(args.File, export.UseWrite)
	if err != nil {
		res.Status = statusOf(err)
		return t.reply(res)
	}
	t.file = f
	return t.answer((*task).write)
}

func (t *task) write() result {
	f, args, res := t.file, &t.args.write, &t.res.write
	if int(args.Count) > len(args.Data) {
		attr := vfs.AttrsOf(f)
		res.Status, res.Wcc = statusOf(syscall.EINVAL), wcc(f.Volume, &attr, &attr)
		return res
	}
	w, done, err := t.Write(f, args.Data[:args.Count], args.Offset)
	if !done {
		return nil
	}
	res.Status, res.Wcc = statusOf(err), wcc(f.Volume, &w.Before, &w.After)
	res.Verf = writeVerf(w.Verifier)
	if err == nil {
		res.Count, res.Committed = uint32(w.Count), args.Stable
		if args.Stable != nfs3.Unstable {
			t.Sync(f, args.Stable == nfs3.DataSync)
			t.syncs(&res.Status)
		}
	}
	return res
}

// commit: section 3.3.21. The whole file is synced, whatever the range.
func (s *service) commit(c *oncrpc.Call) oncrpc.Answer {
	t := s.task(c)
	var args nfs3.CommitArgs
	if !decode(c, &args) {
		return t.badArgs()
	}
	res := &nfs3.CommitRes{}
	f, err := t.Open(args.File, export.UseWrite)
	if err != nil {
		res.Status = statusOf(err)
		return t.reply(res)
	}
	t.file = f
	return t.answer(func(t *task) result {
		attr, done, err := t.Commit(f)
		if !done {
			return nil
		}
		res.Status, res.Wcc = statusOf(err), wcc(f.Volume, &attr, &attr)
		if err == nil {
			t.syncs(&res.Status)
			t.verf = &res.Verf
		}
		return res
	})
}

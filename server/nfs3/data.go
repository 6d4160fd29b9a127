package nfs3

import (
	"math"
	"syscall"

	"github.com/podnas/podnas/nfs/nfs3"
	"github.com/podnas/podnas/nfs/rpc"
	"github.com/podnas/podnas/server/export"
	"github.com/podnas/podnas/server/oncrpc"
)

const (
	// ioMax is the most that READ and WRITE move at once, as FSINFO tells:
	// what Linux clients ask for at most.
	ioMax = 1 << 20
	// maxOffset is where a file ends at the latest, off_t's maximum.
	maxOffset = math.MaxInt64
	// readHead is the size of READ's result before the data: status, attributes,
	// count, eof and length.
	readHead = 4 + 4 + 84 + 4 + 4 + 4
)

// read: RFC 1813 section 3.3.6.
func (s *service) read(c *oncrpc.Call) oncrpc.Answer {
	t := s.task(c)
	args := &t.args.read
	if !decode(c, args) {
		return badArgs(c)
	}
	args.Count = min(args.Count, ioMax)
	if !c.Reserve(readHead + int(args.Count) + 3) {
		return finishCall(c, rpc.SystemErr)
	}
	f, err := s.openToRead(c, args.File)
	if err != nil {
		t.res.read.Status = statusOf(err)
		return reply(c, &t.res.read)
	}
	t.data, t.id = f, identity(c, f.Volume)
	if t.readDirectly() {
		return reply(c, &t.res.read)
	}
	return t.start(f.Volume, (*task).read, f)
}

func (t *task) read() result {
	f, args, res := t.data, &t.args.read, &t.res.read
	attr, err := f.Stat()
	if err == nil {
		err = mayRead(f, &attr, &t.id)
	}
	if err == nil && args.Offset > maxOffset {
		err = syscall.EINVAL
	}
	var data []byte
	if err == nil {
		// The data goes where the result will have it.
		at, count := len(t.call.Reply)+readHead, int(args.Count)
		data = t.call.Reply[at : at+count : at+count]
		var n int
		n, err = f.ReadAt(data, int64(min(args.Offset, maxOffset-uint64(count))))
		data = data[:n]
	}
	if err == nil {
		attr, err = f.Stat()
	}
	if res.Status = statusOf(err); err == nil {
		t.call.Served.Read = len(data)
		res.Data = data
		res.EOF = args.Offset+uint64(len(data)) >= uint64(attr.Size)
	}
	if attr.Nlink > 0 {
		res.Attr = nfs3.PostOpAttr{Present: true, Attr: fattr(f.Volume, &attr)}
	}
	return res
}

// mayRead tells whether the caller may read a file, which who may execute it may
// too: to execute is to read.
func mayRead(f *export.DataFile, a *export.Attr, id *export.Identity) error {
	err := mayUse(f, a, id, export.MayRead)
	if err != nil && f.Access(export.MayExec) == nil {
		return nil
	}
	return err
}

// write: section 3.3.7.
//
// The arguments' data aliases the record, which stays as it is until the reply,
// and goes to the file from there.
func (s *service) write(c *oncrpc.Call) oncrpc.Answer {
	t := s.task(c)
	if !decode(c, &t.args.write) {
		return badArgs(c)
	}
	f, err := s.openToWrite(c, t.args.write.File)
	if err != nil {
		t.res.write.Status = statusOf(err)
		return reply(c, &t.res.write)
	}
	t.data, t.id = f, identity(c, f.Volume)
	if t.writesDirectly() {
		t.files[0] = f
		return t.end(t.write())
	}
	return t.start(f.Volume, (*task).write, f)
}

func (t *task) write() result {
	f, args, res := t.data, &t.args.write, &t.res.write
	res.Verf = writeVerf(f.Volume) // before the data is accepted: a sync that fails with it changes it
	attr, err := f.Stat()
	if err == nil {
		res.Wcc.Before = nfs3.PreOpAttr{Present: true, Size: uint64(attr.Size), Mtime: timeOf(attr.Mtime), Ctime: timeOf(attr.Ctime)}
		err = mayUse(f, &attr, &t.id, export.MayWrite)
	}
	if err == nil {
		var n int
		n, attr, err = writeData(f, args, attr)
		res.Count, res.Committed = uint32(n), args.Stable
		t.call.Served.Written = n
	}
	if err == nil {
		switch args.Stable {
		case nfs3.DataSync:
			t.sync(&res.Status, dataOnly{f})
		case nfs3.FileSync:
			t.sync(&res.Status, f)
		}
	}
	res.Status = statusOf(err)
	if attr.Nlink > 0 {
		res.Wcc.After = nfs3.PostOpAttr{Present: true, Attr: fattr(f.Volume, &attr)}
	}
	return res
}

// writeData writes to a file that has attributes attr, and returns those it has
// then.
func writeData(f *export.DataFile, args *nfs3.WriteArgs, attr export.Attr) (int, export.Attr, error) {
	switch {
	case int(args.Count) > len(args.Data):
		return 0, attr, syscall.EINVAL
	case args.Offset > maxOffset-uint64(args.Count):
		return 0, attr, syscall.EFBIG
	}
	n, attr, err := f.WriteAt(args.Data[:args.Count], int64(args.Offset))
	if n == 0 && err != nil {
		return 0, attr, err
	}
	// What is written before an error counts; the client meets the error when
	// it writes the rest.
	return n, attr, nil
}

// dataOnly is a file that is synced as far as it takes to read the data back.
type dataOnly struct{ *export.DataFile }

func (f dataOnly) SyncHere() (bool, error) { return f.DataSyncHere() }

func (f dataOnly) SyncThen(w export.Waiter) { f.DataSyncThen(w) }

// commit: section 3.3.21. The whole file is synced, whatever the range.
func (s *service) commit(c *oncrpc.Call) oncrpc.Answer {
	var args nfs3.CommitArgs
	if !decode(c, &args) {
		return badArgs(c)
	}
	f, err := s.openToWrite(c, args.File)
	if err != nil {
		return reply(c, &nfs3.CommitRes{Status: statusOf(err)})
	}
	t := s.task(c)
	t.data, t.id = f, identity(c, f.Volume)
	if t.commitsDirectly() {
		t.files[0] = f
		return t.end(t.commit())
	}
	return t.start(f.Volume, (*task).commit, f)
}

func (t *task) commit() result {
	f := t.data
	res := &nfs3.CommitRes{}
	attr, err := f.Stat()
	if err == nil {
		res.Wcc.Before = nfs3.PreOpAttr{Present: true, Size: uint64(attr.Size), Mtime: timeOf(attr.Mtime), Ctime: timeOf(attr.Ctime)}
		res.Wcc.After = nfs3.PostOpAttr{Present: true, Attr: fattr(f.Volume, &attr)}
		err = mayUse(f, &attr, &t.id, export.MayWrite)
	}
	if err == nil {
		t.sync(&res.Status, f)
		t.verf = &res.Verf
	}
	res.Status = statusOf(err)
	return res
}

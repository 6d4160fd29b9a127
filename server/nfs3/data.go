package nfs3

import (
	"math"
	"syscall"

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
func (s *service) read(c *oncrpc.Call) {
	var args ReadArgs
	if !decode(c, &args) {
		return
	}
	f, err := s.opener.OpenData(args.File, false)
	if err != nil {
		reply(c, &ReadRes{Status: statusOf(err)})
		return
	}
	count := int(min(args.Count, ioMax))
	c.Reserve(readHead + count + 3)
	s.work(c, f.Volume, func(id export.Identity) result {
		res := &ReadRes{}
		attr, err := f.Stat()
		if err == nil {
			err = mayUse(f, &attr, &id, export.MayRead, export.MayExec)
		}
		if err == nil && args.Offset > maxOffset {
			err = syscall.EINVAL
		}
		if err == nil {
			// The data goes where the result will have it.
			at := len(c.Reply) + readHead
			var n int
			n, err = f.ReadAt(c.Reply[at:at+count:at+count], int64(min(args.Offset, maxOffset-uint64(count))))
			res.Data = c.Reply[at : at+n]
		}
		if err == nil {
			attr, err = f.Stat()
		}
		if res.Status = statusOf(err); err != nil {
			res.Data = nil
		} else {
			res.EOF = args.Offset+uint64(len(res.Data)) >= uint64(attr.Size)
		}
		if attr.Nlink > 0 {
			res.Attr = PostOpAttr{true, fattr(f.Volume, &attr)}
		}
		return res
	}, f)
}

// write: section 3.3.7.
//
// The arguments' data aliases the record, which stays as it is until the reply,
// and goes to the file from there.
func (s *service) write(c *oncrpc.Call) {
	var args WriteArgs
	if !decode(c, &args) {
		return
	}
	f, err := s.opener.OpenData(args.File, true)
	if err != nil {
		reply(c, &WriteRes{Status: statusOf(err)})
		return
	}
	s.work(c, f.Volume, func(id export.Identity) result {
		res := &WriteRes{Verf: s.writeVerf()}
		attr, err := f.Stat()
		if err == nil {
			res.Wcc.Before = PreOpAttr{true, uint64(attr.Size), timeOf(attr.Mtime), timeOf(attr.Ctime)}
			err = mayUse(f, &attr, &id, export.MayWrite)
		}
		if err == nil {
			var n int
			n, err = s.writeData(f, &args)
			res.Count, res.Committed = uint32(n), args.Stable
		}
		res.Status = statusOf(err)
		res.Wcc.After = postOpOf(f.Volume, f)
		return res
	}, f)
}

func (s *service) writeData(f *export.DataFile, args *WriteArgs) (int, error) {
	switch {
	case int(args.Count) > len(args.Data):
		return 0, syscall.EINVAL
	case args.Offset > maxOffset-uint64(args.Count):
		return 0, syscall.EFBIG
	}
	n, err := f.WriteAt(args.Data[:args.Count], int64(args.Offset))
	if n == 0 && err != nil {
		return 0, err
	}
	// What is written before an error counts; the client meets the error when
	// it writes the rest.
	switch args.Stable {
	case DataSync:
		return n, s.synced(f.DataSync())
	case FileSync:
		return n, s.synced(f.Sync())
	}
	return n, nil
}

// commit: section 3.3.21. The whole file is synced, whatever the range.
func (s *service) commit(c *oncrpc.Call) {
	var args CommitArgs
	if !decode(c, &args) {
		return
	}
	f, err := s.opener.OpenData(args.File, true)
	if err != nil {
		reply(c, &CommitRes{Status: statusOf(err)})
		return
	}
	s.work(c, f.Volume, func(id export.Identity) result {
		// Before the sync: what is written meanwhile may not be covered by it.
		res := &CommitRes{Verf: s.writeVerf()}
		attr, err := f.Stat()
		if err == nil {
			res.Wcc.Before = PreOpAttr{true, uint64(attr.Size), timeOf(attr.Mtime), timeOf(attr.Ctime)}
			err = mayUse(f, &attr, &id, export.MayWrite)
		}
		if err == nil {
			err = s.synced(f.Sync())
		}
		res.Status = statusOf(err)
		res.Wcc.After = postOpOf(f.Volume, f)
		return res
	}, f)
}

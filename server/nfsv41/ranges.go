package nfsv41

import (
	"errors"
	"syscall"

	"github.com/podnas/podnas/nfs/nfs4"
	"github.com/podnas/podnas/server/inode"
	"github.com/podnas/podnas/server/nfsv41/state"
)

// Operations of version 4.2 on ranges of files. The replies of those that change something are kept, as that of
// WRITE: done twice, they would undo what another client has written meanwhile.

// seek: RFC 7862 section 15.11.
func (c *compound) seek(args *nfs4.SeekArgs) (result, error) {
	if args.What > nfs4.ContentHole {
		return nil, statusError(nfs4.ErrUnionNotSupp)
	}
	f, err := c.dataFile(args.Stateid, 0)
	if err != nil {
		return nil, err
	}
	at, eof, err := c.Seek(f, args.Offset, args.What == nfs4.ContentHole)
	if errors.Is(err, syscall.ENXIO) {
		c.rpc.Sure = true // the file's size says so
	}
	if err != nil {
		return nil, err
	}
	return &nfs4.SeekRes{EOF: eof, Offset: at}, nil
}

// allocate: section 15.1.
func (c *compound) allocate(args *nfs4.AllocateArgs) (result, error) {
	return c.changeRange(args, c.Allocate)
}

// deallocate: section 15.4.
func (c *compound) deallocate(args *nfs4.DeallocateArgs) (result, error) {
	return c.changeRange(args, c.Deallocate)
}

func (c *compound) changeRange(args *nfs4.RangeArgs, do func(f *inode.File, offset, length uint64) error) (result, error) {
	f, err := c.dataFile(args.Stateid, state.Write)
	if err != nil {
		return nil, err
	}
	c.on.wrote = true
	return nil, do(f, args.Offset, args.Length)
}

// clone: section 15.13. What can't be done with these files, and could be with others, is INVAL, and the
// client copies: it takes NOTSUPP for an answer for as long as the volume is mounted.
func (c *compound) clone(args *nfs4.CloneArgs) (result, error) {
	from, to, err := c.bothFiles(args.Src, args.Dst)
	if err != nil {
		return nil, err
	}
	c.on.wrote = true
	return nil, c.Clone(from, to, args.SrcOffset, args.DstOffset, args.Count)
}

// copyOp: section 15.2. It never goes on after the reply, as clients wait for its end for ever if they miss
// that; it copies less instead.
func (c *compound) copyOp(args *nfs4.CopyArgs) (result, error) {
	if len(args.Servers) > 0 {
		return nil, statusError(nfs4.ErrOffloadDenied) // between servers the client copies
	}
	from, to, err := c.bothFiles(args.Src, args.Dst)
	if err != nil {
		return nil, err
	}
	c.on.wrote = true
	w, err := c.Copy(from, to, args.SrcOffset, args.DstOffset, args.Count)
	switch {
	case errors.Is(err, syscall.EXDEV), errors.Is(err, syscall.EOPNOTSUPP):
		return nil, statusError(nfs4.ErrXDev) // these files the client copies, and asks again for others
	case err != nil:
		return nil, err
	}
	return &nfs4.CopyRes{Count: uint64(w.Count), Committed: nfs4.Unstable, Verf: verifierOf(w.Verifier), Consecutive: true, Synchronous: true}, nil
}

// bothFiles are the saved file, open for reading, and the current one, open for writing. Anything else than two regular
// files is WRONG_TYPE, whatever it is.
func (c *compound) bothFiles(src, dst nfs4.Stateid) (from, to *inode.File, err error) {
	current := c.stateid
	c.stateid = c.savedID // which the current stateid stands for there
	sid, badID := c.stateidOf(src)
	c.stateid = current
	if from, err = c.dataFileOf(&c.saved, sid, badID, state.Read); err == nil {
		to, err = c.dataFile(dst, state.Write)
	}
	if errors.Is(err, syscall.EISDIR) || errors.Is(err, statusError(nfs4.ErrSymlink)) {
		err = statusError(nfs4.ErrWrongType)
	}
	return from, to, err
}

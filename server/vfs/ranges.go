package vfs

import (
	"cmp"
	"errors"
	"syscall"
	"time"

	"github.com/podnas/podnas/server/actas"
	"github.com/podnas/podnas/server/disk"
	"github.com/podnas/podnas/server/exports"
	"github.com/podnas/podnas/server/inode"
)

// Ranges of files: RFC 7862 section 15. They are few and take long, so all are done as the caller: then the kernel clears
// setuid and setgid as it does for a write of the caller, and keeps the blocks that ext4 reserves for root.

const (
	// copyFor is for how long a COPY begins to copy one more piece. Clients ask for the rest. It is less than what --slow-call
	// has for a slow call.
	copyFor = 500 * time.Millisecond
	// copyPiece is what is copied at once, in bytes: other calls for the file wait for it, and so does the end of COPY.
	copyPiece = 4 << 20
	// clonePiece is what a COPY shares at once, at most: what of it is in memory alone is written to the disk first.
	clonePiece = 256 << 20
	// cloneBlock is what offsets of blocks that are shared must be multiples of, on most disks. On others a COPY copies.
	cloneBlock = 4 << 10
	// freesWithin is how long XFS may take to free what was removed a moment ago.
	freesWithin = 100 * time.Millisecond
)

// Seek returns where the next data, or the next hole, begins from an offset on in a file that is open with UseRead or UseWrite,
// as lseek(2) does for either. If there is none, it returns the end of the file. eof is whether there is neither after that. The
// error is ENXIO for an offset at or behind the end.
func (c *Call) Seek(f *inode.File, offset uint64, hole bool) (at uint64, eof bool, err error) {
	attr, err := c.mayReadFile(f)
	if errors.Is(err, syscall.EACCES) {
		attr, err = c.mayWriteFile(f)
	}
	if err != nil {
		return 0, false, err
	}
	if offset >= uint64(attr.Size) {
		return 0, false, syscall.ENXIO
	}
	if err := c.blocks(f); err != nil {
		return 0, false, err
	}
	found, err := f.Next(int64(offset), hole)
	none := errors.Is(err, syscall.ENXIO)
	if err != nil && !none {
		return 0, false, err
	}
	if attr, err = f.Stat(); err != nil { // it may have become shorter
		return 0, false, err
	}
	size := uint64(attr.Size)
	switch {
	case offset >= size:
		return 0, false, syscall.ENXIO
	case none, uint64(found) >= size:
		return size, true, nil
	}
	return uint64(found), false, nil
}

// Allocate gives blocks to a range of a file that is open with UseWrite. What there is no room for is refused at once: XFS
// would take all blocks that there are before it finds that out, and keep them for a while.
func (c *Call) Allocate(f *inode.File, offset, length uint64) error {
	if err := c.mayChangeRange(f, offset, length); err != nil {
		return err
	}
	if err := hasRoom(f, length); err != nil {
		return err
	}
	return c.changeRange(f, exports.CanAllocate, func(u actas.Thread) error { return f.Allocate(u, int64(offset), int64(length)) })
}

// hasRoom returns why there is no room to allocate so many bytes of a file: EAGAIN if there soon may be.
func hasRoom(f *inode.File, length uint64) error {
	attr, err := f.Stat()
	if err != nil {
		return err
	}
	lacks := func() bool {
		room, err := f.Volume.Statfs()
		return err == nil && length > room.Free+attr.Used
	}
	if lacks() {
		time.Sleep(freesWithin)
	}
	switch {
	case !lacks():
		return nil
	case f.Volume.GivesRoomFor(int64(length - attr.Used)):
		return syscall.EAGAIN
	}
	return syscall.ENOSPC
}

// Deallocate makes a hole of a range of a file that is open with UseWrite.
func (c *Call) Deallocate(f *inode.File, offset, length uint64) error {
	if err := c.mayChangeRange(f, offset, length); err != nil {
		return err
	}
	return c.changeRange(f, exports.CanDeallocate, func(u actas.Thread) error { return f.Deallocate(u, int64(offset), int64(length)) })
}

// mayChangeRange returns an error for a range that can't be changed, or not by the caller.
func (c *Call) mayChangeRange(f *inode.File, offset, length uint64) error {
	if _, err := c.mayWriteFile(f); err != nil {
		return err
	}
	switch {
	case length == 0, offset+length < offset:
		return syscall.EINVAL
	case offset+length > MaxOffset:
		return syscall.EFBIG
	}
	return c.blocksToChange(f, true)
}

// changeRange has do change a range as the caller, and syncs it.
func (c *Call) changeRange(f *inode.File, what exports.Ability, do func(actas.Thread) error) error {
	if err := c.AsCaller(do); err != nil {
		return f.Volume.Unable(what, err)
	}
	return c.syncRange(f)
}

// syncRange syncs what is durable when the call is answered, unless the volume is async.
func (c *Call) syncRange(f *inode.File) error {
	if f.Volume.Options.Async {
		return nil
	}
	return c.Sync(f, false)
}

// Clone has a range of a file that is open with UseWrite share the blocks of a range of another, which is open with
// UseRead, or of the same file: all of it, or nothing. A count of 0 is everything up to the end of the other.
func (c *Call) Clone(from, to *inode.File, fromOffset, offset, count uint64) error {
	if _, _, err := c.mayUseBoth(from, to); err != nil {
		return err
	}
	if max(fromOffset, offset, count) > MaxOffset || count > MaxOffset-max(fromOffset, offset) {
		return syscall.EINVAL
	}
	if err := c.blocksToChange(to, true); err != nil {
		return err
	}
	err := c.AsCaller(func(u actas.Thread) error {
		return to.CloneFrom(u, from, int64(fromOffset), int64(offset), int64(count))
	})
	c.wasCopied(from)
	if err != nil {
		return to.Volume.Unable(exports.CanClone, err)
	}
	return c.syncRange(to)
}

// Copy copies a range of a file that is open with UseRead to another, which is open with UseWrite: what is done before
// copyFor has passed. Where the disk can, both share the blocks. A count of 0 is everything up to the end.
//
// If some was copied before an error, there is no error: the client gets it when it asks for the rest.
func (c *Call) Copy(from, to *inode.File, fromOffset, offset, count uint64) (w Written, err error) {
	w.Verifier = to.Volume.Durable.WriteVerifier()
	a, b, err := c.mayUseBoth(from, to)
	switch {
	case err != nil:
		return w, err
	case a.Same(&b), fromOffset > MaxOffset, offset > MaxOffset, fromOffset+count < fromOffset:
		return w, syscall.EINVAL
	}
	left := uint64(max(a.Size-int64(fromOffset), 0)) // the client may have known the file longer than it is
	if count == 0 || count > left {
		count = left
	}
	if count > MaxOffset-offset {
		return w, syscall.EFBIG
	}
	if err := c.blocks(to); err != nil {
		return w, err
	}
	done, err := c.copyPieces(&copying{from: from, to: to, fromOffset: int64(fromOffset), offset: int64(offset), left: int64(count), ends: count == left})
	c.wasCopied(from)
	if done > 0 {
		err = nil
	}
	c.Served.Written, w.Count = int(done), int(done)
	return w, err
}

// copying is a COPY under way.
type copying struct {
	from, to           *inode.File
	fromOffset, offset int64
	left               int64
	ends               bool // with the end of from
}

func (c *Call) copyPieces(p *copying) (done int64, err error) {
	piece, shares := int64(copyPiece), true
	for began := time.Now(); p.left > 0 && (done == 0 || time.Since(began) < c.service.copyFor); {
		if err := c.settleToChange(p.to, shares); err != nil {
			return done, err
		}
		n := int64(0)
		if shares {
			n = c.sharePiece(p)
			shares = n > 0
		}
		if n == 0 {
			n, err = c.copyPiece(p, min(piece, p.left))
		}
		p.fromOffset, p.offset, p.left, done = p.fromOffset+n, p.offset+n, p.left-n, done+n
		switch {
		case n > 0 && err == nil:
		case n == 0 && errors.Is(err, syscall.EDQUOT) && piece > cloneBlock:
			piece, err = piece/2, nil // the server's own count takes a piece as a whole
		default: // an error, or the file has become shorter
			return done, err
		}
	}
	return done, nil
}

// copyPiece copies n bytes, or less.
func (c *Call) copyPiece(p *copying, n int64) (done int64, err error) {
	err = c.AsCaller(func(u actas.Thread) error {
		done, err = p.to.CopyFrom(u, p.from, p.fromOffset, p.offset, n)
		return err
	})
	return done, err
}

// sharePiece has the files share blocks, and returns how many bytes: 0 if they can't.
func (c *Call) sharePiece(p *copying) int64 {
	n := min(p.left, clonePiece)
	if n < p.left || !p.ends {
		n -= n % cloneBlock
	}
	if n == 0 || p.fromOffset%cloneBlock != 0 || p.offset%cloneBlock != 0 {
		return 0
	}
	done := int64(0)
	_ = c.AsCaller(func(u actas.Thread) (err error) { // copying says what is wrong, if anything is
		done, err = p.to.ShareFrom(u, p.from, p.fromOffset, p.offset, n)
		return err
	})
	return done
}

// wasCopied forgets what is remembered of a file whose data was read.
func (c *Call) wasCopied(f *inode.File) {
	if attr, err := f.Stat(); err == nil {
		f.WasRead(&attr)
	}
}

// mayReadFile returns the attributes of a file whose data the caller may read.
func (c *Call) mayReadFile(f *inode.File) (disk.Attr, error) {
	c.Of(f)
	attr, err := f.Stat()
	if err == nil {
		err = cmp.Or(c.denied(f, false), c.mayUse(f, &attr, inode.MayRead))
	}
	return attr, err
}

// mayWriteFile returns the attributes of a file whose data the caller may write.
func (c *Call) mayWriteFile(f *inode.File) (disk.Attr, error) {
	c.Of(f)
	attr, err := f.Stat()
	if err == nil {
		err = cmp.Or(c.denied(f, true), c.mayUse(f, &attr, inode.MayWrite))
	}
	return attr, err
}

// mayUseBoth returns the attributes of two files if the caller may read the first and write the second.
func (c *Call) mayUseBoth(from, to *inode.File) (a, b disk.Attr, err error) {
	if a, err = c.mayReadFile(from); err == nil {
		b, err = c.mayWriteFile(to)
	}
	return a, b, err
}

package nfsv41

import (
	"errors"
	"syscall"

	"github.com/podnas/podnas/nfs/nfs4"
	"github.com/podnas/podnas/server/exports"
	"github.com/podnas/podnas/server/inode"
	"github.com/podnas/podnas/server/locate"
)

// object is a current or saved file handle: nothing, a pseudo directory, or a file of a
// volume. What is opened of it stays open until the call ends.
type object struct {
	node   *node // of a pseudo directory
	n      int
	handle [locate.HandleMax]byte // of a file

	file         *inode.File // open for its attributes; nil: not yet
	names        *inode.File // open for its names; nil: not yet
	found        bool        // LOOKUP has just found it, and its attributes are in memory.found
	attrsCurrent bool        // file was opened by this operation or those before it that only look, and has its attributes from then
}

func (o *object) isSet() bool { return o.node != nil || o.n > 0 }

// set makes it the file of a handle.
func (o *object) set(handle []byte) { *o = object{n: len(handle)}; copy(o.handle[:], handle) }

// setFile makes it a file that the call has opened for its attributes.
func (o *object) setFile(f *inode.File) {
	*o = object{file: f, attrsCurrent: true}
	o.n = len(f.AppendHandle(o.handle[:0]))
}

func (o *object) bytes() []byte { return o.handle[:o.n] }

// attrFile is the object open for its attributes, which are from after all that the call has changed, or with inode.Recent maybe
// remembered ones. The operation that follows is for it, and may block. It is nil for a pseudo directory.
func (c *compound) attrFile(o *object, how ...inode.How) (*inode.File, error) {
	switch {
	case !o.isSet():
		return nil, statusError(nfs4.ErrNoFileHandle)
	case o.node != nil:
		return nil, nil
	case o.file == nil:
		f, err := c.Open(o.bytes(), inode.UseAttr, how...)
		if errors.Is(err, syscall.ESTALE) {
			f, err = c.openRemoved(o)
		}
		if err != nil {
			return nil, err
		}
		o.file, o.attrsCurrent = f, true
	case !o.attrsCurrent:
		a, err := o.file.Stat()
		if err != nil {
			return nil, err
		}
		o.file.Attr, o.attrsCurrent = a, true
	}
	c.Of(o.file)
	return o.file, nil
}

// openRemoved opens a file for its attributes that has no name any more and that a client holds
// open, or may reclaim.
func (c *compound) openRemoved(o *object) (f *inode.File, err error) {
	h, err := c.someDescriptor(o)
	switch {
	case err != nil:
	case h != nil:
		f, err = c.OpenHeld(h.Held, false)
	default:
		f, err = c.Open(o.bytes(), inode.UseRead, inode.Removed)
	}
	if err == nil {
		f.Attr, err = f.Stat()
	}
	return f, err
}

// someDescriptor is the descriptor by which some client has a file open, which keeps the file until the call ends. It is nil in the grace
// period, if nobody has reclaimed it yet. The error is ESTALE if nobody may have it.
func (c *compound) someDescriptor(o *object) (*descriptor, error) {
	key, err := c.server.keyOf(o.bytes())
	if err != nil {
		return nil, err
	}
	h := c.server.descriptorOf(key)
	switch {
	case h != nil:
		c.Closes(h)
	case !c.server.state.InGrace():
		return nil, syscall.ESTALE
	}
	return h, nil
}

// mustFile is attrFile for what a pseudo directory has not.
func (c *compound) mustFile(o *object, status nfs4.Status) (*inode.File, error) {
	f, err := c.attrFile(o)
	if err == nil && f == nil {
		return nil, statusError(status)
	}
	return f, err
}

// namesFile is the directory open for its names. The operation that follows is for it.
func (c *compound) namesFile(o *object) (*inode.File, error) {
	switch {
	case !o.isSet():
		return nil, statusError(nfs4.ErrNoFileHandle)
	case o.node != nil:
		return nil, exports.ErrReadOnly
	case o.names == nil:
		f, err := c.Open(o.bytes(), inode.UseNames)
		if err != nil {
			return nil, err
		}
		o.names = f
	}
	c.Of(o.names)
	return o.names, nil
}

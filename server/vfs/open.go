package vfs

import (
	"errors"
	"slices"
	"syscall"

	"github.com/podnas/podnas/server/exports"
	"github.com/podnas/podnas/server/inode"
	"github.com/podnas/podnas/server/locate"
)

// The files of a call's handles are opened here, as root. The last one determines the volume
// that the call is counted for, and the caller's identity.

// errGone means that the client has gone. The reply is not sent.
var errGone = errors.New("the client has gone")

// MayWait has the call, for the file of a handle, be one that may block: another goroutine may read
// the connection from here on. The methods that open a file do it, unless they say otherwise.
func (c *Call) MayWait(handle []byte) error {
	c.mustNotAct()
	if !c.conn.MayWait(locate.VolumeIn(handle), false) {
		return errGone
	}
	c.waited = false
	return nil
}

// Open opens the file of a handle for the rest of the call. With inode.AtOnce the call does not become one that may block if the
// file is cached, or with inode.Recent, its attributes are: those are then all that can be used.
func (c *Call) Open(handle []byte, use inode.Use, how ...inode.How) (*inode.File, error) {
	if !slices.Contains(how, inode.AtOnce) {
		if err := c.MayWait(handle); err != nil {
			return nil, err
		}
	}
	f, err := c.service.opener.Open(c.Client.Addr(), handle, use, how...)
	if errors.Is(err, inode.ErrBlocks) {
		return c.Open(handle, use)
	}
	if err != nil {
		return nil, err
	}
	return c.opened(f)
}

// opened counts the call for the file's volume, unless the volume refuses the client's port.
func (c *Call) opened(f *inode.File) (*inode.File, error) {
	c.Closes(f)
	v := f.Volume
	if !v.AllowsPort(c.Client) {
		return nil, syscall.EACCES
	}
	c.Served.Volume = &v.Served
	c.enter(v)
	return f, nil
}

// OpenHeld is Open of a file by what a client holds open, also if the file was removed. wait is whether the call may wait from here on,
// as one that writes does.
func (c *Call) OpenHeld(h *inode.Held, wait bool) (*inode.File, error) {
	v := h.Volume()
	c.mustNotAct()
	if wait {
		if !c.conn.MayWait(v.ID, false) {
			return nil, errGone
		}
		c.waited = false
	}
	if !v.Allows(c.Client.Addr()) {
		return nil, syscall.EACCES
	}
	f, err := h.File()
	if err != nil {
		return nil, err
	}
	if f, err = c.opened(f); err == nil && wait && v.Options.ReadOnly {
		return nil, exports.ErrReadOnly
	}
	return f, err
}

// Parent opens a directory's parent, as root: the caller may have no right to the parent.
// The caller of Parent must check with May that the client's user may search the directory.
func (c *Call) Parent(dir *inode.File) (*inode.File, error) {
	c.mustNotAct()
	if !dir.Attr.IsDir() {
		return nil, syscall.ENOTDIR
	}
	parent, err := c.service.opener.Parent(dir)
	if err == nil {
		c.Closes(parent)
	}
	return parent, err
}

// Of has the operations that follow be for a file that the call has opened: they are done
// as who the caller is in its volume.
func (c *Call) Of(f *inode.File) {
	if c.volume != f.Volume {
		c.enter(f.Volume)
	}
}

func (c *Call) enter(v *exports.Volume) {
	c.volume, c.id = v, c.service.users.Identity(v.Options.Squash(), c.UID, c.GID, c.Groups)
}

// Owns reports whether the caller owns a file.
func (c *Call) Owns(f *inode.File) bool { return f.Attr.UID == c.id.UID }

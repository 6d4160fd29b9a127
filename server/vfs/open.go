package vfs

import (
	"errors"
	"syscall"

	"github.com/podnas/podnas/server/export"
)

// The files of a call's handles are opened here, as root, where it turns out whose call
// it is: the volume's, which it is counted for.

// errGone means that the client has gone. Nobody reads the reply.
var errGone = errors.New("the client has gone")

// Open opens a file for the rest of the call, which may wait from here on: for an inode
// that is not in memory, and for whatever else is done on the connection's goroutine.
func (t *Task) Open(handle []byte, use export.Use) (*export.File, error) {
	if !t.Call.MayWait(export.VolumeIn(handle)) {
		return nil, errGone
	}
	f, err := t.service.opener.Open(t.Call.Client.Addr(), handle, use)
	if err != nil {
		return nil, err
	}
	return t.opened(f)
}

// OpenAtOnce is Open with UseAttr or UseRead by a call that does not wait, if the file is
// kept open. If it is not, it is Open.
func (t *Task) OpenAtOnce(handle []byte, use export.Use) (*export.File, error) {
	f, err := t.service.opener.OpenAtOnce(t.Call.Client.Addr(), handle, use)
	if err != nil {
		return nil, err
	}
	if f == nil {
		return t.Open(handle, use)
	}
	return t.opened(f)
}

// opened has the call count for the file's volume, unless that refuses the caller's port.
func (t *Task) opened(f *export.File) (*export.File, error) {
	t.Closes(f)
	v := f.Volume
	if !v.AllowsPort(t.Call.Client) {
		return nil, syscall.EACCES
	}
	t.Call.Served.Volume = &v.Served
	t.volume, t.id = v, v.Options.Identity(t.Call.Cred.UID, t.Call.Cred.GID, t.Call.Cred.Groups())
	return f, nil
}

// Parent opens a directory's parent, as root: what is above may be closed to the caller.
// That the caller may search the directory is still to be checked.
func (t *Task) Parent(dir *export.File) (*export.File, error) {
	if !dir.Attr.IsDir() {
		return nil, syscall.ENOTDIR
	}
	parent, err := t.service.opener.Parent(dir)
	if err == nil {
		t.Closes(parent)
	}
	return parent, err
}

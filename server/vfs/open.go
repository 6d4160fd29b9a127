package vfs

import (
	"errors"
	"syscall"

	"github.com/podnas/podnas/server/export"
)

// The files of a call's handles are opened here, as root. The last one determines the volume
// that the call is counted for, and the caller's identity.

// errGone means that the client has gone. The reply is not sent.
var errGone = errors.New("the client has gone")

// Open opens a file for the rest of the call. From here on the call may block, so that another
// goroutine may read the connection. Call it before Answer, on the connection's goroutine, which
// is root.
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

// OpenAtOnce is Open with UseAttr or UseRead. If the file is cached, the call does not become
// one that may block.
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

// opened counts the call for the file's volume, unless the volume refuses the client's port.
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

// Parent opens a directory's parent, as root: the caller may have no right to the parent.
// The caller of Parent must check with May that the client's user may search the directory.
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

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

// MayWait has the call, for the file of a handle, be one that may block: another goroutine may read
// the connection from here on. The methods that open a file do it, unless they say otherwise.
func (t *Task) MayWait(handle []byte) error {
	if !t.Call.MayWait(export.VolumeIn(handle)) {
		return errGone
	}
	return nil
}

// Open opens a file for the rest of the call. Call it before Answer, on the connection's goroutine, which
// is root.
func (t *Task) Open(handle []byte, use export.Use) (*export.File, error) {
	if err := t.MayWait(handle); err != nil {
		return nil, err
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

// Look opens a file only for its attributes: of the file that it returns, Attr, Volume and ID can
// be used. If they are remembered, the call does not become one that may block.
func (t *Task) Look(handle []byte) (*export.File, error) {
	f, err := t.service.opener.Look(t.Call.Client.Addr(), handle)
	if err != nil {
		return nil, err
	}
	if f == nil {
		return t.Open(handle, export.UseAttr)
	}
	return t.opened(f)
}

// OpenRecent is Open, with UseAttr, of a file for ACCESS, or of a directory in which a name is looked up. Its
// attributes may be remembered ones.
func (t *Task) OpenRecent(handle []byte) (*export.File, error) {
	if err := t.MayWait(handle); err != nil {
		return nil, err
	}
	f, err := t.service.opener.OpenRecent(t.Call.Client.Addr(), handle)
	if err != nil {
		return nil, err
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
	t.volume, t.id = v, t.service.workers.Identity(&v.Options, t.Call.Cred.UID, t.Call.Cred.GID, t.Call.Cred.Groups())
	return f, nil
}

// OpenHeld is Open of a file that the client holds open. wait is whether the call may wait
// from here on.
func (t *Task) OpenHeld(h *export.Held, wait bool) (*export.File, error) {
	v := h.Volume()
	if wait && !t.Call.MayWait(v.ID) {
		return nil, errGone
	}
	if !v.Allows(t.Call.Client.Addr()) {
		return nil, syscall.EACCES
	}
	f, err := h.File()
	if err != nil {
		return nil, err
	}
	if f, err = t.opened(f); err == nil && wait && v.Options.ReadOnly {
		return nil, syscall.EROFS
	}
	return f, err
}

// OpenRemoved is Open of a regular file, with UseRead or UseWrite, that has no name any more, and that
// a client holds open or may reclaim.
func (t *Task) OpenRemoved(handle []byte, use export.Use) (*export.File, error) {
	if err := t.MayWait(handle); err != nil {
		return nil, err
	}
	f, err := t.service.opener.OpenRemoved(t.Call.Client.Addr(), handle, use)
	if err != nil {
		return nil, err
	}
	return t.opened(f)
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

// IsRoot reports whether the goroutine is root, and may open files by their handles.
func (t *Task) IsRoot() bool { return !t.worker || t.service.workers.Spare(&t.id) }

// Of has the operations that follow be for a file that the call has opened: they are done
// as who the caller is in its volume. It is false if the goroutine acts as another user:
// then AsRoot must be next.
func (t *Task) Of(f *export.File) bool {
	if t.volume == f.Volume {
		return true
	}
	id := t.service.workers.Identity(&f.Volume.Options, t.Call.Cred.UID, t.Call.Cred.GID, t.Call.Cred.Groups())
	if t.worker && id != t.id {
		return false
	}
	t.volume, t.id = f.Volume, id
	return true
}

// Owns reports whether the caller owns a file.
func (t *Task) Owns(f *export.File) bool { return f.Attr.UID == t.id.UID }

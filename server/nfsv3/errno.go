package nfsv3

import (
	"errors"
	"syscall"

	"github.com/podnas/podnas/nfs/nfs3"
	"github.com/podnas/podnas/server/exports"
	"github.com/podnas/podnas/server/vfs"
)

// statusOf is the status of an error of the call. The reply waits for nothing if podnas itself refuses a change.
func (t *task) statusOf(err error) nfs3.Status {
	if errors.Is(err, exports.ErrReadOnly) {
		t.rpc.Sure = true
	}
	return statusOf(err)
}

// statusOf is the one place where an error becomes a status.
func statusOf(err error) nfs3.Status {
	switch {
	case err == nil:
		return nfs3.OK
	case errors.Is(err, vfs.ErrNotSync):
		return nfs3.ErrNotSync
	case errors.Is(err, syscall.ELOOP): // a symbolic link in the place of something else
		return nfs3.ErrInval
	}
	return nfs3.Status(vfs.Status(err))
}

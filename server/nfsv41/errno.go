package nfsv41

import (
	"errors"
	"syscall"

	"github.com/podnas/podnas/nfs/nfs4"
	"github.com/podnas/podnas/server/vfs"
)

// statusError is a status of the protocol that is no errno.
type statusError nfs4.Status

func (e statusError) Error() string { return nfs4.Status(e).String() }

// statusOf is the one place where an error of an operation becomes its status. Errors of package state are statusErrors by then.
func statusOf(err error) nfs4.Status {
	if err == nil {
		return nfs4.OK
	}
	var status statusError // which is allocated
	switch {
	case errors.As(err, &status):
		return nfs4.Status(status)
	case errors.Is(err, syscall.ELOOP): // a symbolic link in the place of something else
		return nfs4.ErrSymlink
	}
	return nfs4.Status(vfs.Status(err))
}

package nfs4

import (
	"errors"
	"syscall"

	"github.com/podnas/podnas/nfs/nfs4"
	"github.com/podnas/podnas/server/export"
	"github.com/podnas/podnas/server/vfs"
)

// statusError is a status of the protocol that is no errno.
type statusError nfs4.Status

func (e statusError) Error() string { return nfs4.Status(e).String() }

// statusOf is the one place where an error becomes a status.
func statusOf(err error) nfs4.Status {
	if err == nil {
		return nfs4.OK
	}
	var status statusError
	switch {
	case errors.As(err, &status):
		return nfs4.Status(status)
	case errors.Is(err, export.ErrBadHandle):
		return nfs4.ErrBadHandle
	case errors.Is(err, vfs.ErrFileType):
		return nfs4.ErrBadType
	}
	var errno syscall.Errno
	if errors.As(err, &errno) {
		return statusOfErrno(errno)
	}
	return nfs4.ErrServerFault
}

func statusOfErrno(errno syscall.Errno) nfs4.Status {
	switch errno {
	case syscall.EPERM, syscall.ENOENT, syscall.EIO, syscall.ENXIO, syscall.EACCES, syscall.EEXIST,
		syscall.EXDEV, syscall.ENOTDIR, syscall.EISDIR, syscall.EINVAL, syscall.EFBIG,
		syscall.ENOSPC, syscall.EROFS, syscall.EMLINK:
		return nfs4.Status(errno) // the RFC took these numbers from Unix
	case syscall.EOVERFLOW:
		return nfs4.ErrFBig
	case syscall.ENAMETOOLONG:
		return nfs4.ErrNameTooLong
	case syscall.ENOTEMPTY:
		return nfs4.ErrNotEmpty
	case syscall.EDQUOT:
		return nfs4.ErrDQuot
	case syscall.ESTALE:
		return nfs4.ErrStale
	case syscall.EOPNOTSUPP:
		return nfs4.ErrNotSupp
	case syscall.ETXTBSY:
		return nfs4.ErrAccess
	case syscall.ELOOP: // a symbolic link in the place of something else
		return nfs4.ErrSymlink
	case syscall.EMFILE, syscall.ENFILE, syscall.ENOMEM, syscall.EAGAIN:
		return nfs4.ErrDelay // the client tries again later
	}
	return nfs4.ErrIO
}

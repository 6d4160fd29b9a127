package nfs3

import (
	"errors"
	"syscall"

	"github.com/podnas/podnas/nfs/nfs3"
	"github.com/podnas/podnas/server/export"
	"github.com/podnas/podnas/server/vfs"
)

// Errors that no system call has.
var (
	errBadCookie = errors.New("not a position in the directory")
	errTooSmall  = errors.New("too small for an entry")
)

// statusOf is the one place where an error becomes a status.
func statusOf(err error) nfs3.Status {
	if err == nil {
		return nfs3.OK
	}
	switch {
	case errors.Is(err, export.ErrBadHandle):
		return nfs3.ErrBadHandle
	case errors.Is(err, vfs.ErrFileType):
		return nfs3.ErrBadType
	case errors.Is(err, errBadCookie):
		return nfs3.ErrBadCookie
	case errors.Is(err, errTooSmall):
		return nfs3.ErrTooSmall
	case errors.Is(err, vfs.ErrNotSync):
		return nfs3.ErrNotSync
	}
	var errno syscall.Errno
	if errors.As(err, &errno) {
		return statusOfErrno(errno)
	}
	return nfs3.ErrServerFault
}

func statusOfErrno(errno syscall.Errno) nfs3.Status {
	switch errno {
	case syscall.EPERM, syscall.ENOENT, syscall.EIO, syscall.ENXIO, syscall.EACCES, syscall.EEXIST,
		syscall.EXDEV, syscall.ENODEV, syscall.ENOTDIR, syscall.EISDIR, syscall.EINVAL, syscall.EFBIG,
		syscall.ENOSPC, syscall.EROFS, syscall.EMLINK:
		return nfs3.Status(errno) // the RFC took these numbers from Unix
	case syscall.EOVERFLOW:
		return nfs3.ErrFBig
	case syscall.ENAMETOOLONG:
		return nfs3.ErrNameTooLong
	case syscall.ENOTEMPTY:
		return nfs3.ErrNotEmpty
	case syscall.EDQUOT:
		return nfs3.ErrDQuot
	case syscall.ESTALE:
		return nfs3.ErrStale
	case syscall.EOPNOTSUPP:
		return nfs3.ErrNotSupp
	case syscall.ETXTBSY:
		return nfs3.ErrAcces
	case syscall.ELOOP: // a symbolic link in the place of something else
		return nfs3.ErrInval
	case syscall.EMFILE, syscall.ENFILE, syscall.ENOMEM, syscall.EAGAIN:
		return nfs3.ErrJukebox // the client tries again later
	}
	return nfs3.ErrIO
}

package nfs3

import (
	"errors"
	"syscall"

	"github.com/podnas/podnas/server/export"
)

// Errors that no system call has.
var (
	errBadType   = errors.New("not a type that can be made")
	errBadCookie = errors.New("not a position in the directory")
	errTooSmall  = errors.New("too small for an entry")
	errGone      = errors.New("the client has gone") // and is told nothing
)

// statusOf is the one place where an error becomes a status.
func statusOf(err error) Status {
	if err == nil {
		return OK
	}
	switch {
	case errors.Is(err, export.ErrBadHandle):
		return ErrBadHandle
	case errors.Is(err, errBadType):
		return ErrBadType
	case errors.Is(err, errBadCookie):
		return ErrBadCookie
	case errors.Is(err, errTooSmall):
		return ErrTooSmall
	}
	var errno syscall.Errno
	if errors.As(err, &errno) {
		return statusOfErrno(errno)
	}
	return ErrServerFault
}

func statusOfErrno(errno syscall.Errno) Status {
	switch errno {
	case syscall.EPERM, syscall.ENOENT, syscall.EIO, syscall.ENXIO, syscall.EACCES, syscall.EEXIST,
		syscall.EXDEV, syscall.ENODEV, syscall.ENOTDIR, syscall.EISDIR, syscall.EINVAL, syscall.EFBIG,
		syscall.ENOSPC, syscall.EROFS, syscall.EMLINK:
		return Status(errno) // the RFC took these numbers from Unix
	case syscall.EOVERFLOW:
		return ErrFBig
	case syscall.ENAMETOOLONG:
		return ErrNameTooLong
	case syscall.ENOTEMPTY:
		return ErrNotEmpty
	case syscall.EDQUOT:
		return ErrDQuot
	case syscall.ESTALE:
		return ErrStale
	case syscall.EOPNOTSUPP:
		return ErrNotSupp
	case syscall.ETXTBSY:
		return ErrAcces
	case syscall.ELOOP: // a symbolic link in the place of something else
		return ErrInval
	case syscall.EMFILE, syscall.ENFILE, syscall.ENOMEM, syscall.EAGAIN:
		return ErrJukebox // the client tries again later
	}
	return ErrIO
}

// checkName tells what is wrong with a name that is to be made, removed or
// renamed.
func checkName(name []byte) error {
	switch {
	case len(name) > MaxName:
		return syscall.ENAMETOOLONG
	case !export.ValidName(name):
		return syscall.EINVAL
	}
	return nil
}

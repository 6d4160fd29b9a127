package vfs

import (
	"errors"
	"syscall"

	"github.com/podnas/podnas/server/locate"
)

// Errors that no system call has.
var (
	ErrBadCookie = errors.New("not a position in the directory")
	ErrTooSmall  = errors.New("too small for an entry")
)

// Status is the status of an error, 0 for nil. All versions have the same numbers for what they
// have in common, as version 4 took them from version 3, and that most of them from Unix:
// RFC 1813 section 2.6, RFC 8881 section 15.1. What a version has for itself
// it looks for before.
func Status(err error) uint32 {
	const (
		io, access, tooBig                            = 5, 13, 27
		nameTooLong, notEmpty, quota, stale           = 63, 66, 69, 70
		badHandle, badCookie, notSupported            = 10001, 10003, 10004
		tooSmall, serverFault, badType, tryAgainLater = 10005, 10006, 10007, 10008
	)
	var errno syscall.Errno
	switch {
	case err == nil:
		return 0
	case errors.Is(err, locate.ErrBadHandle):
		return badHandle
	case errors.Is(err, ErrFileType):
		return badType
	case errors.Is(err, ErrBadCookie):
		return badCookie
	case errors.Is(err, ErrTooSmall):
		return tooSmall
	case !errors.As(err, &errno):
		return serverFault
	}
	switch errno {
	case syscall.EPERM, syscall.ENOENT, syscall.EIO, syscall.ENXIO, syscall.EACCES, syscall.EEXIST,
		syscall.EXDEV, syscall.ENOTDIR, syscall.EISDIR, syscall.EINVAL, syscall.EFBIG,
		syscall.ENOSPC, syscall.EROFS, syscall.EMLINK:
		return uint32(errno)
	case syscall.EOVERFLOW:
		return tooBig
	case syscall.ENAMETOOLONG:
		return nameTooLong
	case syscall.ENOTEMPTY:
		return notEmpty
	case syscall.EDQUOT:
		return quota
	case syscall.ESTALE:
		return stale
	case syscall.EOPNOTSUPP:
		return notSupported
	case syscall.ETXTBSY:
		return access
	case syscall.EMFILE, syscall.ENFILE, syscall.ENOMEM, syscall.EAGAIN:
		return tryAgainLater
	}
	return io
}

package nfsv3

import (
	"errors"
	"fmt"
	"os"
	"syscall"
	"testing"

	"github.com/podnas/podnas/nfs/nfs3"
	"github.com/podnas/podnas/server/locate"
	"github.com/podnas/podnas/server/vfs"
)

func TestStatusOf(t *testing.T) {
	for _, tt := range []struct {
		err  error
		want nfs3.Status
	}{
		{nil, nfs3.OK},
		{syscall.EPERM, nfs3.ErrPerm},
		{syscall.ENOENT, nfs3.ErrNoEnt},
		{syscall.EIO, nfs3.ErrIO},
		{syscall.ENXIO, nfs3.ErrNXIO},
		{syscall.EACCES, nfs3.ErrAcces},
		{syscall.EEXIST, nfs3.ErrExist},
		{syscall.EXDEV, nfs3.ErrXDev},
		{syscall.ENODEV, nfs3.ErrIO}, // of a disk that may be lost: the reply waits, as that of EIO does
		{syscall.ENOTDIR, nfs3.ErrNotDir},
		{syscall.EISDIR, nfs3.ErrIsDir},
		{syscall.EINVAL, nfs3.ErrInval},
		{syscall.EFBIG, nfs3.ErrFBig},
		{syscall.ENOSPC, nfs3.ErrNoSpc},
		{syscall.EROFS, nfs3.ErrROFS},
		{syscall.EMLINK, nfs3.ErrMLink},
		{syscall.ENAMETOOLONG, nfs3.ErrNameTooLong},
		{syscall.ENOTEMPTY, nfs3.ErrNotEmpty},
		{syscall.EDQUOT, nfs3.ErrDQuot},
		{syscall.ESTALE, nfs3.ErrStale},
		{syscall.EOPNOTSUPP, nfs3.ErrNotSupp},
		{syscall.EMFILE, nfs3.ErrJukebox},
		{syscall.EOVERFLOW, nfs3.ErrFBig},
		{syscall.ETXTBSY, nfs3.ErrAcces},
		{syscall.ELOOP, nfs3.ErrInval},
		{syscall.EBADMSG, nfs3.ErrIO},
		{&os.PathError{Op: "open", Path: "x", Err: syscall.ENOSPC}, nfs3.ErrNoSpc},
		{fmt.Errorf("sync: %w", syscall.EIO), nfs3.ErrIO},
		{locate.ErrBadHandle, nfs3.ErrBadHandle},
		{vfs.ErrFileType, nfs3.ErrBadType},
		{vfs.ErrNotSync, nfs3.ErrNotSync},
		{vfs.ErrBadCookie, nfs3.ErrBadCookie},
		{vfs.ErrTooSmall, nfs3.ErrTooSmall},
		{errors.New("anything else"), nfs3.ErrServerFault},
	} {
		if got := statusOf(tt.err); got != tt.want {
			t.Errorf("statusOf(%v) = %v, want %v", tt.err, got, tt.want)
		}
	}
}

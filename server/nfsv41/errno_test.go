package nfsv41

import (
	"errors"
	"fmt"
	"syscall"
	"testing"

	"github.com/podnas/podnas/nfs/nfs4"
	"github.com/podnas/podnas/server/locate"
	"github.com/podnas/podnas/server/vfs"
)

func TestStatusOf(t *testing.T) {
	for _, tt := range []struct {
		err  error
		want nfs4.Status
	}{
		{nil, nfs4.OK},
		{syscall.EPERM, nfs4.ErrPerm},
		{syscall.ENOENT, nfs4.ErrNoEnt},
		{syscall.EIO, nfs4.ErrIO},
		{syscall.ENXIO, nfs4.ErrNXIO},
		{syscall.EACCES, nfs4.ErrAccess},
		{syscall.EEXIST, nfs4.ErrExist},
		{syscall.EXDEV, nfs4.ErrXDev},
		{syscall.ENODEV, nfs4.ErrIO}, // version 4 has no status for it
		{syscall.ENOTDIR, nfs4.ErrNotDir},
		{syscall.EISDIR, nfs4.ErrIsDir},
		{syscall.EINVAL, nfs4.ErrInval},
		{syscall.EFBIG, nfs4.ErrFBig},
		{syscall.EOVERFLOW, nfs4.ErrFBig},
		{syscall.ENOSPC, nfs4.ErrNoSpc},
		{syscall.EROFS, nfs4.ErrROFS},
		{syscall.EMLINK, nfs4.ErrMLink},
		{syscall.ENAMETOOLONG, nfs4.ErrNameTooLong},
		{syscall.ENOTEMPTY, nfs4.ErrNotEmpty},
		{syscall.EDQUOT, nfs4.ErrDQuot},
		{syscall.ESTALE, nfs4.ErrStale},
		{syscall.EOPNOTSUPP, nfs4.ErrNotSupp},
		{syscall.ETXTBSY, nfs4.ErrAccess},
		{syscall.ELOOP, nfs4.ErrSymlink},
		{syscall.EAGAIN, nfs4.ErrDelay},
		{syscall.EBADMSG, nfs4.ErrIO},
		{fmt.Errorf("sync: %w", syscall.ENOSPC), nfs4.ErrNoSpc},
		{locate.ErrBadHandle, nfs4.ErrBadHandle},
		{vfs.ErrFileType, nfs4.ErrBadType},
		{vfs.ErrBadCookie, nfs4.ErrBadCookie},
		{vfs.ErrTooSmall, nfs4.ErrTooSmall},
		{statusError(nfs4.ErrOpenMode), nfs4.ErrOpenMode},
		{errors.New("anything else"), nfs4.ErrServerFault},
	} {
		if got := statusOf(tt.err); got != tt.want {
			t.Errorf("statusOf(%v) = %v, want %v", tt.err, got, tt.want)
		}
	}
}

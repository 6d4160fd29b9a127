package nfs3

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/podnas/podnas/server/export"
)

func TestStatusOf(t *testing.T) {
	for _, tt := range []struct {
		err  error
		want Status
	}{
		{nil, OK},
		{syscall.EPERM, ErrPerm},
		{syscall.ENOENT, ErrNoEnt},
		{syscall.EIO, ErrIO},
		{syscall.ENXIO, ErrNXIO},
		{syscall.EACCES, ErrAcces},
		{syscall.EEXIST, ErrExist},
		{syscall.EXDEV, ErrXDev},
		{syscall.ENODEV, ErrNoDev},
		{syscall.ENOTDIR, ErrNotDir},
		{syscall.EISDIR, ErrIsDir},
		{syscall.EINVAL, ErrInval},
		{syscall.EFBIG, ErrFBig},
		{syscall.ENOSPC, ErrNoSpc},
		{syscall.EROFS, ErrROFS},
		{syscall.EMLINK, ErrMLink},
		{syscall.ENAMETOOLONG, ErrNameTooLong},
		{syscall.ENOTEMPTY, ErrNotEmpty},
		{syscall.EDQUOT, ErrDQuot},
		{syscall.ESTALE, ErrStale},
		{syscall.EOPNOTSUPP, ErrNotSupp},
		{syscall.EMFILE, ErrJukebox},
		{syscall.EOVERFLOW, ErrFBig},
		{syscall.ETXTBSY, ErrAcces},
		{syscall.ELOOP, ErrInval},
		{syscall.EBADMSG, ErrIO},
		{&os.PathError{Op: "open", Path: "x", Err: syscall.ENOSPC}, ErrNoSpc},
		{fmt.Errorf("sync: %w", syscall.EIO), ErrIO},
		{export.ErrBadHandle, ErrBadHandle},
		{errBadType, ErrBadType},
		{errBadCookie, ErrBadCookie},
		{errTooSmall, ErrTooSmall},
		{errors.New("anything else"), ErrServerFault},
	} {
		if got := statusOf(tt.err); got != tt.want {
			t.Errorf("statusOf(%v) = %v, want %v", tt.err, got, tt.want)
		}
	}
}

func TestCheckName(t *testing.T) {
	for name, want := range map[string]error{
		"name": nil, "\xff": nil, "...": nil, strings.Repeat("n", 255): nil,
		"": syscall.EINVAL, ".": syscall.EINVAL, "..": syscall.EINVAL, "a/b": syscall.EINVAL, "a\x00": syscall.EINVAL,
		strings.Repeat("n", 256): syscall.ENAMETOOLONG,
	} {
		if err := checkName([]byte(name)); !errors.Is(err, want) {
			t.Errorf("checkName(%q) = %v, want %v", name, err, want)
		}
	}
}

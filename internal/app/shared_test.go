package app

import (
	"fmt"
	"io/fs"
	"syscall"
	"testing"
	"time"

	"github.com/podnas/podnas/internal/latest"
	"github.com/podnas/podnas/internal/volume/shareddisk"
)

// podnas mounts a shared disk anew for what a file system says that has failed, and for nothing else.
func TestFails(t *testing.T) {
	for _, tt := range []struct {
		err  error
		want bool
	}{
		{nil, false},
		{&fs.PathError{Op: "write", Path: "heartbeat", Err: syscall.EIO}, true},
		{&fs.PathError{Op: "open", Path: "heartbeat", Err: syscall.EROFS}, true},
		{syscall.EUCLEAN, true},
		{syscall.EMFILE, false},
		{syscall.ENOMEM, false},
		{syscall.EBADE, false}, // a reservation: another podnas takes the disk over
		{fmt.Errorf("heartbeat: %w", shareddisk.ErrLost), false},
		{&latest.PendingError{Since: time.Now()}, false},
	} {
		if got := fails(tt.err); got != tt.want {
			t.Errorf("%v: %v", tt.err, got)
		}
	}
}

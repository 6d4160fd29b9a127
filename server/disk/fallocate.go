package disk

import (
	"errors"

	"golang.org/x/sys/unix"
)

// Fallocate is fallocate(2), again after a signal.
func Fallocate(fd int, mode uint32, offset, length int64) error {
	for {
		if err := unix.Fallocate(fd, mode, offset, length); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

package export

import (
	"errors"

	"golang.org/x/sys/unix"
)

// pread reads until p is full or the file ends.
func pread(fd int, p []byte, offset int64) (int, error) {
	done := 0
	for done < len(p) {
		n, err := unix.Pread(fd, p[done:], offset+int64(done))
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if n <= 0 || err != nil {
			return done, err
		}
		done += n
	}
	return done, nil
}

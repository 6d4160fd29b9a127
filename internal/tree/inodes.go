package tree

import (
	"context"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// Inodes is a set of inode numbers. Numbers that are near each other take little: file systems give them out in chunks.
type Inodes map[uint64]*[inodesEach / 64]uint64

const inodesEach = 512

// Has reports whether a number is in the set.
func (s Inodes) Has(inode uint64) bool {
	chunk := s[inode/inodesEach]
	return chunk != nil && chunk[inode%inodesEach/64]&(1<<(inode%64)) != 0
}

// Add adds a number to the set.
func (s Inodes) Add(inode uint64) {
	chunk := s[inode/inodesEach]
	if chunk == nil {
		chunk = new([inodesEach / 64]uint64)
		s[inode/inodesEach] = chunk
	}
	chunk[inode%inodesEach/64] |= 1 << (inode % 64)
}

// WithSeveralNames returns the files that have several names in a tree, where the number of links does not say it: those of a snapshot
// have names in other snapshots. It takes some microseconds for a name. The error is ErrTooDeep for what Copy refuses.
func WithSeveralNames(ctx context.Context, root *os.File) (Inodes, error) {
	once, several := Inodes{}, Inodes{}
	var pacer Pacer
	w := Walker{Deepest: deepest, Name: func(dir *os.File, name string) (enter bool, err error) {
		st, err := StatIn(int(dir.Fd()), name)
		switch {
		case errors.Is(err, unix.ENOENT):
			return false, nil
		case err != nil:
			return false, fmt.Errorf("%q: %w", name, err)
		case st.IsDir():
			return true, nil
		case st.Nlink > 1 && once.Has(st.Ino):
			several.Add(st.Ino)
		case st.Nlink > 1:
			once.Add(st.Ino)
		}
		return false, pacer.Pause(ctx)
	}}
	return several, w.Run(root)
}

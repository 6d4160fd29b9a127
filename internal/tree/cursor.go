package tree

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// Cursor is a directory in a tree, for a walk in an order of its own. It has one descriptor open at any depth, two while it
// moves. It follows no symbolic link and enters no mount. It is used by one goroutine at a time.
type Cursor struct{ at position }

// Begin goes to the root, which stays the caller's and must stay open.
func (c *Cursor) Begin(root *os.File) error { return c.at.begin(root) }

// Dir is the directory, until the next move.
func (c *Cursor) Dir() *os.File { return c.at.dir }

// Down goes to a directory in this one. The error is ErrTooDeep beyond 65,536 levels.
func (c *Cursor) Down(name string) error {
	if len(c.at.way) >= deepest {
		return fmt.Errorf("%w: at most %d are possible", ErrTooDeep, deepest)
	}
	dir, err := openDir(c.at.dir, name)
	if err != nil {
		return err
	}
	return c.at.down(dir, name, new(unix.Statx_t))
}

// Up goes back to the directory above, and from the root to nothing. The error is fs.ErrNotExist if there is no way back, as
// something was moved meanwhile.
func (c *Cursor) Up() error { return c.at.up() }

// Close ends the walk, wherever it is.
func (c *Cursor) Close() { c.at.close() }

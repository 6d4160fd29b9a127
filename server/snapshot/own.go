package snapshot

import (
	"errors"
	"syscall"

	"github.com/podnas/podnas/internal/tree"
	"github.com/podnas/podnas/server/disk"
)

// Own is how files of the process's own user are read whose modes keep even their owner from them. A process that may read
// everything needs none.
type Own struct {
	// Still calls do while no mode is another one than clients have set, as during Read.
	Still func(do func())
	// Read calls do while the owner of a file, which is open with O_PATH, may read it, and search it if it is a directory.
	Read func(id disk.FileID, path int, do func() error) error
}

// stat returns what there is to know of an open file.
func (t *taking) stat(path int) (st tree.Statx, err error) {
	if t.own == nil {
		return tree.Stat(path)
	}
	t.own.Still(func() { st, err = tree.Stat(path) })
	return st, err
}

// reads calls do, which reads from an open file. Where the mode keeps its owner from that, it is called again, when it does not.
func (t *taking) reads(path int, do func() error) error {
	err := do()
	if t.own == nil || !errors.Is(err, syscall.EACCES) {
		return err
	}
	id, err := t.files.Identify(path, nil)
	if err != nil {
		return err
	}
	return t.own.Read(id, path, do)
}

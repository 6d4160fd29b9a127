package snapshot

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"syscall"

	"github.com/podnas/podnas/internal/tree"
	"github.com/podnas/podnas/server/disk"
)

// The names of a directory at the cut are in a file: the directory's FileID, and then an entry for each name. It is
// read by the process that wrote it alone.

// entry is a name in a directory.
type entry struct {
	kind  byte // DT_DIR and so on, readdir(3)
	inode uint64
	name  string
	at    int64 // in the file
}

// The kinds of devices.
const (
	kindChr = 2
	kindBlk = 6
)

// writeNames writes the names of an open directory.
func writeNames(to io.Writer, id *disk.FileID, dir int) error {
	w := bufio.NewWriter(to)
	b := append([]byte{byte(len(id.Bytes()))}, id.Bytes()...)
	if _, err := w.Write(b); err != nil {
		return err
	}
	buf := make([]byte, 64<<10)
	for {
		n, err := syscall.ReadDirent(dir, buf)
		if errors.Is(err, syscall.EINTR) {
			continue
		}
		if err != nil {
			return fmt.Errorf("list: %w", err)
		}
		if n <= 0 {
			return w.Flush()
		}
		for left := buf[:n]; len(left) > 0; {
			e := tree.DirentIn(left)
			left = left[e.Size:]
			if !disk.ValidName(e.Name) {
				continue // "." and ".."
			}
			b = append(b[:0], e.Kind)
			b = binary.BigEndian.AppendUint64(b, e.Ino)
			b = binary.BigEndian.AppendUint16(b, uint16(len(e.Name)))
			if _, err := w.Write(append(b, e.Name...)); err != nil {
				return err
			}
		}
	}
}

// namesReader reads what writeNames has written.
type namesReader struct {
	id disk.FileID
	r  *bufio.Reader
	f  *os.File
	at int64 // of the next entry
}

// openNames opens such a file.
func openNames(root *os.Root, name string) (*namesReader, error) {
	f, err := root.Open(name)
	if err != nil {
		return nil, err
	}
	n := &namesReader{r: bufio.NewReader(f), f: f}
	var b [1 + math.MaxUint8]byte
	if _, err := io.ReadFull(n.r, b[:1]); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	id := b[1 : 1+int(b[0])]
	if _, err := io.ReadFull(n.r, id); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	n.id, n.at = disk.NewFileID(id), 1+int64(len(id))
	return n, nil
}

// entrySize is an entry without its name: its kind, the inode, the size of the name.
const entrySize = 1 + 8 + 2

// next returns the next entry; the error is io.EOF after the last.
func (n *namesReader) next() (e entry, err error) {
	var b [entrySize]byte
	if _, err := io.ReadFull(n.r, b[:]); err != nil {
		return e, err
	}
	name := make([]byte, binary.BigEndian.Uint16(b[9:]))
	if _, err := io.ReadFull(n.r, name); err != nil {
		return e, fmt.Errorf("names end within one: %w", err)
	}
	e = entry{b[0], binary.BigEndian.Uint64(b[1:]), string(name), n.at}
	n.at += entrySize + int64(len(name))
	return e, nil
}

// nameAt returns the name of the entry at a place.
func (n *namesReader) nameAt(at int64) (string, error) {
	var b [entrySize + nameMax]byte
	size, err := n.f.ReadAt(b[:], at)
	if err != nil && !errors.Is(err, io.EOF) {
		return "", err
	}
	end := entrySize + int(binary.BigEndian.Uint16(b[9:]))
	if end > size {
		return "", io.ErrUnexpectedEOF
	}
	return string(b[entrySize:end]), nil
}

func (n *namesReader) close() { _ = n.f.Close() } // only read from

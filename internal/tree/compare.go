package tree

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// Difference is what two files with one name differ in.
type Difference uint16

// The differences.
const (
	DiffersContent  Difference = 1 << iota // also the target of a symbolic link, and the number of a device
	DiffersMode                            // the permissions
	DiffersOwner                           // or the group
	DiffersAttrs                           // extended attributes, with ACLs
	DiffersModified                        // the time; of a directory it is not compared
)

// Words says it for people.
func (d Difference) Words() []string {
	var words []string
	for i, word := range []string{"content", "mode", "owner", "attributes", "modified"} {
		if d&(1<<i) != 0 {
			words = append(words, word)
		}
	}
	return words
}

// OpenDir opens a directory in another one. It follows no link, and enters no mount.
func OpenDir(dir *os.File, name string) (*os.File, error) { return openDir(dir, name) }

// Compare compares two files of one type, each by its name in a directory and what StatIn has said of it. The content of regular files is read
// if their sizes are the same. Below directories nothing is compared.
func Compare(a *os.File, nameA string, stA *Statx, b *os.File, nameB string, stB *Statx) (d Difference, err error) {
	const permissions = 0o7777
	if stA.Uid != stB.Uid || stA.Gid != stB.Gid {
		d |= DiffersOwner
	}
	isLink := stA.is(unix.S_IFLNK)
	if !isLink && stA.Mode&permissions != stB.Mode&permissions {
		d |= DiffersMode
	}
	if !stA.IsDir() && stA.Mtime != stB.Mtime {
		d |= DiffersModified
	}
	one, err := openAt(a, nameA, unix.O_PATH)
	if err != nil {
		return d, err
	}
	defer unix.Close(one)
	other, err := openAt(b, nameB, unix.O_PATH)
	if err != nil {
		return d, err
	}
	defer unix.Close(other)
	same, err := sameAttributes(one, stA, other, stB)
	if err != nil {
		return d, err
	}
	if !same {
		d |= DiffersAttrs
	}
	switch {
	case stA.IsRegular():
		same = stA.Size == stB.Size
		if same && stA.Size > 0 {
			same, err = sameContent(one, other)
		}
	case isLink:
		same, err = sameTarget(one, other)
	default:
		same = stA.Rdev_major == stB.Rdev_major && stA.Rdev_minor == stB.Rdev_minor
	}
	if !same {
		d |= DiffersContent
	}
	return d, err
}

// sameAttributes compares extended attributes. Those of links can't be set by clients.
func sameAttributes(one int, stA *Statx, other int, stB *Statx) (bool, error) {
	if stA.is(unix.S_IFLNK) {
		return true, nil
	}
	a, err := readMetadata(one, &stA.Statx_t)
	if err != nil {
		return false, err
	}
	b, err := readMetadata(other, &stB.Statx_t)
	if err != nil {
		return false, err
	}
	byName := func(x, y attribute) int { return strings.Compare(x.name, y.name) }
	slices.SortFunc(a.attrs, byName)
	slices.SortFunc(b.attrs, byName)
	return slices.EqualFunc(a.attrs, b.attrs, func(x, y attribute) bool { return x.name == y.name && bytes.Equal(x.value, y.value) }), nil
}

// sameTarget compares two symbolic links.
func sameTarget(one, other int) (bool, error) {
	var a, b [unix.PathMax + 1]byte
	n, err := unix.Readlinkat(one, "", a[:])
	if err != nil {
		return false, fmt.Errorf("read a link: %w", err)
	}
	m, err := unix.Readlinkat(other, "", b[:])
	if err != nil {
		return false, fmt.Errorf("read a link: %w", err)
	}
	return bytes.Equal(a[:n], b[:m]), nil
}

// compareAtOnce is how much of two files is read at once.
const compareAtOnce = 256 << 10

// sameContent reads two regular files of one size, whose descriptors are O_PATH, up to the first difference.
func sameContent(one, other int) (bool, error) {
	a, err := os.Open(procPath(one))
	if err != nil {
		return false, err
	}
	defer a.Close()
	b, err := os.Open(procPath(other))
	if err != nil {
		return false, err
	}
	defer b.Close()
	bufA, bufB := make([]byte, compareAtOnce), make([]byte, compareAtOnce)
	for at := int64(0); ; {
		dataA, err := nextData(a, at)
		if err != nil {
			return false, err
		}
		dataB, err := nextData(b, at)
		if err != nil {
			return false, err
		}
		if at = min(dataA, dataB); at == math.MaxInt64 { // what is a hole in both is not read
			return true, nil
		}
		n, errA := a.ReadAt(bufA, at)
		m, errB := b.ReadAt(bufB, at)
		if !bytes.Equal(bufA[:n], bufB[:m]) {
			return false, nil
		}
		for _, err := range []error{errA, errB} {
			if err != nil && !errors.Is(err, io.EOF) {
				return false, err
			}
		}
		if n < len(bufA) {
			return true, nil
		}
		at += int64(n)
	}
}

// nextData returns where a file has data from an offset on, and math.MaxInt64 if there is none.
func nextData(f *os.File, at int64) (int64, error) {
	next, err := unix.Seek(int(f.Fd()), at, unix.SEEK_DATA)
	if errors.Is(err, unix.ENXIO) {
		return math.MaxInt64, nil
	}
	return next, err
}

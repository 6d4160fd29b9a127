package volume

import (
	"errors"
	"fmt"
	"os"
	"path"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"github.com/podnas/podnas/internal/tree"
)

// pathMax limits a volume's path, in bytes: clients mount it, and MOUNT accepts at
// most 1024.
const pathMax = 1000

// validPath refuses a path that is not a plain path below the root of the disk, or
// has unprintable characters.
func validPath(p string) error {
	unprintable := func(r rune) bool { return !unicode.IsPrint(r) }
	switch {
	case p == "" || path.IsAbs(p) || path.Clean(p) != p:
		return fmt.Errorf("%w: the path %q must be relative and plain, like namespace/name", ErrInvalid, p)
	case len(p) > pathMax:
		return fmt.Errorf("%w: the path has %d bytes, and the maximum is %d", ErrInvalid, len(p), pathMax)
	case !utf8.ValidString(p) || strings.ContainsFunc(p, unprintable):
		return fmt.Errorf("%w: the path %q has unprintable characters", ErrInvalid, p)
	}
	for _, component := range strings.Split(p, "/") {
		switch {
		case strings.HasPrefix(component, "."): // .., and the state directory
			return fmt.Errorf("%w: the path %q has a part that begins with a dot", ErrInvalid, p)
		case len(component) > 255:
			return fmt.Errorf("%w: a part of the path has %d bytes, and the maximum is 255", ErrInvalid, len(component))
		}
	}
	return nil
}

// takenByLocked finds a record whose path is p, inside p, or above p.
//
// +checklocks:s.mu
func (s *Store) takenByLocked(p string) *record {
	for _, r := range s.records {
		if nests(r.Path, p) {
			return r
		}
	}
	for _, r := range s.trashed {
		if r.inPlace && nests(r.Path, p) {
			return r
		}
	}
	return nil
}

// nests reports whether two paths are equal, or one is inside the other.
func nests(a, b string) bool {
	return a == b || strings.HasPrefix(a, b+"/") || strings.HasPrefix(b, a+"/")
}

// newDirMode is the mode of a volume's directory until the volume is complete.
const newDirMode = 0o700

// makeDir creates the directory of a volume and its parents. None of them may be a
// symbolic link, which could lead into another volume.
func (s *Store) makeDir(p string) error {
	s.tree.Lock()
	defer s.tree.Unlock()
	if err := s.makeParentsLocked(p); err != nil {
		return err
	}
	return s.root.Mkdir(p, newDirMode)
}

// makeParentsLocked creates the parents of a path.
//
// +checklocks:s.tree
func (s *Store) makeParentsLocked(p string) error {
	parent := path.Dir(p)
	if parent == "." {
		return nil
	}
	if err := s.makeParentsLocked(parent); err != nil {
		return err
	}
	err := s.root.Mkdir(parent, 0o755)
	if err == nil {
		return syncDir(s.root, path.Dir(parent))
	}
	if !errors.Is(err, os.ErrExist) {
		return err
	}
	return s.plainDir(parent)
}

// plainDir makes sure that a path on the disk is a directory, and that neither it
// nor a parent is a symbolic link.
func (s *Store) plainDir(p string) error {
	if parent := path.Dir(p); parent != "." {
		if err := s.plainDir(parent); err != nil {
			return err
		}
	}
	info, err := s.root.Lstat(p)
	if err != nil {
		return err
	}
	if !info.IsDir() {
		return fmt.Errorf("%s on the disk: %w and is not a directory: move it away", p, ErrExists)
	}
	return nil
}

// openDir opens a directory, and nothing else: to open a fifo would wait for who writes it.
func openDir(root *os.Root, name string) (*os.File, error) {
	return root.OpenFile(name, os.O_RDONLY|unix.O_DIRECTORY, 0)
}

// moveDir moves the directory of a volume into the state directory, or back. It is
// no error if it is already moved, or gone.
func (s *Store) moveDir(from, to string) error {
	s.tree.Lock()
	defer s.tree.Unlock()
	return s.moveDirLocked(from, to)
}

// moveToTrash moves the directory of a volume whose record is in the trash, if it
// is not moved yet. Otherwise the path may belong to another volume by now.
func (s *Store) moveToTrash(r *record) error {
	s.tree.Lock() // before another volume can create its directory
	defer s.tree.Unlock()
	trashed := r.keptIn(trashDir)
	if _, err := s.root.Lstat(trashed); !errors.Is(err, os.ErrNotExist) {
		return err
	}
	var still []refused
	if r.file != "" && path.Dir(r.file) == trashDir { // otherwise it was served until now
		still = s.stillRefused()
	}
	s.mu.Lock()
	taken := false
	for _, other := range s.records {
		taken = taken || other.ID != r.ID && nests(other.Path, r.Path)
	}
	s.mu.Unlock()
	if taken || s.isNewer(r) {
		return nil
	}
	if mayBeOf := r.mayBeOf(still); mayBeOf != nil {
		return fmt.Errorf("the directory %s may belong to a record that is not used: %w", r.Path, mayBeOf.err)
	}
	return s.moveDirLocked(r.Path, trashed)
}

// madeWithin is how long after its directory, or before, the record of a volume is made at most, in seconds.
const madeWithin = 10

// isNewer reports whether the directory at the path of a deleted volume was made after that, and so
// is another one. The volume's own was removed already. If the clock was set back before the volume was deleted, its own
// directory is from after that, too, but from when the volume was made.
func (s *Store) isNewer(r *record) bool {
	if r.Deleted.IsZero() || s.plainDir(r.Path) != nil {
		return false
	}
	d, err := openDir(s.root, r.Path)
	if err != nil {
		return false
	}
	defer d.Close()
	var st unix.Statx_t
	if unix.Statx(int(d.Fd()), "", unix.AT_EMPTY_PATH, unix.STATX_BTIME, &st) != nil || st.Mask&unix.STATX_BTIME == 0 {
		return false
	}
	made, created, deleted := st.Btime.Sec, r.Created.Unix(), r.Deleted.Unix()
	isOwn := created > deleted && made >= created-madeWithin && made <= created+madeWithin
	return made > deleted && !isOwn
}

// moveDirLocked is moveDir for callers that hold s.tree.
//
// +checklocks:s.tree
func (s *Store) moveDirLocked(from, to string) error {
	if err := s.makeParentsLocked(to); err != nil {
		return err
	}
	if err := s.plainDir(path.Dir(from)); err != nil && path.Dir(from) != "." {
		if errors.Is(err, os.ErrNotExist) {
			return nil
		}
		return err
	}
	err := s.rename(from, to)
	if errors.Is(err, os.ErrPermission) {
		// A directory can be moved only if it is writable, or with CAP_DAC_OVERRIDE, and
		// if it is not immutable; a client may have changed either.
		if info, _ := s.root.Lstat(from); info != nil && info.IsDir() {
			err = errors.Join(s.makeMutable(from), s.root.Chmod(from, info.Mode().Perm()|0o700))
			if err == nil {
				err = errors.Join(s.rename(from, to), s.root.Chmod(to, info.Mode()))
			}
		}
	}
	switch {
	case errors.Is(err, os.ErrNotExist):
		return nil
	case err != nil:
		return err
	}
	s.removeParentsLocked(from)
	return errors.Join(syncDir(s.root, path.Dir(to)), syncDir(s.root, "."))
}

// removeDir removes the empty directory of a volume.
func (s *Store) removeDir(p string) error {
	s.tree.Lock()
	defer s.tree.Unlock()
	err := s.root.Remove(p)
	s.removeParentsLocked(p)
	return err
}

// removeParentsLocked removes the parents of a path that are now empty.
//
// +checklocks:s.tree
func (s *Store) removeParentsLocked(p string) {
	for parent := path.Dir(p); parent != "." && parent != trashDir && parent != archiveDir; parent = path.Dir(parent) {
		if s.root.Remove(parent) != nil {
			return // something else is in it
		}
	}
	// A crash may leave an empty directory.
	_ = syncDir(s.root, ".")
}

// makeMutable clears the flags of a directory that prevent moving it.
func (s *Store) makeMutable(dir string) error {
	d, err := openDir(s.root, dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return tree.Mutable(d)
}

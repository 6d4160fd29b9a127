package volume

import (
	"errors"
	"fmt"
	"os"
	"path"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/podnas/podnas/volume/tree"
)

// pathMax bounds a volume's path, in bytes: it is mounted by it, and MOUNT takes
// 1024.
const pathMax = 1000

// validPath refuses a path that is not one of directories below the root of the
// disk, or that people could not read.
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

// takenBy finds the record whose path is p, or lies in it, or in which p lies.
// The caller holds s.mu.
func (s *Store) takenBy(p string) *record {
	for _, r := range s.records {
		if nests(r.Path, p) {
			return r
		}
	}
	// The directory of a deleted volume that could not be moved is in its place.
	for _, r := range s.trashed {
		if !nests(r.Path, p) {
			continue
		}
		_, here := s.root.Lstat(r.Path)
		_, moved := s.root.Lstat(r.keptIn(trashDir))
		if here == nil && errors.Is(moved, os.ErrNotExist) {
			return r
		}
	}
	return nil
}

// nests tells whether two paths are the same, or one lies in the other.
func nests(a, b string) bool {
	return a == b || strings.HasPrefix(a, b+"/") || strings.HasPrefix(b, a+"/")
}

// makeDir makes the directory of a volume, and those above it. None of these may
// be a symbolic link: it could lead into another volume.
func (s *Store) makeDir(p string) error {
	s.tree.Lock()
	defer s.tree.Unlock()
	if err := s.makeParents(p); err != nil {
		return err
	}
	return s.root.Mkdir(p, 0o700)
}

// makeParents makes the directories above a path. The caller holds s.tree.
func (s *Store) makeParents(p string) error {
	parent := path.Dir(p)
	if parent == "." {
		return nil
	}
	if err := s.makeParents(parent); err != nil {
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

// plainDir makes sure that a path of the disk is a directory, and that neither it
// nor what is above it is a link to one.
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

// moveDir moves the directory of a volume to a place in the state directory, or
// back from there. It may have been moved before, or be gone.
func (s *Store) moveDir(from, to string) error {
	s.tree.Lock()
	defer s.tree.Unlock()
	return s.moveDirLocked(from, to)
}

// moveToTrash moves the directory of a volume whose record is in the trash, if it
// is still where it was. By now it may be gone, and its path another volume's.
func (s *Store) moveToTrash(r *record) error {
	s.tree.Lock() // before which no other makes its directory
	defer s.tree.Unlock()
	trashed := r.keptIn(trashDir)
	if _, err := s.root.Lstat(trashed); !errors.Is(err, os.ErrNotExist) {
		return err
	}
	s.mu.Lock()
	taken := false
	for _, other := range s.records {
		taken = taken || other.ID != r.ID && nests(other.Path, r.Path)
	}
	s.mu.Unlock()
	if taken {
		return nil
	}
	return s.moveDirLocked(r.Path, trashed)
}

// moveDirLocked is moveDir for who holds s.tree.
func (s *Store) moveDirLocked(from, to string) error {
	if err := s.makeParents(to); err != nil {
		return err
	}
	if err := s.plainDir(path.Dir(from)); err != nil && path.Dir(from) != "." {
		if errors.Is(err, os.ErrNotExist) {
			return nil
		}
		return err
	}
	err := s.root.Rename(from, to)
	if errors.Is(err, os.ErrPermission) {
		// Without CAP_DAC_OVERRIDE a directory must be writable to be moved,
		// and a client may have taken that away; nor may it be immutable.
		if info, _ := s.root.Lstat(from); info != nil && info.IsDir() {
			err = errors.Join(s.makeMutable(from), s.root.Chmod(from, info.Mode().Perm()|0o700))
			if err == nil {
				err = errors.Join(s.root.Rename(from, to), s.root.Chmod(to, info.Mode()))
			}
		}
	}
	switch {
	case errors.Is(err, os.ErrNotExist):
		return nil
	case err != nil:
		return err
	}
	s.removeParents(from)
	return errors.Join(syncDir(s.root, path.Dir(to)), syncDir(s.root, "."))
}

// removeDir removes the empty directory of a volume.
func (s *Store) removeDir(p string) error {
	s.tree.Lock()
	defer s.tree.Unlock()
	err := s.root.Remove(p)
	s.removeParents(p)
	return err
}

// removeParents removes the directories above a path that are empty now. The
// caller holds s.tree.
func (s *Store) removeParents(p string) {
	for parent := path.Dir(p); parent != "." && parent != trashDir && parent != archiveDir; parent = path.Dir(parent) {
		if s.root.Remove(parent) != nil {
			return // something else is in it
		}
	}
	// What is left behind after a crash is an empty directory.
	_ = syncDir(s.root, ".")
}

// makeMutable takes from a directory the flags that keep it from being moved.
func (s *Store) makeMutable(dir string) error {
	d, err := s.root.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return tree.Mutable(d)
}

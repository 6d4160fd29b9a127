package volume

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"strings"
)

// asideSuffix is in the names of files that were put aside.
const asideSuffix = ".damaged"

// putAside renames what is in the way of one of podnas's files. Nobody knows what it is, so it is kept.
func (s *Store) putAside(name string) error {
	for n := 1; ; n++ {
		aside := fmt.Sprintf("%s%s-%d", name, asideSuffix, n)
		if _, err := s.root.Lstat(aside); err == nil {
			continue
		} else if !errors.Is(err, os.ErrNotExist) {
			return err
		}
		if err := s.root.Rename(name, aside); err != nil {
			return fmt.Errorf("put %s aside: %w", name, err)
		}
		s.log.Error("disk: something was in the way of a file of podnas, put it aside", "file", name, "as", aside)
		return syncDir(s.root, path.Dir(name))
	}
}

// putAsideUnless puts a file aside if it is not of the kind that it must be.
func (s *Store) putAsideUnless(name string, right func(fs.FileMode) bool) error {
	info, err := s.root.Lstat(name)
	if errors.Is(err, os.ErrNotExist) || err == nil && right(info.Mode()) {
		return nil
	}
	if err != nil {
		return err
	}
	return s.putAside(name)
}

// findAside returns what was put aside in the state directory.
func (s *Store) findAside() ([]Finding, error) {
	var findings []Finding
	for _, dir := range []string{StateDir, volumesDir, archiveDir, trashDir} {
		entries, err := fs.ReadDir(s.root.FS(), dir)
		if err != nil {
			return nil, fmt.Errorf("list %s: %w", dir, err)
		}
		for _, e := range entries {
			if strings.Contains(e.Name(), asideSuffix) {
				findings = append(findings, Finding{
					Path:    path.Join(dir, e.Name()),
					Problem: "it was in the way of a file of podnas, and was put aside",
					Fix:     "look what it is, and move it away or remove it",
					Notice:  true,
				})
			}
		}
	}
	return findings, nil
}

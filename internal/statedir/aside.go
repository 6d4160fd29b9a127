package statedir

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"

	"golang.org/x/sys/unix"
)

// asideMax bounds how many files of one name are kept aside. With more, the next one stays where it is.
const asideMax = 1000

// SetAside renames what can't be what podnas wrote, so that podnas goes on without it: what it was for is lost, and
// nothing else. The new name says so, and a person may look at it. why is what is wrong with the file.
func (d *Dir) SetAside(name string, why error) error {
	for n := 1; n <= asideMax; n++ {
		aside := fmt.Sprintf("%s.damaged-%d", name, n)
		err := d.reserve.Do(func() error {
			return rename(d.f, name, d.f, aside, unix.RENAME_NOREPLACE)
		})
		switch {
		case err == nil:
			d.log.Error("disk: a file of podnas's own was damaged and is put aside: what it was for is lost, and nothing else",
				"file", filepath.Join(d.f.Name(), name), "aside", aside, "err", why)
			return d.Sync()
		case !errors.Is(err, unix.EEXIST):
			return &fs.PathError{Op: "put aside", Path: filepath.Join(d.f.Name(), name), Err: err}
		}
	}
	return fmt.Errorf("there are %d damaged files of %s already: remove them", asideMax, filepath.Join(d.f.Name(), name))
}

// rename is renameat2(2), for file systems that know no flags, too.
func rename(from *os.File, name string, to *os.File, as string, flags uint) error {
	err := unix.Renameat2(int(from.Fd()), name, int(to.Fd()), as, flags)
	if flags == unix.RENAME_NOREPLACE && errors.Is(err, unix.EINVAL) {
		var st unix.Stat_t
		if unix.Fstatat(int(to.Fd()), as, &st, unix.AT_SYMLINK_NOFOLLOW) == nil {
			return unix.EEXIST
		}
		err = unix.Renameat(int(from.Fd()), name, int(to.Fd()), as)
	}
	return err
}

var asideName = regexp.MustCompile(`\.damaged-[0-9]+$`)

// IsAside reports whether SetAside has given this name.
func IsAside(name string) bool { return asideName.MatchString(name) }

// Aside returns what was put aside in folders, as paths. A folder that is not there has nothing.
func Aside(folders ...string) (paths []string) {
	for _, folder := range folders {
		entries, _ := os.ReadDir(folder)
		for _, e := range entries {
			if IsAside(e.Name()) {
				paths = append(paths, filepath.Join(folder, e.Name()))
			}
		}
	}
	return paths
}

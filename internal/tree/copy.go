// Package tree works on whole directory trees in the background: Copy copies one, Walk
// opens everything in one, Empty removes its contents. Walker is what goes through a
// tree, for Copy, Walk, and others who have their own way with each name.
//
// It works with descriptors, follows no symbolic link, enters no mount, and needs
// few descriptors and no long paths even for deep trees.
package tree

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// hubName is a directory in the root of an unfinished copy. It has the files with
// several names under one name each, as sources for links, and entries that were in
// the way. It is removed when the copy is done. An entry of this name in the root
// of a source is not copied.
const hubName = ".podnas-copying-6e1f4c"

// Copy copies a directory tree. The fields are its progress, including files that
// were complete before, and may be read at any time. A Copy is for one Run.
type Copy struct {
	// Shared is whether files of the source have names in other trees, too, so that their number of links does not say
	// how many they have in this one.
	Shared bool

	Files atomic.Int64 // entries of any type, the root not counted
	Bytes atomic.Int64 // content on the disk; holes don't count
}

// Run copies the directory from to the directory to: everything below it, and its
// own owner, mode, times and extended attributes. to must be empty or contain an
// interrupted earlier copy. Run does not copy complete files again, copies
// incomplete ones anew, and removes those that are no longer in from.
//
// It copies owners, modes, times, ACLs, the extended attributes user, trusted and
// security.capability, holes, hard links, symbolic links, fifos, sockets and
// devices. It does not copy files on other mounts, attributes of chattr(1),
// project ids, security labels, and an entry of from that is named hubName. For an ordinary user it omits the owner and
// root's extended attributes, and a device is an error.
//
// from may be in use. A file that vanishes is passed over. A file that changes
// is copied as it is read: where the disk can share blocks, as it was at one
// moment; else its parts can be of different moments, up to the size it had at
// the first. It has the times of before, so another Run would copy it again. The
// tree as a whole is not of one moment.
//
// When Run returns nil, all is on the disk. If the machine fails before, Run can
// be called again: an entry gets its times after all else, so one that has type,
// size and mtime of its source is complete. Files have no name before that, where
// the disk knows O_TMPFILE.
//
// The errors ENOSPC and EDQUOT mean that to is full, and ErrTooDeep that from has more than 65,536
// levels. The error is ctx's if ctx ended.
func (c *Copy) Run(ctx context.Context, from, to *os.File) error {
	j := job{Copy: c, ctx: ctx, linked: Inodes{}}
	if err := j.to.begin(to); err != nil {
		return err
	}
	defer j.to.close()
	defer j.closeHub()
	if c.Shared {
		var err error
		if j.several, err = WithSeveralNames(ctx, from); err != nil {
			return fmt.Errorf("copy: %w", err)
		}
	}
	j.walk = entries{Walker: Walker{Enter: j.enter, Leave: j.leave}, visit: j.entry}
	if err := j.walk.run(ctx, from); err != nil {
		return fmt.Errorf("copy: %w", err)
	}
	if err := unix.Syncfs(int(to.Fd())); err != nil {
		return fmt.Errorf("copy: sync: %w", err)
	}
	return nil
}

// job is one Run.
type job struct {
	*Copy
	ctx context.Context // of Run, which waits for all of this

	walk entries
	to   position // in the copy, beside walk.at in the source
	dirs []status // of the directories on the way to to, in the source

	hub     *os.File // see hubName; nil until needed
	moved   int      // numbers the entries moved to hub
	several Inodes   // of the source, if it is Shared: the files with several names
	linked  Inodes   // of the source: the files with several names that are in hub, by link
	noClone bool     // the disk can't share blocks
	noRange bool     // copy_file_range(2) does not work
	buffer  []byte   // if it does not
}

// enter creates and enters a directory in the copy, after the walk has entered the
// one in the source.
func (j *job) enter(name string, src *os.File, st *unix.Statx_t) error {
	m, err := readMetadata(int(src.Fd()), st)
	if err != nil {
		return j.failed(name, err)
	}
	j.dirs = append(j.dirs, m.status)
	there := true // from an earlier copy; the root may be
	if name != "." {
		if there, err = j.makeDir(name); err != nil {
			return j.failed(name, err)
		}
		j.Files.Add(1)
	}
	// The extended attributes go to the disk now, and only what is small is kept: a tree may be millions of directories
	// deep, each with 64 KiB of attributes. The directory is private until it is complete; of an ACL the mode is the mask,
	// which leave sets.
	if err := m.applyAttributes(int(j.to.dir.Fd())); err != nil {
		return j.failed(name, err)
	}
	if err := j.to.dir.Chmod(0o700); err != nil {
		return j.failed(name, err)
	}
	if there {
		return j.prune(src)
	}
	return nil
}

// makeDir enters a directory in the copy, and creates it if needed.
func (j *job) makeDir(name string) (there bool, err error) {
	at := int(j.to.dir.Fd())
	err = unix.Mkdirat(at, name, 0o700)
	if errors.Is(err, unix.EEXIST) {
		var st unix.Stat_t
		if err := unix.Fstatat(at, name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
			return false, err
		}
		if there = st.Mode&unix.S_IFMT == unix.S_IFDIR; there {
			err = unlock(j.to.dir, name)
		} else if err = unix.Unlinkat(at, name, 0); err == nil {
			err = unix.Mkdirat(at, name, 0o700)
		}
	}
	if err != nil {
		return false, err
	}
	dir, err := openDir(j.to.dir, name)
	if err != nil {
		return false, err
	}
	return there, j.to.down(dir, name, new(unix.Statx_t))
}

// pruneBatch is how many names prune reads at a time.
const pruneBatch = 256

// prune removes entries of a copied directory that its source does not have.
func (j *job) prune(src *os.File) error {
	for {
		names, err := j.to.dir.Readdirnames(pruneBatch)
		if err != nil && !errors.Is(err, io.EOF) {
			return j.failed(".", err)
		}
		for _, name := range names {
			var st unix.Stat_t
			err := unix.Fstatat(int(src.Fd()), name, &st, unix.AT_SYMLINK_NOFOLLOW)
			if errors.Is(err, unix.ENOENT) && !j.isHub(name) {
				if err := j.discard(j.to.dir, name); err != nil {
					return j.failed(name, err)
				}
			}
			if err := j.walk.pacer.Pause(j.ctx); err != nil {
				return err
			}
		}
		if len(names) == 0 {
			return nil
		}
	}
}

// discard removes an entry that is in the way. It moves a directory into the hub,
// to be emptied at the end.
func (j *job) discard(dir *os.File, name string) error {
	err := unix.Unlinkat(int(dir.Fd()), name, 0)
	if !errors.Is(err, unix.EISDIR) {
		return err
	}
	if err := j.openHub(); err != nil {
		return err
	}
	// To change its "..", the directory itself must be writable.
	if err := unlock(dir, name); err != nil {
		return err
	}
	for ; ; j.moved++ {
		err := unix.Renameat2(int(dir.Fd()), name, int(j.hub.Fd()), fmt.Sprintf("moved-%d", j.moved), unix.RENAME_NOREPLACE)
		if !errors.Is(err, unix.EEXIST) {
			return err
		}
	}
}

// leave completes a directory of the copy and goes back up.
func (j *job) leave() error {
	last := len(j.dirs) - 1
	if last == 0 {
		if err := j.removeHub(); err != nil {
			return fmt.Errorf("remove %s: %w", hubName, err)
		}
	}
	if err := j.dirs[last].apply(int(j.to.dir.Fd())); err != nil {
		return j.failed(".", err)
	}
	j.dirs = j.dirs[:last]
	if last == 0 {
		return nil
	}
	if err := j.to.up(); err != nil {
		return fmt.Errorf("go back up in the copy: %w", err)
	}
	return nil
}

// isHub reports whether a name in the current directory is the hub's.
func (j *job) isHub(name string) bool { return len(j.to.way) == 1 && name == hubName }

// openHub opens the hub, and creates it if needed.
func (j *job) openHub() error {
	if j.hub != nil {
		return nil
	}
	err := unix.Mkdirat(int(j.to.root.Fd()), hubName, 0o700)
	if err != nil && !errors.Is(err, unix.EEXIST) {
		return fmt.Errorf("make %s: %w", hubName, err)
	}
	if j.hub, err = openDir(j.to.root, hubName); err != nil {
		return fmt.Errorf("open %s: %w", hubName, err)
	}
	return nil
}

func (j *job) closeHub() {
	if j.hub != nil {
		_ = j.hub.Close() // only read from
		j.hub = nil
	}
}

// removeHub removes the hub, even one of an earlier run.
func (j *job) removeHub() error {
	hub, err := openDir(j.to.root, hubName)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	_, err = Empty(j.ctx, hub)
	if err := errors.Join(err, hub.Close()); err != nil {
		return err
	}
	return unix.Unlinkat(int(j.to.root.Fd()), hubName, unix.AT_REMOVEDIR)
}

// failed adds the path to an error.
func (j *job) failed(name string, err error) error {
	return fmt.Errorf("%q: %w", j.to.pathOf(name), err)
}

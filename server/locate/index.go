package locate

import (
	"errors"
	"log/slog"
	"os"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/podnas/podnas/server/disk"
	"github.com/podnas/podnas/server/inodeindex"
)

// Index finds files by an index from their inode's number to their names, where the process may not
// open them by the kernel's handles, or they have others. Each file is opened by its path from the volume's root, and only
// then is it known whether it is the right one: the index may be wrong at any time.
//
// What passes through the server adds to the index, and a walk of the volume does. A file that is not
// where the index says was renamed directly on the disk. Then it is looked for where it was; after
// that a walk looks for it. Until a walk that began after the question has ended, the client is asked
// to wait, EAGAIN. A process begins with the names that the one before has kept, see keptIndex.
type Index struct {
	volume *Volume
	names  *inodeindex.Index
	log    *slog.Logger

	// renames counts, twice, the renames through the server, and renaming those under way: a file
	// that is not found may be on its way.
	renames  atomic.Uint64
	renaming atomic.Int64

	walks    walks
	losses   uint64 // of names, when the last walk began; guarded by walks.mu
	kept     keptIndex
	loaded   atomic.Bool // the index had names before the first walk
	askedFor atomic.Bool // since the last DropUnused
}

// indexMax is how many bytes of memory all indexes may take, unless more or less is asked for: enough for 2.5
// million files.
const indexMax = 128 << 20

// errMoved means that the path of the index does not lead to the file, and errReplaced that there can't
// be such a file any more: another one has its inode.
var (
	errMoved    = errors.New("the file is not where the index says")
	errUnknown  = errors.New("the index does not have the file")
	errReplaced = errors.New("another file has the inode now")
)

func newIndex(v *Volume) *Index {
	memory := v.indexes.memory
	if v.OnDemand {
		memory = v.indexes.sleeping
	}
	x := &Index{volume: v, names: inodeindex.New(memory), log: v.indexes.log}
	x.walks.init()
	if !v.OnDemand {
		x.kept.path = v.indexes.file(v.ID)
	}
	return x
}

// Complete reports whether the index has all files, so that what it does not know does not exist.
func (x *Index) Complete() bool {
	x.walks.mu.Lock()
	defer x.walks.mu.Unlock()
	return x.walks.complete
}

// Doubt says that somebody seems to have changed the disk directly, as a file is not where it was.
func (x *Index) Doubt(ino uint64) { x.walks.doubt(ino) }

// IndexCounts counts the indexes of all volumes.
type IndexCounts struct {
	Names, Bytes int
	Walks        uint64
	Partial      int // volumes that may have files that their index lacks
}

// Add counts the index of a volume, if there is one.
func (n *IndexCounts) Add(v *Volume) {
	x := v.index
	if x == nil {
		return
	}
	names, bytes := x.names.Size()
	n.Names += names
	n.Bytes += bytes
	x.walks.mu.Lock()
	defer x.walks.mu.Unlock()
	n.Walks += x.walks.ended
	if !x.walks.complete && (!v.OnDemand || x.walks.begun > 0) {
		n.Partial++
	}
}

// Identify implements finder, with statx(2), and name_to_handle_at(2) if the volume's handles have that form.
func (x *Index) Identify(dir int, name []byte) (disk.FileID, error) {
	id, st, err := x.look(dir, string(name))
	switch {
	case err != nil:
		return disk.FileID{}, err
	case !x.volume.Holds(&st):
		return disk.FileID{}, unix.EXDEV
	case x.volume.form == FormInode, !id.ByInode():
		return id, nil
	}
	id, err = disk.ByHandle{}.Identify(dir, name)
	if err == nil && x.volume.FS.NumberIn(&id) != st.Ino { // somebody has changed the name directly on the disk
		return disk.FileID{}, unix.ESTALE
	}
	return id, err
}

// look identifies a name in a directory by its inode.
func (x *Index) look(dir int, name string) (disk.FileID, unix.Statx_t, error) {
	return disk.ByInode{FS: x.volume.FS}.Look(dir, name)
}

// Holds reports whether a file is on the volume's device: a subvolume of btrfs has inode numbers of
// its own. Only an overlay has several devices in one tree.
func (v *Volume) Holds(st *unix.Statx_t) bool {
	return v.FS.Overlay || v.FS.Device == disk.InodeOfStatx(st).Device
}

const (
	// renameTries is how often a file is looked for while renames go on.
	renameTries = 50
	renamePause = 50 * time.Microsecond
	// repairsMax is how many directories above a file may have been moved directly on the disk.
	repairsMax = 100
	// asksMax is how many walks a call waits for.
	asksMax = 3
)

// Open implements finder.
func (x *Index) Open(file disk.FileID, flags int) (disk.Descriptor, error) {
	ino := x.volume.FS.NumberIn(&file)
	if ino == 0 || file.ByInode() != x.volume.rootID.ByInode() {
		return disk.Descriptor{}, unix.ESTALE
	}
	if x.volume.OnDemand && !x.askedFor.Load() {
		x.askedFor.Store(true)
	}
	renamed, repaired, asked, again, answered := 0, 0, 0, false, false
	for {
		renames, changes := x.renames.Load(), x.names.Changes()
		renaming := x.renaming.Load() > 0
		d, err := x.try(ino, &file, flags)
		unknown, moved := errors.Is(err, errUnknown), errors.Is(err, errMoved)
		switch {
		case errors.Is(err, errReplaced):
			return d, unix.ESTALE
		case !unknown && !moved:
			return d, err
		case renamed < renameTries && (renaming || renames != x.renames.Load()):
			renamed++
			time.Sleep(renamePause)
			continue
		case answered && (unknown || repaired == repairsMax):
			return d, unix.ESTALE
		case unknown:
			if !again && changes != x.names.Changes() { // it may have been added just now
				again = true
				continue
			}
		case moved:
			if repaired < repairsMax {
				repaired++
				x.Doubt(ino)
				if _, err := x.repair(ino); err != nil {
					return d, err
				}
				continue // it is found now, or unknown, or one above it must be repaired
			}
		}
		switch x.ask(ino) {
		case walkAnswered:
			answered = true // but the walk may have added it after the last look
			continue
		case walkEnded:
			if asked++; asked < asksMax {
				continue
			}
		case walkPending:
		}
		return d, unix.EAGAIN
	}
}

// Reopen implements finder.
func (*Index) Reopen(_ disk.FileID, path, flags int) (disk.Descriptor, error) {
	return disk.Reopen(path, flags)
}

// try opens a file by each of its names.
func (x *Index) try(ino uint64, file *disk.FileID, flags int) (disk.Descriptor, error) {
	result := errUnknown
	for nth := 0; nth < namesMax; nth++ {
		d, err := x.byName(ino, nth)
		if errors.Is(err, errUnknown) {
			return disk.Descriptor{}, result
		}
		if err == nil {
			err = x.volume.Verify(d.FD(), ino, file)
		}
		if err == nil && flags&unix.O_PATH != 0 {
			return d, nil
		}
		if err == nil { // only now it is known to be no fifo in the file's place
			path := d
			d, err = disk.Reopen(path.FD(), flags)
			path.Close()
			return d, err
		}
		d.Close()
		if !errors.Is(err, errMoved) {
			return disk.Descriptor{}, err
		}
		result = errMoved
		if ino == x.volume.rootIno {
			break
		}
	}
	return disk.Descriptor{}, result
}

// namesMax is more than the index has of one file.
const namesMax = 32

// Verify reports with errMoved or errReplaced that an open file is not the one meant.
func (v *Volume) Verify(fd int, ino uint64, file *disk.FileID) error {
	var empty byte
	var st unix.Statx_t
	if err := disk.Statx(fd, &empty, unix.AT_EMPTY_PATH, unix.STATX_TYPE|unix.STATX_INO|unix.STATX_BTIME, &st); err != nil {
		return err
	}
	switch {
	case v.FS.Number(disk.InodeOfStatx(&st)) != ino || !v.Holds(&st):
		return errMoved
	case file.ByInode():
		if st.Mask&unix.STATX_BTIME != 0 && disk.InodeID(ino, &st) == *file {
			return nil
		}
	default:
		if id, err := (disk.ByHandle{}).Identify(fd, nil); err == nil && id == *file {
			return nil
		}
	}
	if v.FS.Overlay { // whose layers may have the same numbers
		return errMoved
	}
	return errReplaced
}

const (
	pathMax = unix.PathMax
	// pathsMax bounds the system calls to open a path that is longer than the kernel takes at once.
	pathsMax = 256
)

// byName opens a file by its nth name, from the volume's root, with O_PATH. The error is errUnknown if
// the index does not have that name, and errMoved if nothing is there.
func (x *Index) byName(ino uint64, nth int) (disk.Descriptor, error) {
	return x.below(ino, nth, pathsMax)
}

// below is byName with so many paths at most, one below the other.
func (x *Index) below(ino uint64, nth, paths int) (d disk.Descriptor, err error) {
	var path [pathMax]byte // its end is the path, and a 0
	var buf [256]byte
	at := len(path) - 1
	base := int(x.volume.Root.Fd())
	var upper disk.Descriptor // base, if the path is too long from the root
	defer func() { upper.Close() }()
	for root := x.volume.rootIno; ino != root; {
		parent, name, ok := x.names.Name(ino, nth, &buf)
		switch {
		case !ok && at == len(path)-1:
			return d, errUnknown
		case !ok:
			return d, errMoved
		case paths == 0: // names that lead in a circle
			return d, errMoved
		}
		if len(name)+1 > at {
			if upper, err = x.below(ino, 0, paths-1); err != nil {
				return d, errMoved
			}
			base, root = upper.FD(), ino
			continue
		}
		if at < len(path)-1 {
			at--
			path[at] = '/'
		}
		at -= len(name)
		copy(path[at:], name)
		ino, nth = parent, 0
	}
	if at == len(path)-1 {
		at--
		path[at] = '.'
	}
	how := unix.OpenHow{Flags: unix.O_PATH | unix.O_NOFOLLOW | unix.O_CLOEXEC, Resolve: disk.Within | unix.RESOLVE_NO_MAGICLINKS}
	for {
		fd, _, errno := unix.Syscall6(unix.SYS_OPENAT2, uintptr(base), uintptr(unsafe.Pointer(&path[at])),
			uintptr(unsafe.Pointer(&how)), unix.SizeofOpenHow, 0, 0)
		switch errno {
		case 0:
			return disk.Owned(int(fd)), nil
		case unix.EINTR:
		case unix.ENOENT, unix.ENOTDIR, unix.ELOOP, unix.EXDEV:
			return d, errMoved
		default:
			return d, errno
		}
	}
}

// The index of a volume, if it has one, is told of each name that a client's call sees or changes.

// Observation is from before a name was seen.
type Observation struct {
	index    *Index // nil: none
	removals uint64
}

// Observe begins an Observation.
func (v *Volume) Observe() Observation {
	if v.index == nil {
		return Observation{}
	}
	return Observation{v.index, v.index.names.Removals()}
}

// Saw tells that an open directory has a name for an inode.
func (o Observation) Saw(dir int, dirIno uint64, name []byte, ino uint64, isDir bool) {
	if o.index != nil && dirIno != 0 && disk.ValidName(name) {
		o.index.learn(dir, dirIno, name, ino, isDir, o.removals)
	}
}

// NameChange is a change of names by a client's call.
type NameChange struct{ index *Index } // nil: none

// ChangeNames begins a NameChange. It must be called before the system call, and End after it: a file that is not found
// meanwhile may be on its way.
func (v *Volume) ChangeNames() NameChange {
	x := v.index
	if x != nil {
		x.renaming.Add(1)
		x.renames.Add(1)
	}
	return NameChange{x}
}

// End ends it.
func (c NameChange) End() {
	if x := c.index; x != nil {
		x.renames.Add(1)
		x.renaming.Add(-1)
	}
}

// Unlinked tells that a file does not have a name any more.
func (c NameChange) Unlinked(dirIno uint64, name string, file *disk.FileID) {
	if x := c.index; x != nil && !file.IsZero() {
		x.names.Remove(x.volume.FS.NumberIn(file), dirIno, []byte(name))
	}
}

// Renamed tells that a file has a new name, in an open directory, and not the old one any more.
func (c NameChange) Renamed(fromIno uint64, name string, to int, toIno uint64, newName string, file *disk.FileID) {
	x := c.index
	if x == nil {
		return
	}
	ino := x.volume.FS.NumberIn(file)
	_, st, _ := x.look(to, newName)
	if ino == 0 || st.Ino != ino {
		x.Doubt(ino)
		return
	}
	isDir := st.Mode&unix.S_IFMT == unix.S_IFDIR
	x.names.Add(ino, toIno, []byte(newName), isDir) // first, so that it has one at any time
	x.names.Remove(ino, fromIno, []byte(name))
	if !isDir {
		return
	}
	w := &x.walks
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.walking { // it may be past the new name, and not have been at the old one
		w.moved = append(w.moved, ino)
	}
}

// ProbeIndex tests whether files of the disk at dir can be found by an index. The error is a
// *NeedsError, unless dir can't be opened.
func ProbeIndex(dir string) error {
	root, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	d := disk.Of(root)
	id, err := disk.Identify(root)
	if err != nil || d.NumberIn(&id) == 0 {
		return &disk.NeedsError{What: "files can't be told apart", Fix: "use a disk whose files have birth times, as ext4, XFS and btrfs give them", Err: errors.Join(err, disk.ErrNoFileID)}
	}
	how := unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: disk.Within | unix.RESOLVE_NO_MAGICLINKS}
	path, err := unix.Openat2(int(root.Fd()), ".", &how)
	if err != nil {
		return &disk.NeedsError{What: "the system call openat2 is not allowed", Fix: "use Linux 5.6 or later, and a seccomp profile that knows it", Err: err}
	}
	named := disk.Owned(path)
	defer named.Close()
	opened, err := disk.Reopen(path, unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return &disk.NeedsError{What: "open files can't be opened again", Fix: "mount /proc, and let podnas's user read the disk", Err: err}
	}
	opened.Close()
	return nil
}

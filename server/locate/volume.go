package locate

import (
	"fmt"
	"os"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/podnas/podnas/server/disk"
)

// Calls are the calls in a volume. The volume does not end before they do.
type Calls interface {
	// Begin begins a call, which Done ends. It returns false after the end of the export.
	Begin() bool
	Done()
	// Ending returns a channel that is closed when no call may begin any more.
	Ending() <-chan struct{}
}

// Config is a volume whose files are found.
type Config struct {
	ID   uint64
	Path string // for people
	Root *os.File
	FS   *disk.FS
	// OnDemand is whether its index, if it has one, is empty unless it is used: it gets the names that calls see, is filled when
	// a call asks for a file that it does not have, and forgets all of them in DropUnused.
	OnDemand bool
}

// Volume finds the files of one volume.
type Volume struct {
	Config
	calls   Calls
	indexes *Indexes

	form    Form
	finder  finder
	index   *Index // the finder, or nil: it is not the index
	rootID  disk.FileID
	rootIno uint64
	mount   uint64 // the root's, and so of all that is opened by handle; 0 before Linux 5.8
	births  bool   // the disk has the times of birth

	aboveRoot atomic.Pointer[above]
	climbing  sync.Mutex // held while walking up many levels, see Inside.Find
}

// SetUp sets what the volume is, and how its files are identified and found. recorded is what its record says of that,
// empty for the form of a new volume, and byIndex is whether the process may open none by the kernel's handles. Call it once, before
// all else.
func (v *Volume) SetUp(calls Calls, of Config, indexes *Indexes, recorded Form, byIndex bool) error {
	v.calls, v.Config, v.indexes = calls, of, indexes
	v.statRoot()
	if err := v.setForm(recorded, byIndex); err != nil {
		return err
	}
	var err error
	if v.rootID, err = v.finder.Identify(int(v.Root.Fd()), nil); err != nil {
		v.Close()
	}
	return err
}

// Fill begins to fill the index, if there is one.
func (v *Volume) Fill() {
	if v.index != nil {
		v.index.fill()
	}
}

// Close gives back the memory of the index, when no call is left.
func (v *Volume) Close() {
	if v.index != nil {
		v.index.names.Close()
	}
}

func (v *Volume) hasEnded() bool {
	select {
	case <-v.calls.Ending():
		return true
	default:
		return false
	}
}

// statRoot sets what is known of the volume's root.
func (v *Volume) statRoot() {
	var empty byte
	var st unix.Statx_t
	if err := disk.Statx(int(v.Root.Fd()), &empty, unix.AT_EMPTY_PATH, unix.STATX_INO|unix.STATX_MNT_ID|unix.STATX_BTIME, &st); err != nil {
		return
	}
	v.FS.Device, v.rootIno = disk.InodeOfStatx(&st).Device, st.Ino
	v.births = st.Mask&unix.STATX_BTIME != 0
	if st.Mask&unix.STATX_MNT_ID != 0 {
		v.mount = st.Mnt_id
	}
}

// Form returns the form of the volume's handles.
func (v *Volume) Form() Form { return v.form }

// IsByIndex reports whether the volume's files are found by an index.
func (v *Volume) IsByIndex() bool { return v.index != nil }

// RootID returns the FileID of the volume's root.
func (v *Volume) RootID() *disk.FileID { return &v.rootID }

// IsRoot reports whether the attributes are of the volume's root directory.
func (v *Volume) IsRoot(a *disk.Attr) bool { return a.Ino == v.rootIno && a.Device == v.FS.Device }

// Mount returns the mount that all of the volume is on, 0 if the kernel does not tell it.
func (v *Volume) Mount() uint64 { return v.mount }

// HasBirths reports whether the disk has times of birth.
func (v *Volume) HasBirths() bool { return v.births }

// Index returns the volume's index, nil if it has none.
func (v *Volume) Index() *Index { return v.index }

// Identify returns the FileID of a name in a directory, or of the directory itself if the name is empty.
func (v *Volume) Identify(dir int, name []byte) (disk.FileID, error) {
	return v.finder.Identify(dir, name)
}

// Open opens a file, with flags for open(2). The error is ESTALE if it is gone, and EAGAIN if that is not known yet.
func (v *Volume) Open(id disk.FileID, flags int) (disk.Descriptor, error) {
	return v.finder.Open(id, flags)
}

// Reopen opens a file that is open with O_PATH.
func (v *Volume) Reopen(id disk.FileID, path, flags int) (disk.Descriptor, error) {
	return v.finder.Reopen(id, path, flags)
}

// Form says how the handles of a volume identify a file. It is fixed when a volume is made, and the volume's record has
// it: Linux takes two handles of one file for two files, each with pages of its own, and with the opens and locks of
// both under one open owner. A process with other rights than the one that made the volume finds the same files by the
// same handles, in another way. No file is found by a handle of another form.
type Form string

const (
	// FormKernel is the kernel's handle. Without the right to open files by it, the index finds the inode's number that
	// is in it, and what was opened is compared with the whole handle, for which name_to_handle_at(2) needs no right.
	FormKernel Form = "kernel"
	// FormInode is the inode's number and its time of birth. Only the index finds a file by it.
	FormInode Form = "inode"
)

// Forms returns the form for new volumes on the disk at dir, and that for volumes whose records have none.
//
// New ones get the kernel's handles where this process may open files by them, which byIndex denies, but only if a later process without
// that right can find the inode's number in them. A record without a form is one of a podnas that gave out the kernel's handles alone.
func Forms(dir string, byIndex bool) (fresh, earlier Form, err error) {
	root, err := os.Open(dir)
	if err != nil {
		return "", "", err
	}
	defer root.Close()
	d := disk.Of(root)
	return formOf(&d, root, !byIndex), formOf(&d, root, true), nil
}

// formOf returns the form for files of the disk that root is on. kernel is whether that may be the kernel's handles where
// there is another.
func formOf(d *disk.FS, root *os.File, kernel bool) Form {
	id, err := disk.ByInode{FS: d}.Identify(int(root.Fd()), nil)
	if err != nil || !id.ByInode() || kernel && hasNumber(d, root) {
		return FormKernel
	}
	return FormInode
}

// hasNumber reports whether the kernel tells the handle of an open file, in which the inode's number is found.
func hasNumber(d *disk.FS, f *os.File) bool {
	id, err := disk.ByHandle{}.Identify(int(f.Fd()), nil)
	if err != nil {
		return false
	}
	var st unix.Stat_t
	return unix.Fstat(int(f.Fd()), &st) == nil && d.NumberIn(&id) == st.Ino
}

// setForm sets how files of the volume are identified and found. recorded is what its record says; empty: the form of
// a new volume. If the disk, or what the process is allowed, has no handles of that form, the volume has the other one, and
// no file is found by the handles that clients have: to serve it even so is better than not to.
func (v *Volume) setForm(recorded Form, byIndex bool) error {
	kernel := recorded == FormKernel || recorded == "" && !byIndex
	v.form = formOf(v.FS, v.Root, kernel)
	switch {
	case recorded != "" && recorded != FormKernel && recorded != FormInode:
		return fmt.Errorf("its handles have the form %q, which this podnas does not know", recorded)
	case recorded == FormKernel && v.form != recorded:
		v.indexes.log.Warn("nfs: the kernel's handles of a volume's files can't be read here: clients get other handles, and those that have it mounted must mount it again",
			"volume", v.Path, "fix", "let the container's seccomp profile allow name_to_handle_at, and use the disk that the volume was made on")
	}
	v.finder = disk.ByHandle{Root: v.Root}
	if byIndex || v.form == FormInode {
		v.index = newIndex(v)
		v.finder = v.index
	}
	return nil
}

// finder finds the files of a volume by their FileIDs, which stay the same when names change.
// Its methods may be called concurrently, as root.
type finder interface {
	// Identify returns the FileID of a name in a directory, or of the directory itself if the
	// name is empty. It does not follow a symbolic link.
	Identify(dir int, name []byte) (disk.FileID, error)
	// Open opens a file, with flags for open(2). The error is ESTALE if it is gone, and EAGAIN if
	// that is not known yet.
	Open(file disk.FileID, flags int) (disk.Descriptor, error)
	// Reopen opens a file that is open with O_PATH.
	Reopen(file disk.FileID, path int, flags int) (disk.Descriptor, error)
}

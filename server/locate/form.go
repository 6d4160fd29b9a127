package locate

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"

	"github.com/podnas/podnas/server/disk"
)

// Form says how the handles of a volume identify a file. It is fixed when a volume is made, and the volume's record has
// it: Linux takes two handles of one file for two files, each with pages of its own, and with the opens and locks of
// both under one open owner. A process with other rights than the one that made the volume finds the same files by the
// same handles, in another way.
//
// Handles of the other form exist where an earlier podnas served the volume, which recorded no form and gave out what
// its rights allowed. Volume.Own translates them at each use: the index opens the file, and that tells its FileID of the
// volume's own form, which is the only one that caches, open files and locks know. That takes some system calls for each
// call, and no memory: such handles go with the mounts from that time.
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
// New ones get the kernel's handles where this process may open files by them, but only if a later process without that
// right can find the inode's number in them. The others get the form of their clients' handles, as far as that is known.
// removed is the directory of files that were removed while they were open, which each podnas with an index has made. One without gave out the
// kernel's handles, whatever rights this process has; one with gave out what this process would.
func Forms(byIndex bool, dir, removed string) (fresh, earlier Form, err error) {
	if fresh, err = formAt(dir, !byIndex); err != nil {
		return "", "", err
	}
	if _, err := os.Lstat(removed); errors.Is(err, fs.ErrNotExist) {
		earlier, err = formAt(dir, true)
		return fresh, earlier, err
	}
	return fresh, fresh, nil
}

func formAt(dir string, kernel bool) (Form, error) {
	root, err := os.Open(dir)
	if err != nil {
		return "", err
	}
	defer root.Close()
	d := disk.Of(root)
	return formOf(&d, root, kernel), nil
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

// setForm sets how files of the volume are identified and found. recorded is what its record says, empty if it has
// none. If the disk, or what the process is allowed, has no handles of that form, the volume has the other one, in which
// no file of an earlier disk is known.
func (v *Volume) setForm(recorded Form, byIndex bool) error {
	kernel := recorded == FormKernel || recorded == "" && !byIndex
	v.form = formOf(v.FS, v.Root, kernel)
	switch {
	case recorded != "" && recorded != FormKernel && recorded != FormInode:
		return fmt.Errorf("its handles have the form %q, which this podnas does not know", recorded)
	case recorded == FormKernel && v.form != recorded:
		v.indexes.log.Warn("nfs: the kernel's handles of a volume's files can't be read here: clients get other handles, and may take files that they have open for others",
			"volume", v.Path, "fix", "let the container's seccomp profile allow name_to_handle_at, and use the disk that the volume was made on")
	}
	v.finder = disk.ByHandle{Root: v.Root}
	if v.byIndex = byIndex || v.form == FormInode; v.byIndex {
		x := newIndex(v)
		v.finder = x
		v.index.Store(x)
	}
	return nil
}

// IsOther reports whether a FileID does not have the volume's own form.
func (v *Volume) IsOther(id *disk.FileID) bool {
	return !v.rootID.IsZero() && id.ByInode() != v.rootID.ByInode()
}

// indexOnDemand returns the volume's index. Where the kernel's handles are used, the first handle of the other form
// makes it.
func (v *Volume) indexOnDemand() *Index {
	if x := v.index.Load(); x != nil {
		return x
	}
	x := newIndex(v)
	if !v.index.CompareAndSwap(nil, x) {
		x.names.Close()
		return v.index.Load()
	}
	x.fill()
	return x
}

// Own returns the FileID of the volume's own form for that of a handle of the other one. It may block. The error is ESTALE
// if there is no such file, and EAGAIN if that is not known yet.
func (v *Volume) Own(id disk.FileID) (disk.FileID, error) {
	d, err := v.indexOnDemand().Open(id, disk.PathOnly)
	if err != nil {
		return disk.FileID{}, err
	}
	defer d.Close()
	return v.finder.Identify(d.FD(), nil)
}

package locate

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/podnas/podnas/server/disk"
)

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

// FormOfNew returns the form for new volumes on the disk at dir: the kernel's handles where this process may open files by
// them, which byIndex denies, but only if a later process without that right can find the inode's number in them.
func FormOfNew(dir string, byIndex bool) (Form, error) {
	root, err := os.Open(dir)
	if err != nil {
		return "", err
	}
	defer root.Close()
	d := disk.Of(root)
	return formOf(&d, root, !byIndex), nil
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

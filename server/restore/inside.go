package restore

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"

	"github.com/podnas/podnas/internal/tree"
	"github.com/podnas/podnas/server/inode"
)

// errOther is why a volume is not restored in place that has a subvolume of btrfs, or a mount, inside: no snapshot has its files,
// so a restore would delete them for good.
var errOther = errors.New("it is a subvolume, or something is mounted there, and no snapshot has what is in it, which a restore in place " +
	"would delete: move it out of the volume, or unmount it, before, or have the snapshot as a new volume by 'podnas volume copy'")

// findOthers returns errOther if something in a volume is on another disk, or is another subvolume. Directories that the process may not
// read are left to run.mustBeSame.
func findOthers(ctx context.Context, root *os.File) error {
	top, err := tree.Stat(int(root.Fd()))
	if err != nil {
		return err
	}
	var pacer tree.Pacer
	unreadable := func(err error) error {
		if errors.Is(err, syscall.EACCES) {
			return nil
		}
		return err
	}
	w := tree.Walker{Unreadable: func(_ string, err error) error { return unreadable(err) }}
	w.Name = func(dir *os.File, name string) (enter bool, err error) {
		st, err := tree.StatIn(int(dir.Fd()), name)
		switch {
		case errors.Is(err, syscall.ENOENT):
			return false, nil
		case err != nil:
			return false, unreadable(err)
		case st.IsDir() && !st.IsOn(&top), st.IsMounted():
			return false, fmt.Errorf("%q: %w", "/"+w.Path(name), errOther)
		}
		return st.IsDir(), pacer.Pause(ctx)
	}
	return w.Run(root)
}

// mustBeSame returns errOther for a directory of another subvolume, which is there only since findOthers has looked, or in a
// directory that the process may not read.
func (r *run) mustBeSame(d *inode.File) error {
	if d.Attr.Device != r.to.FS.Device {
		return errOther
	}
	return nil
}

package shareddisk

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"

	"github.com/podnas/podnas/internal/volume/xfs"
)

// overlay is where what a pod needs is.
const overlay = "deploy/overlays/ha"

// release implements target.
func (d *device) release() error {
	if err := xfs.DetachLeft(d.file, d.mountPoint); err != nil {
		return err
	}
	return d.unused()
}

// mount mounts the file system, which it makes if there is none, and makes it as large as the disk allows.
func (d *Disk) mount(ctx context.Context) (err error) {
	if d.c.self.Making { // nobody but this goroutine changes it
		if err := d.make(ctx); err != nil {
			return err
		}
	}
	if d.root, err = xfs.Mount(ctx, d.device.path, d.device.mountPoint, "prjquota", repair(d.cfg.Device, d.cfg.Name), overlay); err != nil {
		return err
	}
	if err := d.grow(); err != nil {
		return err
	}
	d.cfg.Log.Info("shared disk: mounted", "disk", d.cfg.Device, "at", d.device.mountPoint)
	return nil
}

// repair says how to mend the file system, of which a process has had the disk last. Its reservation stays: the storage refuses the writes
// of all other nodes.
func repair(device, last string) string {
	return fmt.Sprintf("stop all podnas, copy the disk if you can, then run xfs_repair %s on the node of %s, which had the disk last: the storage lets no other node write (in a cluster deploy/components/ha/repair.yaml does it)", device, last)
}

// make makes the file system. The beat says so meanwhile: if this process dies, the next one begins anew.
func (d *Disk) make(ctx context.Context) error {
	mkfs, err := exec.LookPath("mkfs.xfs")
	if err != nil {
		return fmt.Errorf("making a file system on it needs the program mkfs.xfs: install xfsprogs (in a cluster: the image of %s): %w", overlay, err)
	}
	size, err := d.device.room()
	if err != nil {
		return err
	}
	d.cfg.Log.Info("shared disk: it is empty, making a file system", "disk", d.cfg.Device, "bytes", size)
	// Without -K it would discard the block of the beat, too.
	out, err := exec.CommandContext(ctx, mkfs, "-q", "-f", "-K", "-L", xfs.Label, "-d", fmt.Sprintf("size=%d", size), d.device.path).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s: %w: %s", mkfs, err, bytes.TrimSpace(out))
	}
	return d.c.move(func() error {
		super, err := d.device.superblock()
		if err == nil {
			d.device.at, d.c.self.Making = placeOf(super.Size), false
		}
		return err
	})
}

// grow makes the file system larger if the disk has become larger, and has the superblock say the size of the file system,
// by which others find the beat. Beats are made meanwhile, behind the larger one: it may take long on a slow disk.
func (d *Disk) grow() error {
	room, err := d.device.room()
	if err != nil {
		return err
	}
	due := false
	err = d.c.move(func() (err error) {
		due, err = d.moveBeat(room)
		return err
	})
	if err != nil || !due {
		return err
	}
	from, grown, err := xfs.Grow(d.root, room, mib)
	if err != nil {
		return err
	}
	if grown {
		d.cfg.Log.Info("shared disk: the file system is larger", "from", from, "bytes", room)
	}
	return xfs.WriteBack(d.root)
}

// moveBeat has the beat be behind the file system as it is to be, and reports whether the file system, or what the superblock says of it,
// is not so yet. It is for move.
func (d *Disk) moveBeat(room int64) (due bool, err error) {
	has, err := xfs.Size(d.root)
	if err != nil {
		return false, err
	}
	to := placeOf(max(room, has))
	if to == d.device.at && placeOf(has) == to { // it may have been begun by a process that has died since
		return false, nil
	}
	// The block where the beat was belongs to the larger file system: from here on none is written there. Whoever finds
	// that beat looks behind the larger one.
	if placeOf(has) == d.device.at {
		before := d.c.self
		before.Growing = true
		if err := d.device.write(&before); err != nil {
			return false, err
		}
	}
	d.device.at = to
	return true, d.device.write(&d.c.self)
}

func (d *Disk) unmount() error {
	later, err := xfs.Unmount(d.device.mountPoint)
	if later {
		d.cfg.Log.Warn("shared disk: a process has a file open in it; it is unmounted when the file is closed, and others have to take the disk over", "at", d.device.mountPoint)
	}
	return err
}

//go:build vm

package vm_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/podnas/podnas/test/faultydisk"
)

// mappedDisk is a file system with project quotas, XFS if it can fail, on the device mapper, which stalls or fails when a
// test wants it to. Nothing on it may be open over NFS by the test's own process, which starts
// dmsetup.
type mappedDisk struct {
	t    *testing.T
	dir  string // where it is mounted
	name string
	fs   string
	size int64
	// The log, which is written while the rest fails: XFS ends when it can't write that.
	logAt, logSize int64
	device         string // below
}

func newMappedDisk(t *testing.T, size int64) *mappedDisk {
	t.Helper()
	disk := newXFSImage(t, size)
	d := &mappedDisk{t: t, dir: t.TempDir(), name: fmt.Sprint("podnas-", os.Getpid()), fs: disk.fileSystem.name, size: size, device: disk.device}
	d.logAt, d.logSize = faultydisk.XFSLog(t, disk.file)
	mapDevice(t, d.name, d.table("linear"))
	d.mount()
	t.Cleanup(func() {
		if err := unix.Unmount(d.dir, 0); err != nil && !errors.Is(err, unix.EINVAL) { // it is not mounted
			t.Error(err)
		}
	})
	return d
}

// table has all but the log on this target.
func (d *mappedDisk) table(target string) string {
	var b strings.Builder
	for _, part := range []struct {
		target    string
		at, until int64
	}{{target, 0, d.logAt}, {"linear", d.logAt, d.logAt + d.logSize}, {target, d.logAt + d.logSize, d.size}} {
		fmt.Fprintf(&b, "%d %d %s", part.at/512, (part.until-part.at)/512, part.target)
		if part.target == "linear" {
			fmt.Fprintf(&b, " %s %d", d.device, part.at/512)
		}
		b.WriteByte('\n')
	}
	return b.String()
}

func (d *mappedDisk) mount() {
	d.t.Helper()
	mountDisk(d.t, "/dev/mapper/"+d.name, d.dir, d.fs, "prjquota")
}

// cut cuts the XFS off from its disk, and mounts it again: what is there then was on the disk.
func (d *mappedDisk) cut() {
	d.t.Helper()
	cutPower(d.t, d.dir)
	d.remount()
}

func (d *mappedDisk) remount() {
	d.t.Helper()
	if err := unix.Unmount(d.dir, 0); err != nil {
		d.t.Fatal(err)
	}
	d.mount()
}

// stall keeps all that is read and written waiting, resume ends that.
func (d *mappedDisk) stall() { stallDevice(d.t, d.name) }

func (d *mappedDisk) resume() { command(d.t, "dmsetup", "resume", d.name) }

// fail makes all that is read and written fail, mend ends that.
func (d *mappedDisk) fail() { d.load("error") }

func (d *mappedDisk) mend() { d.load("linear") }

func (d *mappedDisk) load(target string) { mapAnew(d.t, d.name, d.table(target)) }

// alive reports whether the XFS has survived.
func (d *mappedDisk) alive() bool {
	name := filepath.Join(d.dir, "alive")
	return errors.Join(write(name, []byte("x")), os.Remove(name)) == nil
}

// diskImage is a disk with a file system, in a file of the guest's disk on a loop device.
type diskImage struct {
	fileSystem

	file, device string
	size         int64
}

// fileSystem is one with project quotas.
type fileSystem struct {
	name string
	mkfs []string
	also string // options with which it can be mounted twice
}

var (
	asXFS  = fileSystem{"xfs", []string{"mkfs.xfs", "-q"}, ",nouuid"}
	asExt4 = fileSystem{"ext4", []string{"mkfs.ext4", "-q", "-O", "quota,project", "-E", "quotatype=prjquota,lazy_itable_init=0,lazy_journal_init=0"}, ""}
)

func newXFSImage(t *testing.T, size int64) *diskImage {
	t.Helper()
	return newImage(t, asXFS, size)
}

func newImage(t *testing.T, fs fileSystem, size int64) *diskImage {
	t.Helper()
	dir, err := os.MkdirTemp(xfs, "disk-")
	if err != nil {
		t.Fatal(err)
	}
	d := &diskImage{fileSystem: fs, file: filepath.Join(dir, "image"), size: size}
	if err := errors.Join(os.WriteFile(d.file, nil, 0o600), os.Truncate(d.file, size)); err != nil {
		t.Fatal(err)
	}
	command(t, fs.mkfs[0], append(fs.mkfs[1:], d.file)...)
	command(t, "modprobe", "loop")
	d.device = strings.TrimSpace(command(t, "losetup", "--find", "--show", d.file))
	t.Cleanup(func() { command(t, "losetup", "--detach", d.device) })
	return d
}

// mapDevice makes a device of the device mapper, until the test ends.
func mapDevice(t *testing.T, name, table string) {
	t.Helper()
	command(t, "modprobe", "dm-mod")
	command(t, "dmsetup", "create", name, "--table", table)
	t.Cleanup(func() { command(t, "dmsetup", "remove", name) })
	command(t, "dmsetup", "mknodes", name)
}

// mapAnew gives it another table. It may be stalled.
func mapAnew(t *testing.T, name, table string) {
	t.Helper()
	const reload = `dmsetup suspend --nolockfs --noflush "$0" && dmsetup load "$0" --table "$1" && dmsetup resume "$0"`
	command(t, "sh", "-c", reload, name, table)
}

// stallDevice keeps all that is read and written waiting.
func stallDevice(t *testing.T, name string) {
	t.Helper()
	command(t, "dmsetup", "suspend", "--nolockfs", "--noflush", name)
}

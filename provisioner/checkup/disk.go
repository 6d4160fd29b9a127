// Package checkup has the checks of podnas doctor. The running process runs those that
// findings.go lists: of the disk (disk.go), of the volumes (volumes.go), of the process and its
// rights on the machine (process.go), and of what it needs in the cluster (cluster.go, classes.go,
// clock.go). podnas doctor pod runs others from outside, when there is no such
// process (outside.go, pod.go, claim.go).
package checkup

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"github.com/podnas/podnas/internal/doctor"
	"github.com/podnas/podnas/internal/heartbeat"
	"github.com/podnas/podnas/internal/latest"
	"github.com/podnas/podnas/internal/statedir"
	"github.com/podnas/podnas/internal/volume"
	"github.com/podnas/podnas/internal/volume/shareddisk"
)

// Disk is the part of *volume.Store that the checks need.
type Disk interface {
	Space() (volume.Space, error)
}

// none is so little free space that it counts as none.
const none = 16 << 20

func fileSystem(root string) doctor.Result {
	m, err := doctor.FindMount(root)
	if err != nil {
		return doctor.Fail("give podnas the right to read its disk", "can't find out which file system %s is on: %v", root, err)
	}
	return judgeFileSystem(m)
}

func judgeFileSystem(m doctor.Mount) doctor.Result {
	switch {
	case m.Type == "tmpfs" || m.Type == "ramfs":
		return doctor.Warn("give podnas a disk: a claim or a directory of its node", "%s is in memory: all data is lost when it is unmounted", m)
	case m.Type == "overlay":
		return doctor.Warn("give podnas a disk, mounted at --root: a claim or a directory of its node",
			"%s is the container's own: all data is lost with the container", m)
	case m.Type == "nfs" || m.Type == "nfs4" || m.Type == "cifs" || m.Type == "9p" || m.Type == "ceph" || m.Type == "fuse" || len(m.Type) > 5 && m.Type[:5] == "fuse.":
		return doctor.Warn("use a block device with ext4 or XFS, or mount that file system in the pods, without podnas",
			"%s is not a local file system: podnas is slow on it, and data is only as safe as that file system keeps it", m)
	}
	return doctor.Good("%s", m)
}

// writable judges what the heartbeat says: why clients are not answered, or nil, and whether the disk has no room even
// for what is overwritten.
func writable(err error, full bool) doctor.Result {
	const silent = "podnas is not ready and clients get no answers, as the disk may be lost"
	var pending *latest.PendingError
	var takeover *heartbeat.TakeoverError
	switch {
	case err == nil && full:
		return doctor.Fail("give the storage below the file system more room: the thin pool, or the disk that has the image. Clients can read and delete meanwhile",
			"it has no room even for a block that is overwritten")
	case err == nil:
		return doctor.Good("it can be written to")
	case errors.As(err, &takeover):
		return doctor.Warn("nothing: it takes seconds", "%v", err)
	case errors.Is(err, shareddisk.ErrLost):
		return doctor.Warn("nothing: this podnas ends, and is the standby of the other one then", "%v: clients get their answers there", err)
	case errors.As(err, &pending):
		return doctor.Fail("find out why the disk hangs: the kernel's log (dmesg) of podnas's node, and the storage below. When the disk answers, podnas does, too",
			"%v: %s", err, silent)
	case errors.Is(err, syscall.EROFS):
		return doctor.Fail("check the kernel's log (dmesg) of podnas's node: Linux makes a file system with errors read-only. Repair it and mount it again. If it is mounted read-only on purpose, mount it writable",
			"it is read-only: %s: %v", silent, err)
	}
	return doctor.Fail("check the kernel's log (dmesg) of podnas's node, and the backing disk. A file system that has shut down must be mounted again: delete podnas's pod. Otherwise podnas goes on when the disk does",
		"it can't be written to: %s: %v", silent, err)
}

func space(d Disk) doctor.Result {
	space, err := d.Space()
	if err != nil {
		return doctor.Fail("check the kernel's log (dmesg) of podnas's node", "%v", err)
	}
	return judgeSpace(space.Free, space.Size)
}

func judgeSpace(free, capacity int64) doctor.Result {
	const fix = "remove files ('podnas volume list' shows the usage of each volume), delete archived and retained volumes ('podnas volume list --all'; 'podnas volume delete NAME --kept'), or make the disk larger"
	says := fmt.Sprintf("%s of %s are free", volume.FormatSize(free), volume.FormatSize(capacity))
	percent := volume.Percent(capacity-free, capacity)
	switch mark := volume.DiskMark(percent); {
	case free < none:
		return doctor.Fail(fix, "the disk is full, writes fail in every volume: %s", says)
	case mark == volume.FullPercent:
		return doctor.Fail(fix, "the disk is %d%% full, and when no space is left, writes fail in every volume: %s", percent, says)
	case mark == volume.DiskFillingPercent:
		return doctor.Warn(fix, "the disk is %d%% full: %s", percent, says)
	}
	return doctor.Good("%s", says)
}

func inodes(d Disk) doctor.Result {
	space, err := d.Space()
	if err != nil {
		return doctor.Fail("check the kernel's log (dmesg) of podnas's node", "%v", err)
	}
	return judgeInodes(&space)
}

func judgeInodes(space *volume.Space) doctor.Result {
	free, total := space.InodesFree, space.Inodes
	percent := volume.Percent(int64(total-free), int64(total))
	mark := volume.DiskMark(percent)
	const fix = "remove small files ('podnas volume list -o wide' counts them). The number of inodes of an ext4 can't be changed; XFS creates them while it has space"
	switch {
	case total == 0:
		return doctor.Good("the file system creates them while it has space")
	case free == 0:
		return doctor.Fail(fix, "all %d are used: no file can be created, even if there is space", total)
	case mark == volume.FullPercent:
		return doctor.Fail(fix, "%d%% of them are used: %d of %d are free", percent, free, total)
	case mark == volume.DiskFillingPercent:
		return doctor.Warn(fix, "%d%% of them are used: %d of %d are free", percent, free, total)
	case space.Overcommit != 0 && float64(space.InodesPromised) > space.Overcommit*float64(total):
		return doctor.Warn("delete volumes, or create new ones with a larger bytesPerInode. For more inodes, create the ext4 with mkfs.ext4 -i, or use XFS",
			"%d of %d are free, but the volumes together may have %d, which is more than --overcommit=%g", free, total, space.InodesPromised, space.Overcommit)
	}
	return doctor.Good("%d of %d are free; the volumes together may have %d", free, total, space.InodesPromised)
}

// aside tells of files of podnas's own that were damaged, and put aside.
func aside(root string) []doctor.Result {
	var results []doctor.Result
	state := filepath.Join(root, volume.StateDir)
	folders := []string{state}
	entries, _ := os.ReadDir(state) // other checks tell of that
	for _, e := range entries {
		if e.IsDir() {
			folders = append(folders, filepath.Join(state, e.Name()))
		}
	}
	for _, path := range statedir.Aside(folders...) {
		r := doctor.Warn("look for what may have damaged it: the disk (dmesg), a restore, a program or a person. Then remove it: rm -r "+path,
			"it can't be what podnas wrote, and was put aside: what it was for is lost, and nothing else")
		r.Check, _ = filepath.Rel(root, path) // it is below
		results = append(results, r)
	}
	return results
}

// secrets checks whether other users of the machine can read the key of the file
// handles, with which they could forge handles of every file.
func secrets(root string) doctor.Result {
	for _, path := range []string{filepath.Join(root, volume.StateDir), filepath.Join(root, volume.InstanceFile)} {
		info, err := os.Stat(path)
		if err != nil {
			return doctor.Fail("restore it from a backup: without it, mounted volumes become stale", "%v", err)
		}
		if open := info.Mode() & fs.ModePerm & 0o077; open != 0 {
			return doctor.Warn(fmt.Sprintf("chmod go= %s", path),
				"%s has mode %04o: other users of this machine can read the key of the file handles", path, info.Mode()&fs.ModePerm)
		}
	}
	return doctor.Good("only podnas can read the key of the file handles")
}

// records compares the records of the disk with its directories.
func records(store *volume.Store) []doctor.Result {
	found, err := store.Check()
	if err != nil {
		return []doctor.Result{doctor.Fail("give podnas the right to read its disk", "%v", err)}
	}
	if len(found) == 0 {
		return []doctor.Result{doctor.Good("records and directories agree")}
	}
	return findings(found)
}

// syncs reports syncs of the disk that failed since podnas was started.
func syncs(failed uint64) doctor.Result {
	if failed > 0 {
		return doctor.Fail("check the kernel's log (dmesg) of podnas's node: the disk may be broken, or the storage below it full. Restart podnas when that is repaired",
			"%d syncs have failed since podnas was started: data that clients wrote may be lost", failed)
	}
	return doctor.Good("none has failed since podnas was started")
}

// findings converts findings to results, each named after its volume.
func findings(found []volume.Finding) []doctor.Result {
	var results []doctor.Result
	for _, f := range found {
		r := doctor.Fail(f.Fix, "%s", f.Problem)
		if f.Notice {
			r.Status = doctor.Warning
		}
		if r.Check = f.Path; f.Volume != "" {
			r.Check, r.Volume = "volume "+f.Volume, f.Volume
		}
		results = append(results, r)
	}
	return results
}

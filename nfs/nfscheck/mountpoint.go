package nfscheck

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/podnas/podnas/internal/doctor"
)

// Mountpoint returns the steps that test an existing mount, for doctor.Steps. path is
// a directory in a pod or on a node.
func Mountpoint(path string) []doctor.Check {
	p := &mountpoint{path: filepath.Clean(path)}
	return []doctor.Check{
		doctor.One("mount", func(context.Context) doctor.Result { return p.mounted() }),
		doctor.One("answer", func(context.Context) doctor.Result { return p.answer() }),
		doctor.One("write", func(context.Context) doctor.Result { return p.write() }),
		{Name: "locks", Run: func(context.Context) []doctor.Result { return p.locks() }},
		doctor.One("remove", func(context.Context) doctor.Result { return p.remove() }),
	}
}

type mountpoint struct {
	path, file string
	version4   bool // it is a mount of version 4
}

// mounted reads the mount table only: any access to a mount that hangs would hang too.
func (p *mountpoint) mounted() doctor.Result {
	m, err := doctor.MountOf(p.path)
	if err != nil {
		return doctor.Fail("", "%v", err)
	}
	p.version4 = m.Has("vers=4.1") || m.Has("vers=4.2")
	return judgeMounted(p.path, m)
}

func judgeMounted(path string, m doctor.Mount) doctor.Result {
	where := fmt.Sprintf("%s on %s: %s", m.Source, m.Point, m)
	switch {
	case m.Type != "nfs" && m.Type != "nfs4":
		return doctor.Fail("use the directory where the volume is mounted (mount -t nfs lists them; in a pod it is a mountPath)", "%s is not on NFS, but on %s", path, m)
	case !m.Has("vers=3") && !m.Has("vers=4.1") && !m.Has("vers=4.2"):
		return doctor.Fail("mount with nfsvers=3, nfsvers=4.1 or nfsvers=4.2", "%s: podnas serves NFS versions 3, 4.1 and 4.2, so this is another server's", where)
	case m.Has("soft") || m.Has("softerr"):
		return doctor.Warn("mount with hard, which is the default", "%s. While podnas's pod is replaced, programs get I/O errors and writes are lost", where)
	case m.Has("vers=3") && !m.Has("nolock") && !m.Has("local_lock=all"):
		return doctor.Warn("mount with nolock", "%s. Without nolock every lock fails, because podnas does not serve NFS's lock protocol", where)
	}
	return doctor.Good("%s", where)
}

func (p *mountpoint) answer() doctor.Result {
	var st syscall.Statfs_t
	if err := syscall.Statfs(p.path, &st); err != nil {
		return p.failed("reading the free space", err)
	}
	return judgeSpace(st.Bavail*uint64(st.Bsize), st.Blocks*uint64(st.Bsize))
}

func (p *mountpoint) write() doctor.Result {
	file := filepath.Join(p.path, newName())
	f, err := os.OpenFile(file, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return p.failed("creating a file", err)
	}
	p.file = file
	_, err = f.WriteString(content)
	err = errors.Join(err, f.Sync(), f.Close())
	if err == nil {
		var data []byte
		if data, err = os.ReadFile(file); err == nil && string(data) != content {
			err = errors.New("the data read differs from the data written")
		}
	}
	if err != nil {
		_ = os.Remove(file) // the error that counts is err
		return p.failed("writing", err)
	}
	return doctor.Good("a file was created, written, synced and read back as uid %d, gid %d", os.Geteuid(), os.Getegid())
}

func (p *mountpoint) locks() []doctor.Result {
	results := []doctor.Result{
		p.lock("flock", func(f *os.File) error { return syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) }),
		p.lock("fcntl", func(f *os.File) error {
			return syscall.FcntlFlock(f.Fd(), syscall.F_SETLK, &syscall.Flock_t{Type: syscall.F_WRLCK})
		}),
	}
	if doctor.Count(results, doctor.Failed) > 0 {
		_ = os.Remove(p.file) // the step remove will not run
	}
	return results
}

func (p *mountpoint) lock(name string, take func(*os.File) error) doctor.Result {
	f, err := os.OpenFile(p.file, os.O_RDWR, 0)
	if err == nil {
		defer f.Close()
		err = take(f)
	}
	switch {
	case err != nil && p.version4:
		return doctor.Fail("podnas client list, in podnas's pod, says whether the server knows this node, and for whom it waits", "%s: %v", name, err)
	case err != nil:
		return doctor.Fail("mount with nolock: locks then work between the programs of one node", "%s: %v", name, err)
	case p.version4:
		return doctor.Good("%s works, between all nodes", name)
	}
	return doctor.Good("%s works, between programs of this node", name)
}

func (p *mountpoint) remove() doctor.Result {
	if err := os.Remove(p.file); err != nil {
		return p.failed("removing the file", err)
	}
	return doctor.Good("the file was removed")
}

// failed explains an error of a system call.
func (p *mountpoint) failed(doing string, err error) doctor.Result {
	says := fmt.Sprintf("%s: %v", doing, err)
	switch {
	case errors.Is(err, syscall.ESTALE):
		return doctor.Fail("the mounted volume, or its podnas, was removed or replaced: delete the pod, so that the volume is mounted again. podnas doctor in podnas's pod says whether the volume exists", "%s", says)
	case errors.Is(err, fs.ErrPermission):
		if info, statErr := os.Stat(p.path); statErr == nil {
			if st, ok := info.Sys().(*syscall.Stat_t); ok {
				says += fmt.Sprintf("; the directory belongs to %d:%d and has mode %04o, you are uid %d, gid %d", st.Uid, st.Gid, st.Mode&0o7777, os.Geteuid(), os.Getegid())
			}
		}
		return doctor.Fail("run the pod as a user that may write (securityContext.runAsUser, supplementalGroups), or chmod the directory as root; for new volumes set the class's gid or mode", "%s", says)
	case errors.Is(err, syscall.EROFS):
		return doctor.Fail("remove ro from the mount options, or readOnly from the PersistentVolume, the pod's volume or, for new volumes, the class", "%s", says)
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return doctor.Fail("remove files, or raise the claim's request (its class needs allowVolumeExpansion)", "%s: the volume, or the whole disk, is full", says)
	}
	return doctor.Fail("podnas doctor in podnas's pod, and the kernel's log (dmesg) here, may say why", "%s", strings.TrimSpace(says))
}

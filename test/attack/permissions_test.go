//go:build attack

package attack_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/podnas/podnas/nfs/nfs3"
	"github.com/podnas/podnas/test/conformance/nfstest"
)

// The server has the kernel decide who may do what. Here a random user does a random
// thing to a random file, over NFS and, to a twin of it, on the disk: both must come to
// the same, in what was allowed and in what is on the disk afterwards.

var permissionAttacks = []attack{
	{
		name:  "permissions at random",
		does:  "random users do random things to files and directories of random owners, modes and ACLs, over NFS and locally",
		holds: "nothing is allowed that a local user may not do, nor refused that one may; but owners may read and write",
		on:    func(s setup) bool { return s.engine == "native" },
		also:  kinds{xfs, race},
		run: func(a *assault) {
			a.volume("prey", "64Mi")
			c, root := a.client("prey")
			granted, refused := 0, 0
			until := time.Now().Add(2 * a.window)
			for i := 0; i < 1500*a.factor*a.factor && time.Now().Before(until); i++ {
				p := newCase(a.rng, allOps[a.rng.IntN(len(allOps))])
				for _, twin := range []string{"nfs", "local"} {
					p.build(a, a.path("prey", twin))
					p.protect(a, a.path("prey", twin))
				}
				over := p.overNFS(a, c, root)
				local := p.locally(a, a.path("prey", "local"))
				was := p.String()
				overState, localState := state(a.T, a.path("prey", "nfs")), state(a.T, a.path("prey", "local"))
				switch {
				case over == local && overState == localState:
				case over && !local && p.ownersRight():
				default:
					a.Errorf("case %d, %s:\nover NFS %v:\n%slocally %v:\n%s", i, was, over, overState, local, localState)
				}
				if over {
					granted++
				} else {
					refused++
				}
				must(a, errors.Join(os.RemoveAll(a.path("prey", "nfs")), os.RemoveAll(a.path("prey", "local"))))
				if a.Failed() && i > 20 {
					return
				}
			}
			a.note("%d cases allowed, %d refused", granted, refused)
		},
	},
}

// aclEntry is one of a POSIX ACL. Tags are those of the kernel's xattr.
type aclEntry struct {
	tag  uint16
	perm uint16
	id   uint32
}

const (
	aclUserObj  = 0x01
	aclUser     = 0x02
	aclGroupObj = 0x04
	aclGroup    = 0x08
	aclMask     = 0x10
	aclOther    = 0x20
)

func encodeACL(entries []aclEntry) []byte {
	b := binary.LittleEndian.AppendUint32(nil, 2)
	for _, e := range entries {
		b = binary.LittleEndian.AppendUint16(b, e.tag)
		b = binary.LittleEndian.AppendUint16(b, e.perm)
		b = binary.LittleEndian.AppendUint32(b, e.id)
	}
	return b
}

// object is who owns what, and what it lets whom do.
type object struct {
	mode, uid, gid uint32
	acl, inherited []aclEntry
}

// permissionCase is who does what to what: dir has file, sub (empty) and link in it.
type permissionCase struct {
	uid, gid       uint32
	groups         []uint32
	op             string
	target         string // of the operation: file, sub, or "" for dir itself
	arg            uint32
	dir, file, sub object
	other          object // another directory, to rename and link to
}

var (
	someIDs = []uint32{0, 1000, 1001, 1002, 2000, 2001}
	allOps  = []string{
		"read", "write", "truncate", "chmod", "chown", "chgrp", "touch", "set times", "create", "mkdir", "symlink", "mkfifo", "mknod", "remove", "rmdir",
		"rename", "rename over", "rename out", "link", "list", "lookup", "access",
	}
)

func newCase(rng *rand.Rand, op string) *permissionCase {
	id := func() uint32 { return someIDs[rng.IntN(len(someIDs))] }
	p := &permissionCase{uid: id(), gid: id(), op: op, arg: rng.Uint32()}
	if rng.IntN(12) == 0 {
		p.uid = 0xffffffff
	}
	for range rng.IntN(4) {
		p.groups = append(p.groups, id())
	}
	random := func(dir bool) object {
		o := object{mode: rng.Uint32N(0o10000), uid: id(), gid: id()}
		if rng.IntN(3) == 0 {
			o.mode |= 0o770
		}
		acl := func() []aclEntry {
			perm := func() uint16 { return uint16(rng.UintN(8)) }
			user, group := 1+rng.Uint32N(1002), id()
			user = []uint32{1000, 1001, 1002, user}[rng.IntN(4)]
			const none = 0xffffffff
			return []aclEntry{{aclUserObj, perm(), none}, {aclUser, perm(), user}, {aclGroupObj, perm(), none}, {aclGroup, perm(), group}, {aclMask, perm(), none}, {aclOther, perm(), none}}
		}
		if rng.IntN(3) == 0 {
			o.acl = acl()
		}
		if dir && rng.IntN(4) == 0 {
			o.inherited = acl()
		}
		return o
	}
	p.dir, p.file, p.sub, p.other = random(true), random(false), random(true), random(true)
	switch p.op {
	case "chmod", "chown", "chgrp", "touch", "set times", "access":
		p.target = []string{"file", "sub"}[rng.IntN(2)]
	case "read", "write", "truncate", "link", "remove":
		p.target = "file"
	}
	return p
}

func (p *permissionCase) String() string {
	return fmt.Sprintf("%s %s (%d) by %d:%d %v; dir %+v, file %+v, sub %+v, other %+v", p.op, p.target, p.arg, p.uid, p.gid, p.groups, p.dir, p.file, p.sub, p.other)
}

// ownersRight: an NFS server sees no opens, so the owner of a file may always use its
// data (RFC 1813 section 4.4). What he may do then, ACCESS tells.
func (p *permissionCase) ownersRight() bool {
	return p.uid == p.file.uid && slices.Contains([]string{"read", "write", "truncate"}, p.op)
}

// build makes what the case is about, for everybody.
func (p *permissionCase) build(a *assault, at string) {
	a.Helper()
	dir, other := filepath.Join(at, "dir"), filepath.Join(at, "other")
	must(a, errors.Join(os.MkdirAll(filepath.Join(dir, "sub"), 0o777), os.Mkdir(other, 0o777),
		os.WriteFile(filepath.Join(dir, "file"), []byte("content"), 0o666), os.WriteFile(filepath.Join(dir, "over"), nil, 0o666)))
}

// protect gives it the owners and modes of the case.
func (p *permissionCase) protect(a *assault, at string) {
	a.Helper()
	var err error
	for _, made := range []struct {
		name string
		object
	}{{"dir/file", p.file}, {"dir/over", p.file}, {"dir/sub", p.sub}, {"other", p.other}, {"dir", p.dir}} {
		name := filepath.Join(at, made.name)
		err = errors.Join(err, os.Lchown(name, int(made.uid), int(made.gid)), unix.Chmod(name, made.mode))
		if made.acl != nil {
			err = errors.Join(err, unix.Setxattr(name, "system.posix_acl_access", encodeACL(made.acl), 0))
		}
		if made.inherited != nil {
			err = errors.Join(err, unix.Setxattr(name, "system.posix_acl_default", encodeACL(made.inherited), 0))
		}
	}
	must(a, err)
}

// overNFS makes the case's call, and tells whether it was allowed.
func (p *permissionCase) overNFS(a *assault, c *nfstest.Client, root nfs3.FH) bool {
	a.Helper()
	find := func(dir nfs3.FH, name string) nfs3.FH {
		res, err := c.Lookup(a.ctx, dir, name)
		ok(a, "LOOKUP "+name, res.Status, err)
		return res.Object
	}
	top := find(root, "nfs")
	dir, other := find(top, "dir"), find(top, "other")
	file := find(dir, "file")
	target := file
	if p.target == "sub" {
		target = find(dir, "sub")
	}
	c = c.As(p.uid, p.gid, p.groups...)
	set := func(attr nfs3.Sattr) (nfs3.Status, error) {
		res, err := c.Setattr(a.ctx, nfs3.SetattrArgs{Object: target, Attr: attr})
		return res.Status, err
	}
	value := func(n uint32) nfs3.SetUint32 { return nfs3.SetUint32{Set: true, Value: n} }
	var status nfs3.Status
	var err error
	switch p.op {
	case "read":
		var res nfs3.ReadRes
		res, err = c.Read(a.ctx, file, 0, 10)
		status = res.Status
	case "write":
		var res nfs3.WriteRes
		res, err = c.Write(a.ctx, file, 0, nfs3.Unstable, []byte("other"))
		status = res.Status
	case "truncate":
		status, err = set(size(3))
	case "chmod":
		status, err = set(mode(p.arg & 0o7777))
	case "chown":
		status, err = set(nfs3.Sattr{UID: value(someIDs[p.arg%6])})
	case "chgrp":
		status, err = set(nfs3.Sattr{GID: value(someIDs[p.arg%6])})
	case "touch":
		status, err = set(nfs3.Sattr{Mtime: nfs3.SetTime{How: nfs3.SetToServerTime}, Atime: nfs3.SetTime{How: nfs3.SetToServerTime}})
	case "set times":
		at := nfs3.SetTime{How: nfs3.SetToClientTime, Time: nfs3.Time{Sec: 1_000_000}}
		status, err = set(nfs3.Sattr{Mtime: at, Atime: at})
	case "create":
		var res nfs3.CreateRes
		res, err = c.Create(a.ctx, nfs3.CreateArgs{Where: where(dir, "new"), Attr: mode(0o666)})
		status = res.Status
	case "mkdir":
		var res nfs3.MkdirRes
		res, err = c.Mkdir(a.ctx, dir, "new", mode(0o777))
		status = res.Status
	case "symlink":
		var res nfs3.SymlinkRes
		res, err = c.Symlink(a.ctx, dir, "new", "target")
		status = res.Status
	case "mkfifo", "mknod":
		args := nfs3.MknodArgs{Where: where(dir, "new"), Type: nfs3.TypeFIFO, Attr: mode(0o666)}
		if p.op == "mknod" {
			args.Type, args.Spec = nfs3.TypeChr, nfs3.SpecData{Major: 1, Minor: 3}
		}
		var res nfs3.MknodRes
		res, err = c.Mknod(a.ctx, args)
		status = res.Status
	case "remove":
		var res nfs3.RemoveRes
		res, err = c.Remove(a.ctx, dir, "file")
		status = res.Status
	case "rmdir":
		var res nfs3.RmdirRes
		res, err = c.Rmdir(a.ctx, dir, "sub")
		status = res.Status
	case "rename", "rename over", "rename out":
		to, name := dir, "renamed"
		switch p.op {
		case "rename over":
			name = "over"
		case "rename out":
			to = other
		}
		var res nfs3.RenameRes
		res, err = c.Rename(a.ctx, dir, "file", to, name)
		status = res.Status
	case "link":
		var res nfs3.LinkRes
		res, err = c.Link(a.ctx, file, other, "linked")
		status = res.Status
	case "list":
		var res nfs3.ReaddirRes
		res, err = c.Readdir(a.ctx, nfs3.ReaddirArgs{Dir: dir, Count: 4096})
		status = res.Status
	case "lookup":
		var res nfs3.LookupRes
		res, err = c.Lookup(a.ctx, dir, "file")
		status = res.Status
	case "access":
		bit := []uint32{nfs3.AccessRead, nfs3.AccessModify, nfs3.AccessExecute, nfs3.AccessLookup}[p.arg%4]
		var res nfs3.AccessRes
		res, err = c.Access(a.ctx, target, bit)
		status = res.Status
		if status == nfs3.OK && res.Access&bit == 0 {
			status = nfs3.ErrAcces
		}
	}
	must(a, err)
	return status == nfs3.OK
}

// locally does the same as a process of that user would to a file that it was handed.
func (p *permissionCase) locally(a *assault, at string) bool {
	a.Helper()
	open := func(name string) int {
		fd, err := unix.Open(filepath.Join(at, name), unix.O_PATH, 0)
		must(a, err)
		return fd
	}
	dir, other, file := open("dir"), open("other"), open("dir/file")
	defer unix.Close(dir)
	defer unix.Close(other)
	defer unix.Close(file)
	target := file
	if p.target == "sub" {
		target = open("dir/sub")
		defer unix.Close(target)
	}
	uid, gid, groups := p.uid, p.gid, p.groups
	if uid == 0xffffffff { // the anonymous user
		uid, gid, groups = 65534, 65534, nil
	}
	var err error
	actAs(a.T, uid, gid, groups, func() { err = p.act(dir, other, target) })
	if errors.Is(err, errProtected) {
		err = p.act(dir, other, target)
	}
	return err == nil
}

// errProtected means that nothing but fs.protected_hardlinks, proc_sys_fs(5), keeps a user from linking a file. It is for those
// who are on the machine: a server asks for the rights to the directory alone.
var errProtected = errors.New("the file is protected from links")

// act is what the user does; descriptors carry no right but to name what they are of.
func (p *permissionCase) act(dir, other, target int) error {
	path := fmt.Sprintf("/proc/self/fd/%d", target)
	use := func(flags int, do func(fd int) error) error {
		fd, err := unix.Open(path, flags|unix.O_CLOEXEC, 0)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		return do(fd)
	}
	switch p.op {
	case "read":
		err := use(unix.O_RDONLY, func(fd int) error { _, err := unix.Read(fd, make([]byte, 10)); return err })
		if errors.Is(err, unix.EACCES) {
			// A client reads what it runs, so who may run a file may read it: RFC 1813
			// section 4.4.
			err = unix.Faccessat2(target, "", unix.X_OK, unix.AT_EMPTY_PATH|unix.AT_EACCESS)
		}
		return err
	case "write":
		return use(unix.O_WRONLY, func(fd int) error { _, err := unix.Write(fd, []byte("other")); return err })
	case "truncate":
		return unix.Truncate(path, 3)
	case "chmod":
		return unix.Chmod(path, p.arg&0o7777)
	case "chown":
		return unix.Chown(path, int(someIDs[p.arg%6]), -1)
	case "chgrp":
		return unix.Chown(path, -1, int(someIDs[p.arg%6]))
	case "touch":
		now := unix.Timespec{Nsec: unix.UTIME_NOW}
		return unix.UtimesNanoAt(unix.AT_FDCWD, path, []unix.Timespec{now, now}, 0)
	case "set times":
		at := unix.Timespec{Sec: 1_000_000}
		return unix.UtimesNanoAt(unix.AT_FDCWD, path, []unix.Timespec{at, at}, 0)
	case "create":
		fd, err := unix.Openat(dir, "new", unix.O_CREAT|unix.O_EXCL|unix.O_WRONLY, 0o666)
		if err == nil {
			unix.Close(fd)
		}
		return err
	case "mkdir":
		return unix.Mkdirat(dir, "new", 0o777)
	case "symlink":
		return unix.Symlinkat("target", dir, "new")
	case "mkfifo":
		return unix.Mkfifoat(dir, "new", 0o666)
	case "mknod":
		return unix.Mknodat(dir, "new", unix.S_IFCHR|0o666, int(unix.Mkdev(1, 3)))
	case "remove":
		return unix.Unlinkat(dir, "file", 0)
	case "rmdir":
		return unix.Unlinkat(dir, "sub", unix.AT_REMOVEDIR)
	case "rename":
		return unix.Renameat(dir, "file", dir, "renamed")
	case "rename over":
		return unix.Renameat(dir, "file", dir, "over")
	case "rename out":
		return unix.Renameat(dir, "file", other, "renamed")
	case "link":
		err := unix.Linkat(unix.AT_FDCWD, path, other, "linked", unix.AT_SYMLINK_FOLLOW)
		if errors.Is(err, unix.EPERM) && unix.Faccessat2(other, "", unix.W_OK|unix.X_OK, unix.AT_EMPTY_PATH|unix.AT_EACCESS) == nil {
			return errProtected
		}
		return err
	case "list":
		fd, err := unix.Openat(dir, ".", unix.O_RDONLY|unix.O_DIRECTORY, 0)
		if err != nil {
			// To name the directory as "." asks for the right to pass through it.
			if fd, err = unix.Open(fmt.Sprintf("/proc/self/fd/%d", dir), unix.O_RDONLY|unix.O_DIRECTORY, 0); err != nil {
				return err
			}
		}
		return unix.Close(fd)
	case "lookup":
		var st unix.Stat_t
		return unix.Fstatat(dir, "file", &st, unix.AT_SYMLINK_NOFOLLOW)
	case "access":
		// In the order of the bits that overNFS asks for. EXECUTE is of files, LOOKUP of
		// directories.
		how := []uint32{unix.R_OK, unix.W_OK, unix.X_OK, unix.X_OK}[p.arg%4]
		if dir := p.target == "sub"; p.arg%4 == 2 && dir || p.arg%4 == 3 && !dir {
			return unix.EACCES
		} else if dir && how == unix.W_OK {
			how |= unix.X_OK // nothing can be changed in a directory that can't be passed
		}
		return unix.Faccessat2(target, "", how, unix.AT_EMPTY_PATH|unix.AT_EACCESS)
	}
	return unix.ENOSYS
}

// actAs has do run on a thread that is that user, and no more root in any way but that
// it can become it again.
func actAs(t *testing.T, uid, gid uint32, groups []uint32, do func()) {
	t.Helper()
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // for good: the thread ends with the goroutine
		unix.Umask(0)
		list := append(slices.Clone(groups), 0) // never empty, so that it has an address
		var err error
		for _, call := range [][4]uintptr{
			{unix.SYS_SETGROUPS, uintptr(len(groups)), uintptr(unsafe.Pointer(&list[0])), 0},
			{unix.SYS_SETRESGID, uintptr(gid), uintptr(gid), uintptr(gid)},
			{unix.SYS_SETRESUID, uintptr(uid), uintptr(uid), uintptr(uid)},
		} {
			if _, _, errno := syscall.RawSyscall(call[0], call[1], call[2], call[3]); errno != 0 {
				err = errors.Join(err, errno)
			}
		}
		runtime.KeepAlive(list)
		if err == nil {
			do()
		}
		done <- err
	}()
	must(t, <-done)
}

// state is what is on the disk: names, modes, owners, sizes.
func state(t *testing.T, dir string) string {
	t.Helper()
	var b strings.Builder
	for _, name := range []string{"dir", "dir/file", "dir/over", "dir/sub", "dir/new", "dir/renamed", "other", "other/renamed", "other/linked"} {
		var st unix.Stat_t
		if err := unix.Lstat(filepath.Join(dir, name), &st); err != nil {
			continue
		}
		if st.Mode&unix.S_IFMT == unix.S_IFDIR {
			st.Size = 0
		}
		fmt.Fprintf(&b, "  %-14s %06o %d:%d %d links, %d bytes\n", name, st.Mode, st.Uid, st.Gid, st.Nlink, st.Size)
	}
	return b.String()
}

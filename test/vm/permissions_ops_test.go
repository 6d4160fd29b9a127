//go:build vm

package vm_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

func fileModes() []mode {
	var modes []mode
	for _, bits := range []uint32{
		0, 0o200, 0o400, 0o060, 0o006, 0o070, 0o664, 0o4755, 0o6777, 0o2664,
	} {
		modes = append(modes, mode{bits: bits})
	}
	return append(modes,
		mode{0o600, []aclEntry{{aclUser, 1003, 6}, {aclMask, 0, 6}}},
		mode{0o664, []aclEntry{{aclUser, 1001, 0}, {aclGroup, 2001, 4}, {aclMask, 0, 7}}},
		mode{0o660, []aclEntry{{aclGroup, 2001, 6}, {aclUser, 1002, 7}, {aclMask, 0, 4}}},
	)
}

func dirModes() []mode {
	var modes []mode
	for _, bits := range []uint32{
		0o100, 0o300, 0o500, 0o070, 0o007, 0o755, 0o1777, 0o1775, 0o2775, 0o3777,
	} {
		modes = append(modes, mode{bits: bits})
	}
	return append(modes, mode{0o750, []aclEntry{{aclUser, 1003, 7}, {aclMask, 0, 7}}})
}

// operation is one thing to do in the folder that fileSetup or dirSetup made.
type operation struct {
	name string
	run  func(dir string) error
}

func fileOps() []operation {
	on := func(name string, do func(f string) error) operation {
		return operation{name, func(dir string) error { return do(filepath.Join(dir, "f")) }}
	}
	ops := []operation{
		on("stat", func(f string) error {
			st, err := os.Lstat(f)
			if err == nil && st.Size() != 10 {
				return fmt.Errorf("size %d", st.Size())
			}
			return err
		}),
		on("read", func(f string) error {
			b, err := os.ReadFile(f)
			if err == nil && string(b) != "0123456789" {
				return fmt.Errorf("read %q", b)
			}
			return err
		}),
		on("write", func(f string) error { return openWrite(f, os.O_WRONLY) }),
		on("read and write", func(f string) error { return openWrite(f, os.O_RDWR) }),
		on("append", func(f string) error { return openWrite(f, os.O_WRONLY|os.O_APPEND) }),
		on("O_TRUNC", func(f string) error { return openOnly(f, os.O_WRONLY|os.O_TRUNC) }),
		on("O_TRUNC and write", func(f string) error { return openWrite(f, os.O_WRONLY|os.O_TRUNC) }),
		on("O_CREAT", func(f string) error { return openOnly(f, os.O_WRONLY|os.O_CREATE) }),
		on("O_CREAT and O_EXCL", func(f string) error { return openOnly(f, os.O_WRONLY|os.O_CREATE|os.O_EXCL) }),
		on("truncate", func(f string) error { return unix.Truncate(f, 5) }),
		on("truncate to the same size", func(f string) error { return unix.Truncate(f, 10) }),
		on("ftruncate to the same size", func(f string) error {
			fd, err := unix.Open(f, unix.O_WRONLY, 0)
			if err != nil {
				return err
			}
			return errors.Join(unix.Ftruncate(fd, 10), unix.Close(fd))
		}),
		on("O_TRUNC of an empty file", func(f string) error {
			if err := openOnly(f, os.O_WRONLY|os.O_TRUNC); err != nil {
				return err
			}
			return openOnly(f, os.O_WRONLY|os.O_TRUNC)
		}),
		on("chmod", func(f string) error { return unix.Chmod(f, 0o640) }),
		on("chmod with setuid and setgid", func(f string) error { return unix.Chmod(f, 0o6755) }),
		on("chmod with sticky", func(f string) error { return unix.Chmod(f, 0o1755) }),
		on("utimes", func(f string) error {
			return unix.UtimesNanoAt(unix.AT_FDCWD, f, []unix.Timespec{{Sec: 1, Nsec: 2}, {Sec: 3, Nsec: 4}}, 0)
		}),
		on("utimes to now", func(f string) error {
			return unix.UtimesNanoAt(unix.AT_FDCWD, f, []unix.Timespec{{Nsec: unix.UTIME_NOW}, {Nsec: unix.UTIME_NOW}}, 0)
		}),
		on("link", func(f string) error { return os.Link(f, f+"2") }),
	}
	for name, mode := range map[string]uint32{"R": unix.R_OK, "W": unix.W_OK, "X": unix.X_OK, "RW": unix.R_OK | unix.W_OK} {
		ops = append(ops, on("access "+name, func(f string) error { return unix.Access(f, mode) }))
	}
	for _, to := range []struct{ uid, gid int }{
		{1003, -1}, {ownerUID, -1}, {-1, ownerGID}, {-1, 2001}, {-1, 1000}, {ownerUID, ownerGID}, {1003, 2001}, {-1, -1},
	} {
		ops = append(ops, on(fmt.Sprintf("chown %d:%d", to.uid, to.gid), func(f string) error { return os.Lchown(f, to.uid, to.gid) }))
	}
	return ops
}

func dirOps() []operation {
	in := func(name string, do func(d, out string) error) operation {
		return operation{name, func(dir string) error { return do(filepath.Join(dir, "d"), filepath.Join(dir, "out")) }}
	}
	return []operation{
		in("readdir", func(d, _ string) error {
			names, err := os.ReadDir(d)
			if err == nil && len(names) != 3 {
				return fmt.Errorf("lists %v", names)
			}
			return err
		}),
		in("stat", func(d, _ string) error { _, err := os.Lstat(d + "/theirs"); return err }),
		in("stat of nothing", func(d, _ string) error { _, err := os.Lstat(d + "/nothing"); return err }),
		in("create", func(d, _ string) error { return openOnly(d+"/new", os.O_WRONLY|os.O_CREATE|os.O_EXCL) }),
		in("create without O_EXCL", func(d, _ string) error { return openWrite(d+"/new", os.O_RDWR|os.O_CREATE) }),
		in("create with setgid", func(d, _ string) error {
			fd, err := unix.Open(d+"/new", unix.O_WRONLY|unix.O_CREAT, 0o6775)
			if err != nil {
				return err
			}
			return unix.Close(fd)
		}),
		in("create unreadable and write", func(d, _ string) error {
			f, err := os.OpenFile(d+"/new", os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0)
			if err != nil {
				return err
			}
			_, err = f.WriteString("x")
			return errors.Join(err, f.Close())
		}),
		in("open of theirs with O_CREAT", func(d, _ string) error { return openWrite(d+"/theirs", os.O_WRONLY|os.O_CREATE) }),
		in("mkdir", func(d, _ string) error { return unix.Mkdir(d+"/new", 0o777) }),
		in("symlink", func(d, _ string) error { return os.Symlink("theirs", d+"/new") }),
		in("mkfifo", func(d, _ string) error { return unix.Mknod(d+"/new", unix.S_IFIFO|0o666, 0) }),
		in("mknod of a socket", func(d, _ string) error { return unix.Mknod(d+"/new", unix.S_IFSOCK|0o666, 0) }),
		in("mknod of a device", func(d, _ string) error { return unix.Mknod(d+"/new", unix.S_IFCHR|0o666, int(unix.Mkdev(1, 3))) }),
		in("mknod of a whiteout", func(d, _ string) error { return unix.Mknod(d+"/new", unix.S_IFCHR|0o666, 0) }),
		in("unlink of mine", func(d, _ string) error { return unix.Unlink(d + "/mine") }),
		in("unlink of theirs", func(d, _ string) error { return unix.Unlink(d + "/theirs") }),
		in("unlink of nothing", func(d, _ string) error { return unix.Unlink(d + "/nothing") }),
		in("unlink of a directory", func(d, _ string) error { return unix.Unlink(d + "/sub") }),
		in("rmdir of theirs", func(d, _ string) error { return unix.Rmdir(d + "/sub") }),
		in("rmdir", func(d, _ string) error { return unix.Rmdir(d) }),
		in("rename of mine", func(d, _ string) error { return os.Rename(d+"/mine", d+"/new") }),
		in("rename of theirs", func(d, _ string) error { return os.Rename(d+"/theirs", d+"/new") }),
		in("rename over theirs", func(d, _ string) error { return os.Rename(d+"/mine", d+"/theirs") }),
		in("rename of theirs out of it", func(d, out string) error { return os.Rename(d+"/theirs", out+"/theirs") }),
		in("rename of a directory out of it", func(d, out string) error { return os.Rename(d+"/sub", out+"/sub") }),
		in("rename into it", func(d, out string) error { return os.Rename(out+"/in", d+"/in") }),
		in("link into it", func(d, out string) error { return os.Link(out+"/in", d+"/in") }),
		in("link of theirs out of it", func(d, out string) error { return os.Link(d+"/theirs", out+"/theirs") }),
		in("chmod", func(d, _ string) error { return unix.Chmod(d, 0o2755) }),
		in("chgrp", func(d, _ string) error { return os.Lchown(d, -1, ownerGID) }),
		in("access W", func(d, _ string) error { return unix.Access(d, unix.W_OK) }),
		in("access X", func(d, _ string) error { return unix.Access(d, unix.X_OK) }),
	}
}

func openOnly(name string, flags int) error {
	f, err := os.OpenFile(name, flags, 0o666)
	if err != nil {
		return err
	}
	return f.Close()
}

func openWrite(name string, flags int) error {
	f, err := os.OpenFile(name, flags, 0o666)
	if err != nil {
		return err
	}
	_, err = f.WriteString("x")
	return errors.Join(err, f.Close())
}

// aclEntry is an entry of a POSIX ACL, acl(5).
type aclEntry struct {
	tag, id, perm uint32
}

const (
	aclUserObj  = 0x01
	aclUser     = 0x02
	aclGroupObj = 0x04
	aclGroup    = 0x08
	aclMask     = 0x10
	aclOther    = 0x20
)

func (e aclEntry) String() string {
	kind := map[uint32]string{aclUser: "u", aclGroup: "g", aclMask: "m"}[e.tag]
	return strings.TrimPrefix(fmt.Sprintf("%s:%d:%d", kind, e.id, e.perm), ":")
}

// acl is the extended attribute of an ACL, linux/posix_acl_xattr.h: a version,
// then the entries in the order of their tags.
func acl(m mode) []byte {
	b := binary.LittleEndian.AppendUint32(nil, 2)
	all := append([]aclEntry{
		{aclUserObj, 0, m.bits >> 6 & 7}, {aclGroupObj, 0, m.bits >> 3 & 7}, {aclOther, 0, m.bits & 7},
	}, m.acl...)
	for tag := uint32(aclUserObj); tag <= aclOther; tag <<= 1 {
		for _, e := range all {
			if e.tag != tag {
				continue
			}
			if tag != aclUser && tag != aclGroup {
				e.id = 1<<32 - 1
			}
			b = binary.LittleEndian.AppendUint16(b, uint16(e.tag))
			b = binary.LittleEndian.AppendUint16(b, uint16(e.perm))
			b = binary.LittleEndian.AppendUint32(b, e.id)
		}
	}
	return b
}

//go:build vm

package vm_test

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// aclPrograms are commands that set, read, inherit and copy POSIX ACLs. Each runs in a folder with the file data and the folder
// tree, which has a default ACL.
var aclPrograms = []string{
	"getfacl -n data tree",
	"setfacl -m u:1003:rw data && getfacl -n data",
	"setfacl -m u:1003:rw,g:7:rwx data && chmod 640 data && getfacl -n data",
	"setfacl -m u:1003:rw,g:7:rwx data && setfacl -m m::r data && getfacl -n data",
	"setfacl -m u:1003:rw,u:1004:r data && setfacl -x u:1003 data && getfacl -n data",
	"setfacl -m u:1003:rw data && setfacl -b data && getfacl -n data",
	"setfacl -m u::r,g::-,o::rwx data && stat -c %a data",
	"setfacl -k tree && touch tree/new && mkdir tree/d",
	"touch tree/new && mkdir tree/d && mkfifo tree/fifo && ln -s new tree/link",
	"umask 077 && touch tree/new && mkdir tree/d",
	"umask 077 && touch new && mkdir d && stat -c '%n %a' new d",
	"umask 0 && touch new tree/new && mkdir d && stat -c '%n %a' new d tree/new",
	"setfacl -d -m u:1005:r tree/folder && mkdir tree/folder/d && cp data tree/folder/d",
	"setfacl -R -m u:1006:rwX tree",
	"setfacl -d -m u:1:r data",
	"setfacl -m u:1003:rw data && cp -a data new && cp data newer && getfacl -n new newer",
	"cp -a tree new",
	"setfacl -m u:1003:rw data && mv data new && getfacl -n new",
	"tar --acls -cf archive data tree && mkdir new && tar --acls -xf archive -C new && rm archive",
	"rsync -aA data tree new",
	"getfacl -n -R tree >dump && setfacl -R -b tree && setfacl --restore=dump && rm dump",
	"su nobody -s /bin/sh -c 'setfacl -m u:1003:rw data; getfacl -n data'",
	"chmod 600 data && su nobody -s /bin/sh -c 'cat data >/dev/null'",
	"chmod 600 data && setfacl -m u:nobody:r data && su nobody -s /bin/sh -c 'cat data >/dev/null; echo more >>data'",
	"chmod 644 data && setfacl -m u:nobody:- data && su nobody -s /bin/sh -c 'cat data >/dev/null'",
	"chown nobody data && su nobody -s /bin/sh -c 'setfacl -m u:1003:rw data; getfacl -n data'",
}

// TestACLs has programs set, read, inherit and copy ACLs on mounts of version 3, as they do on the server's own disk.
func TestACLs(t *testing.T) {
	nativeOnly(t, "go-nfs has no NFSACL")
	onDisks(t, []string{"XFS", "btrfs", "ext4"}, []string{"XFS"}, func(t *testing.T, _ string, a *appliance, local string) {
		pv := a.volume("acls", "32Mi")
		mnt := mountWith(t, pv, []string{"nfsvers=3", "proto=tcp", "port=20490", "mountport=20490", "nolock"})
		for _, program := range aclPrograms {
			t.Run(program, func(t *testing.T) { sameACLs(t, program, placesIn(mnt, a.dir(pv), local)) })
		}
	})
}

// sameACLs has a program do the same with ACLs in both places.
func sameACLs(t *testing.T, program string, p places) {
	defer p.remove(t)
	p.same(t, program, func(folder string) {
		for n, name := range []string{"data", "tree/file"} {
			mustWrite(t, filepath.Join(folder, name), data(byte(n), 1000))
		}
		command(t, "setfacl", "-d", "-m", "u:1002:rwx,g:8:r", filepath.Join(folder, "tree"))
	}, aclsBelow)
}

// aclsBelow describes all files in a folder with their modes and ACLs.
func aclsBelow(t *testing.T, folder string) string {
	t.Helper()
	var b strings.Builder
	err := filepath.WalkDir(folder, func(path string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		var st unix.Stat_t
		if err := unix.Lstat(path, &st); err != nil {
			return err
		}
		fmt.Fprintf(&b, "%s %o %d:%d\n", strings.TrimPrefix(path, folder), st.Mode, st.Uid, st.Gid)
		if st.Mode&unix.S_IFMT == unix.S_IFLNK {
			return nil
		}
		for _, name := range []string{"system.posix_acl_access", "system.posix_acl_default"} {
			value := make([]byte, 4096)
			switch n, err := unix.Getxattr(path, name, value); {
			case err == nil:
				fmt.Fprintf(&b, "  %s %v\n", name, aclEntries(value[:n]))
			case !errors.Is(err, unix.ENODATA):
				return fmt.Errorf("%s of %s: %w", name, path, err)
			}
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	return b.String()
}

// aclEntries are tag, permissions and number of each entry, as acl(5) of Linux has them in an extended attribute, behind its version.
func aclEntries(value []byte) []string {
	var entries []string
	for entry := range slices.Chunk(value[min(4, len(value)):], 8) {
		entries = append(entries, fmt.Sprintf("%x", entry))
	}
	return entries
}

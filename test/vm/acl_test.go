//go:build vm

package vm_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
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
	for _, disk := range []string{"XFS", "btrfs", "ext4"} {
		t.Run(disk, func(t *testing.T) {
			if disk != "XFS" {
				notInShortRun(t, onEachDisk)
			}
			var s settings
			if disk != "XFS" {
				root, _ := loopDisk(t, disk, "")
				s = settings{root: root, quota: "server"}
			}
			a := newAppliance(t, s)
			a.start()
			pv := a.volume("acls", "32Mi")
			mnt := mountWith(t, pv, []string{"nfsvers=3", "proto=tcp", "port=20490", "mountport=20490", "nolock"})
			local := filepath.Join(a.root, "local") // beside the volumes
			if err := os.Mkdir(local, 0o755); err != nil {
				t.Fatal(err)
			}
			for _, program := range aclPrograms {
				t.Run(program, func(t *testing.T) { sameACLs(t, program, mnt, a.dir(pv), local) })
			}
		})
	}
}

// sameACLs runs a program on a mount and on the local disk, and compares what it prints and what becomes of the files.
func sameACLs(t *testing.T, program, mnt, onDisk, local string) {
	const dir = "d"
	folders := [2]string{filepath.Join(mnt, dir), filepath.Join(local, dir)}
	defer func() {
		if err := errors.Join(os.RemoveAll(folders[0]), os.RemoveAll(folders[1])); err != nil {
			t.Error(err)
		}
	}()
	var outcome, acls [2]string
	for i, folder := range folders {
		if err := os.MkdirAll(filepath.Join(folder, "tree", "folder"), 0o755); err != nil {
			t.Fatal(err)
		}
		for n, name := range []string{"data", "tree/file"} {
			mustWrite(t, filepath.Join(folder, name), data(byte(n), 1000))
		}
		command(t, "setfacl", "-d", "-m", "u:1002:rwx,g:8:r", filepath.Join(folder, "tree"))
		cmd := exec.Command("sh", "-c", program)
		cmd.Dir = folder
		out, err := cmd.CombinedOutput()
		outcome[i] = fmt.Sprintf("%v\n%s", err, strings.ReplaceAll(string(out), folder, ""))
		acls[i] = aclsBelow(t, folder)
	}
	if outcome[0] != outcome[1] {
		t.Errorf("on the mount %s\non the disk %s", outcome[0], outcome[1])
	}
	if acls[0] != acls[1] {
		t.Errorf("the mount has\n%s\nthe local disk\n%s", acls[0], acls[1])
	}
	if inVolume := aclsBelow(t, filepath.Join(onDisk, dir)); inVolume != acls[0] {
		t.Errorf("the mount has\n%s\nthe disk\n%s", acls[0], inVolume)
	}
}

// aclsBelow describes all files in a folder with their modes and ACLs.
func aclsBelow(t *testing.T, folder string) string {
	t.Helper()
	cmd := exec.Command("sh", "-ec", "find . | sort | xargs getfacl -n -P; find . | sort | xargs stat -c '%n %A %u %g'")
	cmd.Dir = folder
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("getfacl in %s: %v\n%s", folder, err, out)
	}
	return string(out)
}

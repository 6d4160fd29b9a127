//go:build vm

package vm_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// acls4 are commands on a mount of version 4, and what does the same on the local disk. Both run in a folder with the file
// data, whose mode is 644, and the folder tree.
var acls4 = []struct{ mount, local string }{
	{"nfs4_setfacl -a A::1003:RW data", "setfacl -m u:1003:rw data"},
	{"nfs4_setfacl -a A:g:7:RX data", "setfacl -m g:7:rx data"},
	{"nfs4_setfacl -a D::1003:rwax 2 data", "setfacl -m u:1003:- data"}, // after the owner's: 1003 may become that
	{"nfs4_setfacl -a A::1003:RWX data && chmod 640 data", "setfacl -m u:1003:rwx data && chmod 640 data"},
	{"nfs4_setfacl -s A::OWNER@:RWX,A::GROUP@:R,A::EVERYONE@:tcy data", "chmod 740 data"},
	{"nfs4_setfacl -a A::1003:RW data && nfs4_setfacl -x A::1003:rwatcy data; true", "true"},
	{"nfs4_setfacl -a A::1003:R data && nfs4_getfacl data | nfs4_setfacl -S - data", "setfacl -m u:1003:r data"},
	{"nfs4_getfacl data | nfs4_setfacl -S - data", "true"},
	{"nfs4_getfacl tree | nfs4_setfacl -S - tree", "true"},
	{"nfs4_setfacl -R -a A::1006:R tree", "setfacl -R -m u:1006:rX tree"}, // everyone has x
	{
		"umask 0 && nfs4_setfacl -a A:fdi:1003:RWX tree && touch tree/new && mkdir tree/d",
		"umask 0 && setfacl -d -m u:1003:rwx tree && touch tree/new && mkdir tree/d",
	},
	{"nfs4_setfacl -a A:fd:1003:RX tree && mkdir -p tree/d/e", "setfacl -m u:1003:rx tree && setfacl -d -m u:1003:rx tree && mkdir -p tree/d/e"},
	{"nfs4_setfacl -a A:fdig:8:RX tree && nfs4_getfacl tree | nfs4_setfacl -S - tree && mkdir tree/d", "setfacl -d -m g:8:rx tree && mkdir tree/d"},
	{
		"nfs4_setfacl -a A::1003:RW data && ! su nobody -s /bin/sh -c 'nfs4_setfacl -a A::1004:R data' 2>/dev/null",
		"setfacl -m u:1003:rw data",
	},
	{
		"chmod 600 data && nfs4_setfacl -a A::65534:R data && su nobody -s /bin/sh -c 'cat data >/dev/null && ! echo 2>/dev/null >>data'",
		"chmod 600 data && setfacl -m u:65534:r data",
	},
	{"nfs4_setfacl -a A::alice@example.com:R data 2>/dev/null || true", "true"},
	{"nfs4_setfacl -a U:S:OWNER@:rw data 2>/dev/null || true", "true"},
	{"nfs4_setfacl -a A:fd:1003:R data", "setfacl -m u:1003:r data"}, // the program leaves the flags out for a file
	{"nfs4_setfacl -a A::1003:RW data && mv data new && cp new newer", "setfacl -m u:1003:rw data && mv data new && cp new newer"},
}

// umasks4 are the same with a umask, which version 4.2 knows.
var umasks4 = []struct{ mount, local string }{
	{"umask 077 && touch new && mkdir d && mkfifo fifo", "umask 077 && touch new && mkdir d && mkfifo fifo"},
	{"umask 0 && touch new && mkdir d", "umask 0 && touch new && mkdir d"},
	{
		"nfs4_setfacl -a A:fdi:1003:RWX tree && umask 077 && touch tree/new && mkdir tree/d && mkfifo tree/fifo && ln -s new tree/link && cp data tree/copy",
		"setfacl -d -m u:1003:rwx tree && umask 077 && touch tree/new && mkdir tree/d && mkfifo tree/fifo && ln -s new tree/link && cp data tree/copy",
	},
	{ // which opens with O_EXCL
		"nfs4_setfacl -a A:fdi:1003:RWX tree && umask 027 && set -C && echo >tree/new && echo >new",
		"setfacl -d -m u:1003:rwx tree && umask 027 && set -C && echo >tree/new && echo >new",
	},
	{
		"nfs4_setfacl -a A:fdi:EVERYONE@:tcy tree && umask 0 && set -C && echo >tree/new && mkdir tree/d",
		"setfacl -d -m u::-,g::-,o::- tree && umask 0 && set -C && echo >tree/new && mkdir tree/d",
	},
}

// TestACLs4 has nfs4-acl-tools set ACLs on mounts of version 4, where the disk then has what setfacl sets on the local disk.
func TestACLs4(t *testing.T) {
	nativeOnly(t, "go-nfs serves version 3 alone")
	onDisks(t, []string{"XFS", "btrfs", "ext4"}, []string{"XFS"}, func(t *testing.T, _ string, a *appliance, local string) {
		pv := a.volume("acls4", "32Mi")
		for minor, programs := range map[string][]struct{ mount, local string }{"4.2": append(acls4, umasks4...), "4.1": acls4} {
			t.Run(minor, func(t *testing.T) {
				if minor == "4.1" {
					notInShortRun(t, "4.2 is served by the same code")
				}
				mnt := mountWith(t, pv, []string{"nfsvers=" + minor, "proto=tcp", "port=20490"})
				for _, p := range programs {
					t.Run(p.mount, func(t *testing.T) { sameACLs4(t, p.mount, p.local, placesIn(mnt, a.dir(pv), local)) })
				}
				t.Run("shown", func(t *testing.T) { acls4Shown(t, mnt) })
				t.Run("listing", func(t *testing.T) { acls4Listed(t, mnt) })
			})
		}
	})
}

// sameACLs4 runs a program on the mount, and another one on the local disk, and compares the ACLs on both disks.
func sameACLs4(t *testing.T, onMount, onLocal string, p places) {
	defer p.remove(t)
	for folder, program := range map[string]string{p.mnt: onMount, p.local: onLocal} {
		if err := os.MkdirAll(filepath.Join(folder, "tree"), 0o755); err != nil {
			t.Fatal(err)
		}
		mustWrite(t, filepath.Join(folder, "data"), data(1, 1000))
		mustWrite(t, filepath.Join(folder, "tree/file"), data(2, 1000))
		cmd := exec.Command("sh", "-ec", program)
		cmd.Dir = folder
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%s: %v\n%s", program, err, out)
		}
	}
	if mount, local := aclsBelow(t, p.onDisk), aclsBelow(t, p.local); mount != local {
		t.Errorf("the volume has\n%s\nthe local disk\n%s", mount, local)
	}
}

// acls4Shown is what nfs4_getfacl says.
func acls4Shown(t *testing.T, mnt string) {
	file := filepath.Join(mnt, "shown")
	mustWrite(t, file, nil)
	defer os.Remove(file)
	for _, tt := range []struct{ change, want string }{
		{"chmod 644", "A::OWNER@:rwatTcCy A::GROUP@:rtcy A::EVERYONE@:rtcy"},
		{"nfs4_setfacl -a A::1003:RX", "D::OWNER@:x A::OWNER@:rwatTcCy A::1003:rxtcy A::GROUP@:rtcy A::EVERYONE@:rtcy"},
		{"chmod 604", "A::OWNER@:rwatTcCy D::1003:r A::1003:tcy A::GROUP@:tcy D::GROUP@:r A::EVERYONE@:rtcy"},
	} {
		args := append(strings.Fields(tt.change), file)
		command(t, args[0], args[1:]...)
		var got []string
		for line := range strings.Lines(command(t, "nfs4_getfacl", file)) {
			if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") {
				got = append(got, strings.Replace(line, "A:g:GROUP@", "A::GROUP@", 1))
			}
		}
		if strings.Join(got, " ") != tt.want {
			t.Errorf("%s: %s, want %s", tt.change, strings.Join(got, " "), tt.want)
		}
	}
}

// acls4Listed counts what ls(1) asks for: no ACL of a file, as that would be a call for each.
func acls4Listed(t *testing.T, mnt string) {
	dir := filepath.Join(mnt, "listed")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	for i := range 50 {
		mustWrite(t, filepath.Join(dir, fmt.Sprint(i)), nil)
	}
	dropCaches(t)
	before := callsOf(t, mnt)
	if out := command(t, "ls", "-l", dir); strings.Contains(out, "+ ") {
		t.Errorf("ls sees an ACL where there is none:\n%s", out)
	}
	after := callsOf(t, mnt)
	var did []string
	for op, n := range after {
		if n > before[op] {
			did = append(did, fmt.Sprintf("%s %d", op, n-before[op]))
		}
	}
	t.Logf("ls -l of 50 files: %v", did)
	if n := after["GETACL"] - before["GETACL"]; n > 0 {
		t.Errorf("ls -l of 50 files asks for %d ACLs", n)
	}
	// Since coreutils 9.5 it lists the names of attributes, and gets an ACL that is in the list. The client remembers ACLs.
	for again, want := range []int{50, 0} {
		before = callsOf(t, mnt)
		for i := range 50 {
			names := make([]byte, 1<<10)
			n, err := unix.Listxattr(filepath.Join(dir, fmt.Sprint(i)), names)
			if err == nil && strings.Contains(string(names[:n]), "system.nfs4_acl") {
				_, err = unix.Getxattr(filepath.Join(dir, fmt.Sprint(i)), "system.nfs4_acl", names)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		after = callsOf(t, mnt)
		if n := after["GETACL"] - before["GETACL"]; n > want {
			t.Errorf("ls -l of coreutils 9.5, %d: %d calls for ACLs of 50 files, want %d", again, n, want)
		}
		t.Logf("ls -l of coreutils 9.5, %d: GETACL %d, LISTXATTRS %d", again, after["GETACL"]-before["GETACL"], after["LISTXATTRS"]-before["LISTXATTRS"])
	}
}

// callsOf are the calls that a mount has made, by /proc/self/mountstats.
func callsOf(t *testing.T, mnt string) map[string]int {
	t.Helper()
	stats, err := os.ReadFile("/proc/self/mountstats")
	if err != nil {
		t.Fatal(err)
	}
	_, of, _ := strings.Cut(string(stats), " mounted on "+mnt+" ")
	of, _, _ = strings.Cut(of, "\ndevice ")
	_, of, _ = strings.Cut(of, "per-op statistics\n")
	calls := map[string]int{}
	for line := range strings.Lines(of) {
		var n int
		if op, rest, ok := strings.Cut(strings.TrimSpace(line), ": "); ok {
			if _, err := fmt.Sscan(rest, &n); err == nil {
				calls[op] = n
			}
		}
	}
	return calls
}

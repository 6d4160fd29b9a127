package nfscheck

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"

	"github.com/podnas/podnas/doctor"
)

// Node is the machine that would mount.
type Node struct {
	Root  string // "/", but in tests
	InPod bool   // this is a pod: what counts is its node's
}

// Checks look for what kubelet needs to mount NFS.
func (n Node) Checks() []doctor.Check {
	return []doctor.Check{
		doctor.One("mount.nfs", func(context.Context) doctor.Result { return n.helper() }),
		doctor.One("kernel", func(context.Context) doctor.Result { return n.kernel() }),
	}
}

func (n Node) helper() doctor.Result {
	if n.InPod {
		return doctor.Good("not looked for: this is a pod, and it is the node that mounts. Where mount.nfs is missing there, the claim of the pod that waits has an event NodeWithoutMountNFS")
	}
	for _, dir := range []string{"sbin", "usr/sbin", "usr/local/sbin", "bin", "usr/bin"} {
		path := filepath.Join(n.Root, dir, "mount.nfs")
		if info, err := os.Stat(path); err == nil && info.Mode()&0o111 != 0 {
			return doctor.Good("%s is there", path)
		}
	}
	return doctor.Fail("install nfs-common (Debian, Ubuntu), nfs-utils (Fedora, RHEL, Alpine, Arch) or nfs-client (SUSE). You need not start anything: no rpcbind, no statd",
		"this machine has no mount.nfs: mount says \"bad option; ... you might need a /sbin/mount.<type> helper program\"")
}

// kernel looks whether the kernel has NFS, or has it as a module.
func (n Node) kernel() doctor.Result {
	known, err := os.ReadFile(filepath.Join(n.Root, "proc/filesystems"))
	if err != nil {
		return doctor.Warn("", "which file systems the kernel knows is not known: %v", err)
	}
	for line := range strings.Lines(string(known)) {
		if fields := strings.Fields(line); len(fields) > 0 && fields[len(fields)-1] == "nfs" {
			return doctor.Good("the kernel knows NFS")
		}
	}
	release, err := os.ReadFile(filepath.Join(n.Root, "proc/sys/kernel/osrelease"))
	if err != nil {
		return doctor.Warn("", "which kernel runs is not known: %v", err)
	}
	modules := filepath.Join(n.Root, "lib/modules", strings.TrimSpace(string(release)))
	if list, err := os.ReadFile(filepath.Join(modules, "modules.dep")); err == nil && bytes.Contains(list, []byte("/fs/nfs/nfsv3.ko")) {
		return doctor.Good("the kernel has NFS as a module")
	}
	if n.InPod {
		return doctor.Good("NFS is not loaded; whether the node has the module can't be seen from a pod")
	}
	return doctor.Fail("modprobe -a nfs nfsv3; where there is no such module, install the kernel's package with all modules, or another kernel",
		"the kernel knows no NFS, and %s has no module for it", modules)
}

package nfscheck

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"

	"github.com/podnas/podnas/internal/doctor"
)

// Node is the machine that mounts volumes.
type Node struct {
	Root  string // the node's root directory
	InPod bool   // this is a pod, so its node mounts, not this machine
	NFS4  bool   // it mounts with version 4
}

// Checks returns checks for what kubelet needs to mount NFS.
func (n Node) Checks() []doctor.Check {
	return []doctor.Check{
		doctor.One("mount.nfs", func(context.Context) doctor.Result { return n.helper() }),
		doctor.One("kernel", func(context.Context) doctor.Result { return n.kernel() }),
	}
}

func (n Node) helper() doctor.Result {
	if n.InPod {
		return doctor.Good("not checked: this is a pod, and its node mounts. If the node lacks mount.nfs, the claim of a waiting pod gets an event NodeWithoutMountNFS")
	}
	for _, dir := range []string{"sbin", "usr/sbin", "usr/local/sbin", "bin", "usr/bin"} {
		path := filepath.Join(n.Root, dir, "mount.nfs")
		if info, err := os.Stat(path); err == nil && info.Mode()&0o111 != 0 {
			return doctor.Good("%s is there", path)
		}
	}
	return doctor.Fail("install nfs-common (Debian, Ubuntu), nfs-utils (Fedora, RHEL, Alpine, Arch) or nfs-client (SUSE). No rpcbind and no statd is needed",
		"this machine has no mount.nfs: mount says \"bad option; ... you might need a /sbin/mount.<type> helper program\"")
}

// kernel checks whether the kernel supports NFS, built in or as a module.
func (n Node) kernel() doctor.Result {
	kind, module := "nfs", "nfsv3"
	if n.NFS4 {
		kind, module = "nfs4", "nfsv4"
	}
	known, err := os.ReadFile(filepath.Join(n.Root, "proc/filesystems"))
	if err != nil {
		return doctor.Warn("", "can't tell which file systems the kernel supports: %v", err)
	}
	for line := range strings.Lines(string(known)) {
		if fields := strings.Fields(line); len(fields) > 0 && fields[len(fields)-1] == kind {
			return doctor.Good("the kernel supports NFS")
		}
	}
	release, err := os.ReadFile(filepath.Join(n.Root, "proc/sys/kernel/osrelease"))
	if err != nil {
		return doctor.Warn("", "can't tell the kernel's version: %v", err)
	}
	modules := filepath.Join(n.Root, "lib/modules", strings.TrimSpace(string(release)))
	if list, err := os.ReadFile(filepath.Join(modules, "modules.dep")); err == nil && bytes.Contains(list, []byte("/fs/nfs/"+module+".ko")) {
		return doctor.Good("the kernel has NFS as a module")
	}
	if n.InPod {
		return doctor.Good("NFS is not loaded; a pod can't see whether its node has the module")
	}
	return doctor.Fail("run modprobe -a nfs "+module+"; if these modules are missing, install the kernel's package with all modules, or another kernel",
		"the kernel does not support NFS, and %s has no module for it", modules)
}

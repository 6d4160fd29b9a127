package main

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/podnas/podnas/internal/doctor"
	"github.com/podnas/podnas/nfs/nfscheck"
	"github.com/podnas/podnas/tools/nfsbench"
)

const doctorMountLong = `Test step by step whether this machine can mount and use a volume, and say what to do about each
step that fails.

HOST:/path is tested with NFS calls like those of mount.nfs and the kernel. Nothing is
mounted. It needs root if the volume has privilegedPorts, which is the default in a cluster, and
no rights otherwise. The steps: mount.nfs and NFS in the kernel; then a TCP connection, a NULL
call to NFS, a session of NFSv4, the path from the server's root, free space, and creating,
locking, writing, syncing, reading and removing a file as the calling user. Those with calls end
at the first that fails. With nfsvers=3 in --options, or an option that only version 3 has, they
are those of version 3, with MOUNT in place of the session. Take host, path and ports from the
PersistentVolume:

  kubectl get pv NAME -o jsonpath='{.spec.nfs.server}:{.spec.nfs.path} {.spec.mountOptions}'

/directory is the mount point of a volume, in a pod or on a node. The steps: its mount options, an
answer within 10 seconds, a file as above, and locks by flock and fcntl.

Exit codes: 0 all steps succeeded; 1 a step failed; 2 invalid request; 7 warnings, but no
failures.`

const doctorMountExamples = `  # On a node: can kubelet mount this volume?
  podnas doctor mount 10.96.0.20:/default-data

  # The same without copying anything to the node; then read the logs of the pod that kubectl names
  kubectl debug node/NODE --image=ghcr.io/podnas/podnas:v0.1.0-dev -- podnas doctor mount 10.96.0.20:/default-data --node-root=/host

  # With the mount options of its PersistentVolume, including ports
  podnas doctor mount 10.96.0.20:/default-data --options=nfsvers=4.2,port=20490

  # A volume of version 3
  podnas doctor mount 10.96.0.20:/default-data --options=nfsvers=3,port=2049,mountport=2049,nolock

  # Can a pod's user, uid 1000 and gid 2000, write there?
  podnas doctor mount 10.96.0.20:/default-data --uid=1000 --gid=2000

  # Does this mount work?
  podnas doctor mount /mnt/data -o json`

func newDoctorMountCommand() *cobra.Command {
	var try mountFlags
	var output string
	cmd := &cobra.Command{
		Use:     "mount HOST:/path|/directory",
		Short:   "Test step by step whether a mount works on a node or in a pod",
		Long:    doctorMountLong,
		Example: doctorMountExamples,
		Args:    exactly("HOST:/path or /directory"),
		RunE: func(cmd *cobra.Command, args []string) error {
			results, err := try.run(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			return tell(cmd, output, map[string]any{"checks": results}, results)
		},
	}
	f := cmd.Flags()
	f.SortFlags = false
	f.StringSliceVar(&try.options, "options", nil, "mount options of the PersistentVolume, for example ports and nolock")
	f.Uint32Var(&try.uid, "uid", uint32(os.Geteuid()), "user id for writing; default: yours")
	f.Uint32Var(&try.gid, "gid", uint32(os.Getegid()), "group id for writing; default: yours")
	f.StringVar(&try.nodeRoot, "node-root", "", "mount point of the node's root directory, in a pod that has it (default /)")
	addOutputFlag(f, &output, outputTable, outputJSON, outputYAML)
	return cmd
}

// mountFlags are what the flags say of a mount that is tried.
type mountFlags struct {
	options  []string
	uid, gid uint32
	nodeRoot string
}

// run makes the steps.
func (f *mountFlags) run(ctx context.Context, where string) ([]doctor.Result, error) {
	if strings.HasPrefix(where, "/") {
		return doctor.Steps(ctx, nfscheck.Mountpoint(filepath.Clean(where))), nil
	}
	target, err := nfsbench.ParseTarget(where, 0, 0)
	if err != nil {
		return nil, &usageError{err}
	}
	m, err := f.mount(target)
	if err != nil {
		return nil, err
	}
	// What the machine lacks does not keep the wire from being tried.
	node := nfscheck.Node{Root: cmp.Or(f.nodeRoot, "/"), InPod: f.nodeRoot == "" && os.Getenv("KUBERNETES_SERVICE_HOST") != "", NFS4: m.Version4()}
	return append(doctor.Run(ctx, node.Checks()), onWire(ctx, m)...), nil
}

// onWire makes the steps that speak NFS.
func onWire(ctx context.Context, m nfscheck.Mount) []doctor.Result {
	steps, closeAll := m.Steps()
	defer closeAll()
	return doctor.Steps(ctx, steps)
}

// mount is the mount of a server's path.
func (f *mountFlags) mount(target nfsbench.Target) (m nfscheck.Mount, err error) {
	if m, err = nfscheck.NewMount(target.Host, target.Path, target.Port, target.MountPort, f.options); err != nil {
		return m, &usageError{err}
	}
	m.UID, m.GID = f.uid, f.gid
	if m.Machine, err = os.Hostname(); err != nil {
		return m, err
	}
	if int(f.uid) == os.Geteuid() && int(f.gid) == os.Getegid() { // another's groups are not known
		groups, err := os.Getgroups()
		if err != nil {
			return m, fmt.Errorf("find the groups of this user: %w", err)
		}
		for _, g := range groups {
			m.Groups = append(m.Groups, uint32(g))
		}
	}
	return m, nil
}

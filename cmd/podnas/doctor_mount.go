package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/podnas/podnas/doctor"
	"github.com/podnas/podnas/server/nfsbench"
	"github.com/podnas/podnas/server/nfscheck"
)

const doctorMountLong = `Try on this machine, step by step, whether a volume can be mounted and used, and say at the
step that fails what to do.

HOST:/path is tried from the wire, as mount.nfs and the kernel would do it; nothing is
mounted, and no rights are needed: whether mount.nfs is here and the kernel has NFS, a TCP
connection, NULL calls to NFS and MOUNT, MNT of the path, FSINFO, locks, free space, then a
file is made, written, synced, read back and removed as the calling user. Host, path and
ports are those of the PersistentVolume:

  kubectl get pv NAME -o jsonpath='{.spec.nfs.server}:{.spec.nfs.path} {.spec.mountOptions}'

/directory is one where a volume is mounted, in a pod or on a node: its options, whether it
answers within 10 seconds, a file as above, and locks by flock and fcntl.

Exit codes: 0 all steps worked; 1 one did not; 2 asked for in a way that can never be done;
7 all worked, and there are warnings.`

const doctorMountExamples = `  # On a node: would kubelet's mount of this volume work?
  podnas doctor mount 10.96.0.20:/default-data

  # The same with nothing copied to the node; then kubectl logs of the pod that is named
  kubectl debug node/NODE --image=ghcr.io/podnas/podnas:v0.1.0-dev -- podnas doctor mount 10.96.0.20:/default-data --node-root=/host

  # With the mount options of its PersistentVolume, ports among them
  podnas doctor mount 10.96.0.20:/default-data --options=nfsvers=3,port=20490,mountport=20490,nolock

  # May the pod's user, uid 1000 of group 2000, write there?
  podnas doctor mount 10.96.0.20:/default-data --uid=1000 --gid=2000

  # Does what is mounted here work?
  podnas doctor mount /mnt/data -o json`

func newDoctorMountCommand() *cobra.Command {
	var try mountFlags
	var output string
	cmd := &cobra.Command{
		Use:     "mount HOST:/path|/directory",
		Short:   "Say on a node or in a pod whether a mount works, step by step",
		Long:    doctorMountLong,
		Example: doctorMountExamples,
		Args:    exactly("HOST:/path or /directory"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkOutput(output, outputTable, outputJSON, outputYAML); err != nil {
				return err
			}
			results, err := try.run(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			if output == outputTable {
				err = printResults(cmd.OutOrStdout(), results)
			} else {
				err = printValue(cmd.OutOrStdout(), output, map[string]any{"checks": results})
			}
			return errors.Join(err, verdict(results))
		},
	}
	f := cmd.Flags()
	f.SortFlags = false
	f.StringSliceVar(&try.options, "options", nil, "mount options, as in the PersistentVolume: ports, nolock")
	f.Uint32Var(&try.uid, "uid", uint32(os.Geteuid()), "user who writes; default: yours")
	f.Uint32Var(&try.gid, "gid", uint32(os.Getegid()), "group who writes; default: yours")
	f.StringVar(&try.nodeRoot, "node-root", "", "where the node's root directory is, for a pod that has it (default /)")
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
	m, err := nfscheck.NewMount(target.Host, target.Path, target.Port, target.MountPort, f.options)
	if err != nil {
		return nil, &usageError{err}
	}
	m.UID, m.GID = f.uid, f.gid
	if m.Machine, err = os.Hostname(); err != nil {
		return nil, err
	}
	if int(f.uid) == os.Geteuid() && int(f.gid) == os.Getegid() { // another's groups are not known
		groups, err := os.Getgroups()
		if err != nil {
			return nil, fmt.Errorf("find out the groups of this user: %w", err)
		}
		for _, g := range groups {
			m.Groups = append(m.Groups, uint32(g))
		}
	}
	// What the machine lacks does not keep the wire from being tried.
	node := nfscheck.Node{Root: cmp.Or(f.nodeRoot, "/"), InPod: f.nodeRoot == "" && os.Getenv("KUBERNETES_SERVICE_HOST") != ""}
	results := doctor.Run(ctx, node.Checks())
	steps, closeAll := m.Steps()
	defer closeAll()
	return append(results, doctor.Steps(ctx, steps)...), nil
}

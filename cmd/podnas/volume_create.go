package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	v1 "k8s.io/api/core/v1"

	"github.com/podnas/podnas/internal/volume"
	"github.com/podnas/podnas/provisioner"
	"github.com/podnas/podnas/provisioner/control"
)

const createExamples = `  # A volume that every user can write to, and its PersistentVolume
  podnas volume create scratch --size 10Gi | kubectl apply -f -

  # In a cluster
  kubectl exec -n podnas podnas-0 -- podnas volume create scratch --size 10Gi | kubectl apply -f -

  # For one team: only its group may read and write, root of a node is anonymous
  podnas volume create team --size 50Gi --gid 2000 --mode 2770 --root-squash

  # Read-only, and only for these networks
  podnas volume create models --size 20Gi --read-only --allowed-clients 10.0.0.0/8,fd00::/8

  # Mounted with NFSv3, for a node without version 4
  podnas volume create shared --size 10Gi --mount-options nfsvers=3

  # A copy of another volume, and of a snapshot of it
  podnas volume create scratch-2 --size 10Gi --from scratch
  podnas volume create scratch-3 --size 10Gi --from scratch --snapshot before-upgrade

  # A snapshot itself, read-only, at once and without space
  podnas volume create scratch-4 --size 10Gi --from scratch --snapshot before-upgrade --access-modes ReadOnlyMany`

const adoptExamples = `  # Turn an existing folder on the disk into a volume; its files do not change
  podnas volume adopt photos --path old/photos --size 200Gi | kubectl apply -f -

  # Restore a deleted volume that was archived or retained
  podnas volume list --all
  podnas volume adopt pvc-3b0c6a52-1c6b-4b5e-a7d6-1f0c8d2e9a10 | kubectl apply -f -`

// copyPoll is the time between two reads of the progress of a copy, or of an adoption.
const copyPoll = time.Second

// parameterFlags returns the flags that are parameters of a StorageClass too,
// and mean the same.
func parameterFlags() map[string]string {
	return map[string]string{
		"uid": "uid", "gid": "gid", "mode": "mode",
		"root-squash": "rootSquash", "all-squash": "allSquash", "anon-uid": "anonUid", "anon-gid": "anonGid",
		"allowed-clients": "allowedClients", "read-only": "readOnly", "sync": "sync",
		"on-delete": "onDelete", "overcommit": "overcommit", "bytes-per-inode": "bytesPerInode",
		"snapshots": provisioner.SnapshotsParameter, "snapshot-reserve": provisioner.SnapshotReserveParameter,
	}
}

// createConfig is what the flags of create and adopt say.
type createConfig struct {
	*volumeConfig
	request     control.CreateRequest
	size        newSizeFlag
	accessModes []string
	reclaim     string
	noWait      bool
	output      string
}

func newCreateCommand(shared *volumeConfig) *cobra.Command {
	cfg := &createConfig{volumeConfig: shared}
	cmd := &cobra.Command{
		Use:   "create NAME --size SIZE",
		Short: "Create a volume without a claim, and print its PersistentVolume",
		Long: `Create a volume without a claim, and print its PersistentVolume.

When the command ends, the volume can be mounted. To use it in a cluster, apply the
PersistentVolume; a claim with the same storageClassName and with volumeName: NAME then
binds to it. If you repeat the command, it changes nothing and prints the same; with other options for
clients it is refused.`,
		Example: createExamples,
		Args:    exactly("NAME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if cfg.request.SourceSnapshot != "" && cfg.request.Source == "" {
				return &usageError{errors.New("--snapshot needs --from: the volume whose snapshot it is")}
			}
			if cfg.size.sizeFlag == 0 {
				return &usageError{errors.New("--size is missing: set the size of the volume, for example --size 10Gi")}
			}
			return cfg.run(cmd, args[0], (*control.Client).Create)
		},
	}
	f := cmd.Flags()
	f.SortFlags = false
	cfg.addFlags(f)
	f.StringVar(&cfg.request.Source, "from", "", "copy this `VOLUME`")
	f.StringVar(&cfg.request.SourceSnapshot, "snapshot", "", "with --from: copy this `SNAPSHOT` of the volume, which may be deleted; with\n--access-modes ReadOnlyMany show it")
	f.BoolVar(&cfg.noWait, "no-wait", false, "with --from: don't wait for the copy")
	f.String("uid", "", "owner of its root directory, a `USER` id")
	f.String("gid", "", "group of its root directory, a `GROUP` id, which kubelet also adds to pods")
	f.String("mode", "", "`MODE` of its root directory, in octal digits (default 0777; 2771 with --gid)")
	return cmd
}

func newAdoptCommand(shared *volumeConfig) *cobra.Command {
	cfg := &createConfig{volumeConfig: shared}
	cmd := &cobra.Command{
		Use:   "adopt NAME",
		Short: "Restore a volume or adopt a directory, and print its PersistentVolume",
		Long: `Restore a volume or adopt a directory, and print its PersistentVolume.

NAME is a deleted volume that was archived or retained, which is restored as it was: it takes a larger
--size, and what is of the PersistentVolume; other flags are refused. Or it is a directory on podnas's
disk that is not a volume: set its --size, and its --path if the directory has another name. Files keep
their owners, modes and times; where the kernel needs it, links, fifos and sockets are made anew.

Where the kernel enforces sizes, each file is assigned to the volume. If there are so many that this takes
more than 10 seconds, clients can mount the volume meanwhile, and its size is not enforced until this is
done. The command waits for it; Ctrl-C leaves it to the background. If the files take more than the size, the
directory is not adopted; where there are many, the volume stays, and clients can add nothing until you
raise its size.`,
		Example: adoptExamples,
		Args:    exactly("NAME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return cfg.run(cmd, args[0], (*control.Client).Adopt)
		},
	}
	f := cmd.Flags()
	f.SortFlags = false
	cfg.addFlags(f)
	f.BoolVar(&cfg.noWait, "no-wait", false, "don't wait until all of its files are assigned to it")
	return cmd
}

// addFlags adds the flags that create and adopt share.
func (c *createConfig) addFlags(f *pflag.FlagSet) {
	f.Var(&c.size, "size", "`SIZE` of the volume, for example 500Mi, 10Gi or 2T; at least 1Mi")
	f.String("bytes-per-inode", "", "allow one file (directory, symbolic link and so on) for this many `BYTES` of its\nsize, and at least 1024 (default 4Ki, or more on ext4)")
	f.StringVar(&c.request.Path, "path", "", "its `DIRECTORY`, relative to the root of the disk (default NAME)")
	f.Bool("root-squash", false, "root of a client becomes the anonymous user")
	f.Bool("all-squash", false, "every user becomes the anonymous user")
	f.String("anon-uid", "", "`USER` id of the anonymous user (default 65534)")
	f.String("anon-gid", "", "`GROUP` id of the anonymous user (default 65534)")
	f.String("allowed-clients", "", "the `NETWORKS` that may mount it, separated by commas (default all)")
	f.Bool("read-only", false, "clients can't change anything")
	f.Bool("sync", true, "changes of names and attributes are on the disk before they are answered")
	f.String("on-delete", "", "what happens to the files when it is deleted, an `ACTION`: delete, archive or retain (default delete)")
	f.String("overcommit", "", "limit of the sum of all sizes, a `FACTOR` of the disk's size, instead of serve's --overcommit")
	f.String("snapshots", "", "snapshots that are taken by themselves, a `SCHEDULE`: hourly=24,daily=7,weekly=4 (default none)")
	f.String("snapshot-reserve", "", "promise this `PART` of what it uses for each snapshot that is not scheduled (default 100%)")
	f.StringVar(&c.request.StorageClass, "storage-class", "", "storageClassName of the PersistentVolume, a `CLASS`")
	f.StringSliceVar(&c.accessModes, "access-modes", nil, "access `MODES` of the PersistentVolume (default ReadWriteMany)")
	f.StringSliceVar(&c.request.MountOptions, "mount-options", nil, "mount `OPTIONS` of the PersistentVolume, in addition to podnas's own; with nfsvers=3\nit mounts with that version")
	f.StringVar(&c.reclaim, "reclaim-policy", "", "`POLICY` of the PersistentVolume when its claim is deleted: Delete or Retain (default Retain)")
	addOutputFlag(f, &c.output, outputYAML, outputJSON)
}

func (c *createConfig) run(cmd *cobra.Command, name string, ask func(*control.Client, context.Context, control.CreateRequest) (control.Volume, error)) error {
	r := &c.request
	r.Name, r.Size, r.ReclaimPolicy = name, int64(c.size.sizeFlag), v1.PersistentVolumeReclaimPolicy(c.reclaim)
	for _, mode := range c.accessModes {
		r.AccessModes = append(r.AccessModes, v1.PersistentVolumeAccessMode(mode))
	}
	parameters := parameterFlags()
	r.Parameters = map[string]string{}
	cmd.Flags().Visit(func(f *pflag.Flag) {
		if parameter, ok := parameters[f.Name]; ok {
			r.Parameters[parameter] = f.Value.String()
		}
	})
	client, err := c.client()
	if err != nil {
		return err
	}
	v, err := c.wait(cmd, func(ctx context.Context) (control.Volume, error) { return ask(client, ctx, *r) })
	var said *control.Error
	if errors.As(err, &said) && said.Code == control.Copying {
		text := said.Error() + "\nThe copy continues in the background. Repeat the command to see its progress, and at the end the PersistentVolume."
		if !c.noWait {
			return &interruptedError{text}
		}
		fmt.Fprintln(cmd.ErrOrStderr(), text)
		return nil
	}
	if err != nil && r.SourceSnapshot != "" {
		return c.adviseSnapshot(cmd.Context(), client, r.Source, r.SourceSnapshot, err)
	}
	if err != nil {
		return advise(err)
	}
	if v.Assigning != nil && !c.noWait {
		if v, err = c.awaitAssigned(cmd, client, v); err != nil {
			return err
		}
	}
	fmt.Fprintf(cmd.ErrOrStderr(), "volume %s is ready: %s in %s\n", v.Name, volume.FormatSize(v.Size), filepath.Join(c.root, v.Directory()))
	manifests, err := client.Manifests(cmd.Context(), name)
	if err != nil {
		return fmt.Errorf("its PersistentVolume is not available yet; print it later with 'podnas volume manifests %s': %w", name, err)
	}
	return printManifests(cmd.OutOrStdout(), c.output, manifests, false)
}

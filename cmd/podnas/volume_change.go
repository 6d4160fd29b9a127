package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/podnas/podnas/internal/volume"
	"github.com/podnas/podnas/provisioner"
)

func newResizeCommand(cfg *volumeConfig) *cobra.Command {
	var (
		force         bool
		bytesPerInode sizeFlag
	)
	cmd := &cobra.Command{
		Use:   "resize NAME SIZE",
		Short: "Raise the size of a volume while it is in use",
		Long: `Raise the size of a volume and its limit of files, while it is in use. A size can't be
lowered.

For a volume that belongs to a claim, raise the claim's request instead; podnas then resizes
the volume.`,
		Example: "  # Raise the size; pods see it at once\n  podnas volume resize scratch 20Gi\n\n" +
			"  # Keep the size, but allow more small files\n  podnas volume resize scratch 20Gi --bytes-per-inode 1Ki",
		Args: exactly("NAME", "SIZE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			size, err := parseSize(args[1], provisioner.Bytes)
			if err != nil {
				return &usageError{err}
			}
			client, err := cfg.client()
			if err != nil {
				return err
			}
			v, err := client.Resize(cmd.Context(), args[0], size, int64(bytesPerInode), force)
			if err != nil {
				return advise(err)
			}
			files := ""
			if v.Inodes > 0 {
				files = " and " + volume.FormatCount(v.Inodes, "file")
			}
			fmt.Fprintf(cmd.OutOrStdout(), "volume %s now has a limit of %s%s\n", v.Name, volume.FormatSize(v.Size), files)
			fmt.Fprintf(cmd.ErrOrStderr(), "If a cluster uses this volume, apply its new PersistentVolume there, which this prints:\n  podnas volume manifests %s\n", v.Name)
			return nil
		},
	}
	cmd.Flags().Var(&bytesPerInode, "bytes-per-inode", "from now on, allow one file (directory, symbolic link and so on) for this many\nbytes of its size")
	cmd.Flags().BoolVar(&force, "force", false, "resize even a volume that belongs to a claim; the claim is not changed")
	return cmd
}

const manifestsExamples = `  # The PersistentVolume of one volume
  podnas volume manifests scratch

  # In a new cluster, with this podnas on the old disk: restore the volumes and their
  # claims
  kubectl exec -n podnas podnas-0 -- podnas volume manifests --bind | kubectl apply -f -`

func newManifestsCommand(cfg *volumeConfig) *cobra.Command {
	var (
		bind   bool
		output string
	)
	cmd := &cobra.Command{
		Use:   "manifests [NAME...]",
		Short: "Print the PersistentVolumes of volumes, with --bind also their claims",
		Long: `Print the PersistentVolumes of the named volumes, or of all, for use with kubectl apply. They
have the present address of this podnas.

The PersistentVolume of a volume with a claim is reserved for the claim of that namespace and
name. --bind prints these claims too; their namespaces must exist.`,
		Example: manifestsExamples,
		RunE: func(cmd *cobra.Command, args []string) error {
			client, err := cfg.client()
			if err != nil {
				return err
			}
			manifests, err := client.Manifests(cmd.Context(), args...)
			if err != nil {
				return advise(err)
			}
			return printManifests(cmd.OutOrStdout(), output, manifests, bind)
		},
	}
	cmd.Flags().BoolVar(&bind, "bind", false, "also print the claims that the volumes belong to")
	addOutputFlag(cmd.Flags(), &output, outputYAML, outputJSON)
	return cmd
}

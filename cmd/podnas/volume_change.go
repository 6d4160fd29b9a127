package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/podnas/podnas/provisioner"
	"github.com/podnas/podnas/provisioner/control"
	"github.com/podnas/podnas/volume"
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

func newDeleteCommand(cfg *volumeConfig) *cobra.Command {
	var force, yes, kept bool
	cmd := &cobra.Command{
		Use:     "delete NAME",
		Aliases: []string{"rm", "remove"},
		Short:   "Delete a volume, and its files as --on-delete says",
		Long: `Delete a volume. Clients that have it mounted get errors from then on. Its files are
removed in the background, moved to the archive, or kept in their directory, as set by the
volume's --on-delete; 'podnas volume show NAME' shows it.

For a volume that belongs to a claim, delete the claim instead. Deleting a volume that is being
copied cancels the copy.

--kept removes the files of a volume that was deleted before, and archived or retained.`,
		Example: "  podnas volume delete scratch\n  podnas volume delete scratch --yes    # in a script\n" +
			"  podnas volume delete old --kept       # what 'podnas volume list --all' shows as archived",
		Args: exactly("NAME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			client, err := cfg.client()
			if err != nil {
				return err
			}
			v, err := client.Get(cmd.Context(), args[0])
			if err != nil {
				return advise(err)
			}
			if isKept := v.State == volume.Archived || v.State == volume.Retained; isKept != kept {
				return keptError(v, isKept)
			}
			what := v.FateOfFiles(cfg.root)
			if kept || v.State == volume.Copying {
				what = "its files are removed in the background"
			}
			if !yes {
				if !isTerminal(cmd.InOrStdin()) {
					return &usageError{fmt.Errorf("volume %s is not deleted: there is no terminal for the question; use --yes", v.Name)}
				}
				if err := confirm(cmd.InOrStdin(), cmd.ErrOrStderr(), deleteQuestion(v, what)); err != nil {
					return fmt.Errorf("volume %s is not deleted: %w", v.Name, err)
				}
			}
			if kept {
				err = client.Discard(cmd.Context(), v.Name)
			} else {
				err = client.Delete(cmd.Context(), v.Name, force)
			}
			if err != nil {
				return advise(err)
			}
			fmt.Fprintf(cmd.OutOrStdout(), "volume %s is deleted: %s\n", v.Name, what)
			return nil
		},
	}
	cmd.Flags().BoolVarP(&yes, "yes", "y", false, "don't ask")
	cmd.Flags().BoolVar(&force, "force", false, "delete even a volume that belongs to a claim")
	cmd.Flags().BoolVar(&kept, "kept", false, "remove the files of a volume that was deleted before, and archived or retained")
	return cmd
}

// keptError says that a volume is not what --kept, or its absence, asks for.
func keptError(v control.Volume, isKept bool) error {
	if isKept {
		return &usageError{fmt.Errorf("volume %s is already deleted, and its files are %s; use --kept to remove them too", v.Name, v.State)}
	}
	return &usageError{fmt.Errorf("volume %s is not archived or retained, but in use: don't use --kept", v.Name)}
}

func deleteQuestion(v control.Volume, fate string) string {
	what := volume.FormatSize(v.Size)
	if v.Used != nil {
		what += fmt.Sprintf(", %s used in %s", volume.FormatSize(v.Used.Bytes), volume.FormatCount(v.Used.Inodes, "file"))
	}
	if v.Claim != nil {
		what += ", of the claim " + claimName(v)
	}
	return fmt.Sprintf("Delete volume %s (%s)? Then %s. [y/N] ", v.Name, what, fate)
}

// confirm asks a person.
func confirm(in io.Reader, out io.Writer, question string) error {
	fmt.Fprint(out, question)
	answer, err := bufio.NewReader(in).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("read the answer: %w", err)
	}
	switch strings.ToLower(strings.TrimSpace(answer)) {
	case "y", "yes":
		return nil
	case "":
		if err != nil {
			return errors.New("no answer; in a script use --yes")
		}
	}
	return errors.New(`the answer was not "y"`)
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
			if err := checkOutput(output, outputYAML, outputJSON); err != nil {
				return err
			}
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

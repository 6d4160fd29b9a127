package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

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
		Short: "Raise the size of a volume, while it is in use",
		Long: `Raise the size of a volume, while it is in use, and with it how many files it may have. A
size can't be lowered.

A volume that belongs to a claim is refused: raise the claim's request, and the volume
follows.`,
		Example: "  # Room for more; pods see it at once\n  podnas volume resize scratch 20Gi\n\n" +
			"  # Its size is right, but it is to have more small files\n  podnas volume resize scratch 20Gi --bytes-per-inode 1Ki",
		Args: exactly("NAME", "SIZE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			size, err := parseSize(args[1])
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
			fmt.Fprintf(cmd.OutOrStdout(), "volume %s may grow to %s%s\n", v.Name, volume.FormatSize(v.Size), files)
			fmt.Fprintf(cmd.ErrOrStderr(), "A cluster that has its PersistentVolume learns it by:\n  podnas volume manifests %s | kubectl apply -f -\n", v.Name)
			return nil
		},
	}
	cmd.Flags().Var(&bytesPerInode, "bytes-per-inode", "it may have one file (directory, symbolic link, and all else too) for each so many\nbytes from now on")
	cmd.Flags().BoolVar(&force, "force", false, "also a volume that belongs to a claim; the claim is not changed")
	return cmd
}

func newDeleteCommand(cfg *volumeConfig) *cobra.Command {
	var force, yes, kept bool
	cmd := &cobra.Command{
		Use:     "delete NAME",
		Aliases: []string{"rm", "remove"},
		Short:   "Delete a volume: its files too, or as its --on-delete says",
		Long: `Delete a volume. Clients that have it mounted get errors from then on. Its files are
removed in the background, moved to the archive, or stay where they are, as the volume's
--on-delete says; 'podnas volume show NAME' tells.

A volume that belongs to a claim is refused: delete the claim. A copy that is under way is
ended.

With --kept, the files go of a volume that was deleted before, and archived or retained.`,
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
			what := fate(v, cfg.root)
			if kept || v.State == volume.Copying {
				what = "its files are removed in the background"
			}
			if !yes {
				if !isTerminal(cmd.InOrStdin()) {
					return &usageError{fmt.Errorf("volume %s is not deleted: nobody is here to ask, so say --yes", v.Name)}
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
	cmd.Flags().BoolVar(&force, "force", false, "also a volume that belongs to a claim")
	cmd.Flags().BoolVar(&kept, "kept", false, "remove what was kept of a volume that was deleted before")
	return cmd
}

// keptError says that a volume is not what --kept, or its absence, asks for.
func keptError(v control.Volume, isKept bool) error {
	if isKept {
		return &usageError{fmt.Errorf("volume %s is deleted already, and its files are %s; to remove them too, say --kept", v.Name, v.State)}
	}
	return &usageError{fmt.Errorf("volume %s is in use, it was not archived or retained: leave --kept away", v.Name)}
}

// fate is what becomes of the files of a volume that is deleted.
func fate(v control.Volume, root string) string {
	switch v.OnDelete {
	case volume.ArchiveFiles:
		return "its files are in the archive, 'podnas volume adopt " + v.Name + "' brings it back"
	case volume.RetainFiles:
		return "its files stay in " + filepath.Join(root, v.Path) + ", 'podnas volume adopt " + v.Name + "' brings it back"
	default:
		return "its files are removed in the background"
	}
}

func deleteQuestion(v control.Volume, fate string) string {
	what := volume.FormatSize(v.Size)
	if v.Used != nil {
		what += fmt.Sprintf(", %s used in %s", volume.FormatSize(int64(v.Used.Bytes)), volume.FormatCount(v.Used.Files, "file"))
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
			return errors.New("nobody answered; in a script say --yes")
		}
	}
	return errors.New(`the answer was not "y"`)
}

const manifestsExamples = `  # The PersistentVolume of one volume
  podnas volume manifests scratch

  # After the cluster was made anew, with this podnas over the old disk: give it the
  # volumes, and the claims that had them
  kubectl exec -n podnas podnas-0 -- podnas volume manifests --bind | kubectl apply -f -`

func newManifestsCommand(cfg *volumeConfig) *cobra.Command {
	var (
		bind   bool
		output string
	)
	cmd := &cobra.Command{
		Use:   "manifests [NAME...]",
		Short: "Print the PersistentVolumes of volumes, with --bind also their claims",
		Long: `Print the PersistentVolumes of the named volumes, or of all, as they are to be applied to
a cluster: with the address that this podnas has now.

A volume that belongs to a claim is kept for the claim of that namespace and name. With
--bind these claims are printed too; their namespaces must be there.`,
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
	cmd.Flags().BoolVar(&bind, "bind", false, "also the claims that the volumes belong to")
	addOutputFlag(cmd.Flags(), &output, outputYAML, outputJSON)
	return cmd
}

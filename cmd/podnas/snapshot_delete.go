package main

import (
	"bufio"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/podnas/podnas/internal/volume"
	"github.com/podnas/podnas/provisioner/control"
)

const snapshotDeleteLong = `Delete snapshots. Clients that read one, or have its files open, get errors from then on ("Stale file handle"). Its files
are removed in the background, which gives back the blocks that nothing else shares: other snapshots
and the volume do not change.

A snapshot that is not complete is given up. One that a volume is being copied from, or that a volume
shows, is not deleted.

Several snapshots are deleted one after the other; if some of them fail, the exit code is 1.

`

func newSnapshotDeleteCommand(cfg *volumeConfig) *cobra.Command {
	var yes bool
	cmd := &cobra.Command{
		Use:     "delete VOLUME NAME...",
		Aliases: []string{"rm", "remove"},
		Short:   "Delete snapshots of a volume",
		Long:    snapshotDeleteLong + snapshotExitHelp,
		Example: "  podnas snapshot delete data before-upgrade\n  podnas snapshot delete data 2026-11-28-174500 2026-11-29-174500 --yes    # in a script",
		Args: func(cmd *cobra.Command, args []string) error {
			return from(2, append([]string{"VOLUME", "NAME"}, args...)...)(cmd, args) // any number of names
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			client, err := cfg.client()
			if err != nil {
				return err
			}
			answers := bufio.NewReader(cmd.InOrStdin())
			return eachName(cmd, "snapshot", "deleted", yes, args[1:], func(name string) error {
				return cfg.deleteSnapshot(cmd, client, answers, args[0], name, yes)
			})
		},
	}
	cmd.Flags().BoolVarP(&yes, "yes", "y", false, "don't ask")
	return cmd
}

// deleteSnapshot deletes one snapshot, when a person has agreed to it.
func (c *volumeConfig) deleteSnapshot(cmd *cobra.Command, client *control.Client, answers *bufio.Reader, of, name string, yes bool) error {
	ctx := cmd.Context()
	s, err := client.GetSnapshot(ctx, of, name)
	if err != nil {
		return c.adviseSnapshot(ctx, client, of, name, err)
	}
	if !yes {
		what := fmt.Sprintf("%s with %s, %s old", volume.FormatCount(s.Files, "file"), volume.FormatSize(s.Bytes), snapshotAge(&s))
		if s.VolumeDeleted {
			what += "; its volume is deleted, so this may be all that is left of it"
		}
		if err := confirm(answers, cmd.ErrOrStderr(), fmt.Sprintf("Delete snapshot %s of volume %s (%s)? [y/N] ", name, s.Volume, what), "--yes"); err != nil {
			return err
		}
	}
	if err := client.DeleteSnapshot(ctx, of, name); err != nil {
		return c.adviseSnapshot(ctx, client, of, name, err)
	}
	fmt.Fprintf(cmd.OutOrStdout(), "snapshot %s of volume %s is deleted: its files are removed in the background\n", name, s.Volume)
	return nil
}

package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/podnas/podnas/internal/volume"
	"github.com/podnas/podnas/provisioner/control"
)

const snapshotRestoreLong = `Make a volume what its snapshot has, in place. First what the volume has now is kept in a snapshot of its
own, before-restore-DATE, to which you can restore it as well. Delete that one when you don't need it.

Until the command ends, changes by clients wait, and they can read. Files whose names have stayed are the
same files for clients, so mounts go on. Those that the snapshot does not have are removed.

A volume is not restored while clients of NFSv4 have files of it open: end the programs first, or use --force.
Clients of version 3 do not tell what they have open. A program that has a file open keeps what it has in
memory, and may write it.

To get single files back, copy them from .snapshots/NAME of the mounted volume. For a new volume with the files of
the snapshot, see 'podnas volume copy --snapshot'.

How full the volume is does not matter. The disk must have room for what is kept before, which is promised as for
any snapshot that you ask for, and some for names and inodes; otherwise nothing is changed.

If podnas ends before the volume is restored, it goes on when it starts again. If the restore fails, as when
others have filled the disk meanwhile, the volume has a part of each, and changes by its clients go on waiting:
correct the cause, and run the command again, with this snapshot or with before-restore-DATE, which still has all
of what there was. With --give-up clients go on with the volume as it is. That also ends a restore that is
under way.

`

func newSnapshotRestoreCommand(cfg *volumeConfig) *cobra.Command {
	var (
		force  bool
		giveUp bool
		output string
	)
	cmd := &cobra.Command{
		Use:     "restore VOLUME NAME",
		Aliases: []string{"rollback"},
		Short:   "Make a volume what its snapshot has, in place",
		Long:    snapshotRestoreLong + snapshotExitHelp,
		Example: "  podnas snapshot restore data before-upgrade\n\n  # In a cluster, with the programs ended\n" +
			"  kubectl scale deployment app --replicas=0\n  kubectl podnas snapshot restore data before-upgrade",
		Args: exactly("VOLUME", "NAME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			client, err := cfg.client()
			if err != nil {
				return err
			}
			if giveUp && force {
				return &usageError{errors.New("--give-up restores nothing, so it has no use for --force")}
			}
			if giveUp {
				return giveUpRestore(cmd, client, args[0], args[1])
			}
			restored, err := client.StartRestore(cmd.Context(), args[0], args[1], force)
			if err == nil {
				restored, err = awaitRestore(cmd, client, restored)
			}
			switch {
			case err != nil:
				return cfg.adviseSnapshot(cmd.Context(), client, args[0], args[1], err)
			case output != outputTable:
				return printValue(cmd.OutOrStdout(), output, restored)
			default:
				fmt.Fprintf(cmd.OutOrStdout(), "volume %s is what its snapshot %s has: %s; what it was is in its snapshot %s\n",
					args[0], args[1], volume.FormatCount(restored.Files, "file"), restored.Safety)
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&force, "force", false, "restore it although clients have files open")
	cmd.Flags().BoolVar(&giveUp, "give-up", false, "end its restore that has failed, or is under way: clients go on with what the volume has")
	addOutputFlag(cmd.Flags(), &output, outputTable, outputJSON, outputYAML)
	return cmd
}

// giveUpRestore ends the restore of a volume.
func giveUpRestore(cmd *cobra.Command, client *control.Client, of, name string) error {
	ended, err := client.GiveUpRestore(cmd.Context(), of, name)
	if err != nil {
		return err
	}
	fmt.Fprintf(cmd.OutOrStdout(), "the restore of volume %s to its snapshot %s has ended after %s of %s, and its clients go on",
		of, ended.Name, volume.FormatCount(ended.Files, ""), volume.FormatCount(ended.Total, "file"))
	if ended.Safety != "" {
		fmt.Fprintf(cmd.OutOrStdout(), "; what it was is in its snapshot %s", ended.Safety)
	}
	fmt.Fprintln(cmd.OutOrStdout())
	return nil
}

// awaitRestore waits until a volume is restored, and meanwhile says how far it is.
func awaitRestore(cmd *cobra.Command, client *control.Client, going volume.Restore) (volume.Restore, error) {
	look := func(now volume.Restore) (string, bool) {
		if now.Safety == "" {
			return fmt.Sprintf("volume %s: keeping what it has in a snapshot", now.Volume), now.Done
		}
		return fmt.Sprintf("volume %s: %s of %s restored", now.Volume, volume.FormatCount(now.Files, ""), volume.FormatCount(now.Total, "file")), now.Done
	}
	now, err := await(cmd, snapshotPoll, going, look, func(ctx context.Context) (volume.Restore, error) { return client.GetRestore(ctx, going.Volume) })
	if isInterrupted(cmd.Context(), err) {
		err = &interruptedError{fmt.Sprintf("volume %s is being restored in the background; changes by its clients wait for that", now.Volume)}
	}
	return now, err
}

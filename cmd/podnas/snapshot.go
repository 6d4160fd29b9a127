package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/podnas/podnas/internal/volume"
	"github.com/podnas/podnas/provisioner/control"
)

const snapshotLong = `Take, list, compare, delete and restore snapshots of volumes.

A snapshot has all files of a volume as they were at one moment, between two calls of its clients. Clients
find it in .snapshots/NAME at the root of the volume, where nobody can change it, and which ls and find
do not show. Taking one stops nobody: pods go on reading and writing meanwhile.

What a client has not sent yet is not in a snapshot: the kernel of a node keeps written data for a
while. fsync(2), sync(1), or closing the file sends it.

A snapshot shares its blocks with the volume, so it takes space only for what is changed or removed
after it, and for its names and inodes. It does not count for the size of the volume. This needs a disk with
XFS (reflink=1, which mkfs.xfs sets) or btrfs; on ext4, overlay and tmpfs there are none: there, podnas
serve --disk-image makes an XFS in a file. Room is promised for what may change after a snapshot that
somebody asks for; 'podnas volume set' says how much, and which snapshots podnas takes by itself.

`

const snapshotExitHelp = `Exit codes: 0 success; 1 failed; 2 invalid request, or a disk that can have no
snapshots; 3 no such volume or snapshot; 4 conflict: the name is taken, another snapshot of the volume is
being taken, or a volume is being copied from it; 5 too little space; 6 podnas is not running;
130 interrupted, what was begun may go on.`

const snapshotExamples = `  # Before an upgrade
  podnas snapshot create data before-upgrade

  # One file is needed again: on any machine that has the volume mounted
  cp -a /mnt/data/.snapshots/before-upgrade/app.conf /mnt/data/

  # What has changed since
  podnas snapshot diff data before-upgrade

  # All of it, as a new volume
  podnas volume copy data data-before --snapshot before-upgrade | kubectl apply -f -`

const snapshotCreateLong = `Take a snapshot of a volume, and wait until it is complete. Without a NAME it gets one by the date, in
UTC: 2026-11-28-174500.

The moment of the snapshot comes within milliseconds; for these, changes of the volume wait. The rest goes
on in the background, about 0.15 ms for a file. Meanwhile, the first
change of each file waits until that file is cloned, which takes less than a millisecond for most files.
A file of very many extents, such as the image of a virtual machine, takes longer.

If podnas ends before a snapshot is complete, nothing is left of it. One snapshot of a volume is taken
at a time. 'podnas snapshot delete' ends it.

`

// snapshotPoll is the time between two reads of a snapshot's progress.
const snapshotPoll = 250 * time.Millisecond

func newSnapshotCommand() *cobra.Command {
	var cfg volumeConfig
	cmd := group(&cobra.Command{
		Use:     "snapshot",
		Aliases: []string{"snapshots", "snap"},
		Short:   "Take, list, compare, delete and restore snapshots of volumes",
		Long:    snapshotLong + snapshotExitHelp,
		Example: snapshotExamples,
	})
	addRootFlag(cmd.PersistentFlags(), &cfg.root, "directory of the disk that the running podnas serves")
	for _, sub := range []struct {
		command  *cobra.Command
		complete cobra.CompletionFunc
	}{
		{newSnapshotCreateCommand(&cfg), cfg.completeVolumes(false, volume.Ready)},
		{newSnapshotListCommand(&cfg), cfg.completeSnapshots(0)},
		{newSnapshotShowCommand(&cfg), cfg.completeSnapshots(1)},
		{newSnapshotDeleteCommand(&cfg), cfg.completeSnapshots(-1)},
		{newSnapshotRestoreCommand(&cfg), cfg.completeSnapshots(1)},
		{newSnapshotDiffCommand(&cfg), cfg.completeSnapshots(2)},
	} {
		sub.command.ValidArgsFunction = sub.complete
		cmd.AddCommand(sub.command)
	}
	return cmd
}

func newSnapshotCreateCommand(cfg *volumeConfig) *cobra.Command {
	var (
		noWait bool
		output string
	)
	cmd := &cobra.Command{
		Use:     "create VOLUME [NAME]",
		Aliases: []string{"take"},
		Short:   "Take a snapshot of a volume that may be in use",
		Long:    snapshotCreateLong + snapshotExitHelp,
		Example: "  podnas snapshot create data before-upgrade\n\n  # In a script: the name that it got\n  name=$(podnas snapshot create data -o name)\n\n" +
			"  # In a cluster\n  kubectl exec -n podnas podnas-0 -- podnas snapshot create data",
		Args: from(1, "VOLUME", "NAME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			client, err := cfg.client()
			if err != nil {
				return err
			}
			name := ""
			if len(args) > 1 {
				name = args[1]
			}
			taken, err := client.CreateSnapshot(cmd.Context(), args[0], name)
			if err == nil && !noWait {
				taken, err = awaitSnapshot(cmd, client, taken)
			}
			if err != nil {
				return cfg.adviseSnapshot(cmd.Context(), client, args[0], "", err)
			}
			switch output {
			case outputName:
				fmt.Fprintln(cmd.OutOrStdout(), taken.Name)
			case outputTable:
				fmt.Fprintln(cmd.OutOrStdout(), takenText(taken))
			default:
				return printValue(cmd.OutOrStdout(), output, taken)
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&noWait, "no-wait", false, "don't wait until it is complete; 'podnas snapshot show' tells its end")
	addOutputFlag(cmd.Flags(), &output, outputTable, outputName, outputJSON, outputYAML)
	return cmd
}

// awaitSnapshot waits until a snapshot is complete, and meanwhile says how far it is.
func awaitSnapshot(cmd *cobra.Command, client *control.Client, taking control.Snapshot) (control.Snapshot, error) {
	now, err := await(cmd, snapshotPoll, taking, func(now control.Snapshot) (string, bool) { return takingText(now), now.State != control.SnapshotTaking },
		func(ctx context.Context) (control.Snapshot, error) {
			return client.GetSnapshot(ctx, taking.Volume, taking.Name)
		})
	if isInterrupted(cmd.Context(), err) {
		err = &interruptedError{takenText(now)}
	}
	return now, err
}

// await asks again each period until something is done, and meanwhile says how far it is. When the command is interrupted, it returns how
// far it was, and context.Canceled.
func await[T any](cmd *cobra.Command, period time.Duration, now T, look func(T) (text string, done bool), ask func(context.Context) (T, error)) (T, error) {
	p := newProgress(cmd.ErrOrStderr())
	p.last = time.Now() // most is done before there is anything to say
	defer p.end()
	for {
		text, done := look(now)
		if done {
			return now, nil
		}
		p.say(text)
		if !sleep(cmd.Context(), period) {
			return now, cmd.Context().Err()
		}
		next, err := ask(cmd.Context())
		switch {
		case cmd.Context().Err() != nil:
			return now, cmd.Context().Err()
		case err != nil:
			return now, err
		}
		now = next
	}
}

// takingText says how far a snapshot is.
func takingText(s control.Snapshot) string {
	if s.Created.IsZero() {
		return fmt.Sprintf("snapshot %s of volume %s: waiting for a moment between two changes", s.Name, s.Volume)
	}
	text := fmt.Sprintf("snapshot %s of volume %s: %s with %s", s.Name, s.Volume, volume.FormatCount(s.Files, "file"), volume.FormatSize(s.Bytes))
	if s.Total > 0 {
		text += fmt.Sprintf(" of %s, %d%%", volume.FormatSize(s.Total), min(99, volume.Percent(s.Bytes, s.Total)))
	}
	return text
}

// takenText says what a snapshot is.
func takenText(s control.Snapshot) string {
	if s.State == control.SnapshotTaking {
		return fmt.Sprintf("snapshot %s of volume %s is being taken in the background: 'podnas snapshot show %[2]s %[1]s' tells how far it is, and 'podnas snapshot delete %[2]s %[1]s' ends it", s.Name, s.Volume)
	}
	return fmt.Sprintf("snapshot %s of volume %s is complete: %s with %s, as of %s; clients find it in .snapshots/%[1]s",
		s.Name, s.Volume, volume.FormatCount(s.Files, "file"), volume.FormatSize(s.Bytes), s.Created.Format(time.RFC3339))
}

// adviseSnapshot adds to an error what a person can do about it. The name of the snapshot may be empty.
func (c *volumeConfig) adviseSnapshot(ctx context.Context, client *control.Client, of, name string, err error) error {
	var said *control.Error
	if !errors.As(err, &said) || said.Code != control.NotFound {
		return err
	}
	snapshots, listErr := client.Snapshots(ctx, of)
	if listErr != nil {
		volumes, _ := client.List(ctx, true) // a suggestion less
		var names []string
		for i := range volumes {
			names = append(names, volumes[i].Name)
		}
		return fmt.Errorf("%w%s: see 'podnas volume list --all'", err, didYouMean(nearest(of, names)))
	}
	var names []string
	for i := range snapshots {
		names = append(names, snapshots[i].Name)
	}
	near := ""
	if name != "" {
		near = didYouMean(nearest(name, slices.Compact(names)))
	}
	return fmt.Errorf("%w%s: see 'podnas snapshot list %s'", err, near, of)
}

// completeSnapshots has a shell offer volumes with snapshots, and then the names of these: so many, or any number if it
// is less than 0.
func (c *volumeConfig) completeSnapshots(names int) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
		if names >= 0 && len(args) > names {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		of := ""
		if len(args) > 0 {
			of = args[0]
		}
		return c.snapshotCompletions(cmd, of, args)
	}
}

// snapshotCompletions returns the volumes with snapshots, or with a volume the names of its snapshots, but those in
// given.
func (c *volumeConfig) snapshotCompletions(cmd *cobra.Command, of string, given []string) ([]cobra.Completion, cobra.ShellCompDirective) {
	client, err := c.client()
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	ctx, cancel := context.WithTimeout(cmd.Context(), completionTimeout)
	defer cancel()
	snapshots, err := client.Snapshots(ctx, of)
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var offered []cobra.Completion
	counts := map[string]int{}
	for i := range snapshots {
		s := &snapshots[i]
		switch {
		case of == "":
			counts[s.Volume]++
		case !slices.Contains(given[min(1, len(given)):], s.Name):
			offered = append(offered, cobra.CompletionWithDesc(s.Name, describeSnapshot(s)))
		}
	}
	for name, n := range counts {
		offered = append(offered, cobra.CompletionWithDesc(name, volume.FormatCount(n, "snapshot")))
	}
	slices.Sort(offered)
	return offered, cobra.ShellCompDirectiveNoFileComp
}

// completeSourceSnapshots has a shell offer the snapshots of the volume that is to be copied: that of --from, or the first
// argument.
func (c *volumeConfig) completeSourceSnapshots(cmd *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
	of := ""
	if from := cmd.Flags().Lookup("from"); from != nil {
		of = from.Value.String()
	} else if len(args) > 0 {
		of = args[0]
	}
	if of == "" {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return c.snapshotCompletions(cmd, of, nil)
}

// describeSnapshot is what a shell shows beside a name.
func describeSnapshot(s *control.Snapshot) string {
	if s.State == control.SnapshotTaking {
		return "being taken"
	}
	return fmt.Sprintf("%s ago, %s", age(s.Created), volume.FormatSize(s.Bytes))
}

package main

import (
	"cmp"
	"fmt"
	"io"
	"path"
	"path/filepath"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/podnas/podnas/internal/volume"
	"github.com/podnas/podnas/provisioner/control"
)

const snapshotListLong = `List the snapshots of a volume, or of all volumes, the oldest of each volume first.

AGE is since the moment that a snapshot has. FILES and BYTES are those of the snapshot by itself; most of its blocks
are also the volume's, and take no space of their own until they are changed there. A snapshot is "ready", or "taking"
until it is complete. A volume that was deleted keeps its snapshots, and the list says so. SCHEDULED (-o wide) has the kinds
of a snapshot that podnas has taken by the volume's schedule; PROMISED is the room for what may change after one that somebody
has asked for.

-o name prints the names alone, or without a VOLUME each volume and name.`

func newSnapshotListCommand(cfg *volumeConfig) *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use:     "list [VOLUME]",
		Aliases: []string{"ls"},
		Short:   "List snapshots",
		Long:    snapshotListLong,
		Example: "  podnas snapshot list\n  podnas snapshot list data\n\n  # Those of deleted volumes, for programs\n" +
			"  podnas snapshot list -o json | jq -r '.[] | select(.volumeDeleted) | [.volume, .name] | @tsv'",
		Args: from(0, "VOLUME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			client, err := cfg.client()
			if err != nil {
				return err
			}
			of := strings.Join(args, "")
			list, err := client.Snapshots(cmd.Context(), of)
			switch {
			case err != nil:
				return cfg.adviseSnapshot(cmd.Context(), client, of, "", err)
			case output == outputJSON || output == outputYAML:
				return printValue(cmd.OutOrStdout(), output, list)
			case output == outputName:
				printSnapshotNames(cmd.OutOrStdout(), list, of == "")
			case len(list) == 0:
				fmt.Fprintln(cmd.ErrOrStderr(), "there are no snapshots; 'podnas snapshot create VOLUME' takes one")
			default:
				return printSnapshots(cmd.OutOrStdout(), newPainter(cmd, cmd.OutOrStdout()), list, output == outputWide)
			}
			return nil
		},
	}
	addOutputFlag(cmd.Flags(), &output, outputTable, outputWide, outputName, outputJSON, outputYAML)
	return cmd
}

func printSnapshotNames(out io.Writer, list []control.Snapshot, volumes bool) {
	for i := range list {
		if volumes {
			fmt.Fprint(out, list[i].Volume, " ")
		}
		fmt.Fprintln(out, list[i].Name)
	}
}

func printSnapshots(out io.Writer, p painter, list []control.Snapshot, wide bool) error {
	w := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
	header := []string{"VOLUME", "NAME", "AGE", "FILES", "BYTES", p.paint(noColour, "STATE")}
	if wide {
		header = append(header, "PROMISED", "SCHEDULED", "SIZE", "CREATED", "TOOK", "VOLUME-ID")
	}
	fmt.Fprintln(w, strings.Join(header, "\t"))
	for i := range list {
		s := &list[i]
		of, colour := s.Volume, noColour
		if s.VolumeDeleted {
			of += " (deleted)"
		}
		if s.State == control.SnapshotReady {
			colour = colourOfState(volume.Ready)
		}
		row := []string{of, s.Name, snapshotAge(s), volume.FormatCount(s.Files, ""), volume.FormatSize(s.Bytes), p.paint(colour, s.State)}
		if wide {
			row = append(row, volume.FormatSize(s.Reserve), cmp.Or(strings.Join(s.Scheduled, ","), "-"), volume.FormatSize(s.Size), createdAt(s), tookOf(s), fmt.Sprintf("%016x", s.VolumeID))
		}
		fmt.Fprintln(w, strings.Join(row, "\t"))
	}
	return w.Flush()
}

func snapshotAge(s *control.Snapshot) string {
	if s.Created.IsZero() {
		return "-"
	}
	return age(s.Created)
}

func createdAt(s *control.Snapshot) string {
	if s.Created.IsZero() {
		return "-"
	}
	return s.Created.Format(time.RFC3339)
}

// tookOf is the time from the moment of a snapshot to its completion.
func tookOf(s *control.Snapshot) string {
	if s.Completed.IsZero() {
		return "-"
	}
	return max(0, s.Completed.Sub(s.Created)).Round(time.Millisecond).String()
}

// promisedFor says which room is promised for what a snapshot may come to take.
func promisedFor(s *control.Snapshot) string {
	switch {
	case len(s.Scheduled) > 0:
		return "nothing: it is deleted when the disk fills up"
	case s.State == control.SnapshotTaking:
		return ""
	}
	return volume.FormatSize(s.Reserve) + " of the disk, for what changes after it"
}

func newSnapshotShowCommand(cfg *volumeConfig) *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use:     "show VOLUME NAME",
		Aliases: []string{"get", "describe"},
		Short:   "Show all details of one snapshot, and how to use it",
		Long: `Show all details of one snapshot: the moment that it has, how many files, where clients find it, and how to
make a volume of it. While it is being taken, show how far it is; if it could not be taken, say why, once.

` + snapshotExitHelp,
		Example: "  # The moment that it has, and where its files are\n  podnas snapshot show data before-upgrade\n\n  # For programs\n  podnas snapshot show data before-upgrade -o yaml",
		Args:    exactly("VOLUME", "NAME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			client, err := cfg.client()
			if err != nil {
				return err
			}
			s, err := client.GetSnapshot(cmd.Context(), args[0], args[1])
			if err != nil {
				return cfg.adviseSnapshot(cmd.Context(), client, args[0], args[1], err)
			}
			shown := shownSnapshot{s, filepath.Join(cfg.root, s.Directory())}
			if output != outputTable {
				return printValue(cmd.OutOrStdout(), output, shown)
			}
			return printSnapshot(cmd.OutOrStdout(), shown)
		},
	}
	addOutputFlag(cmd.Flags(), &output, outputTable, outputJSON, outputYAML)
	return cmd
}

// shownSnapshot is what 'podnas snapshot show' prints.
type shownSnapshot struct {
	control.Snapshot
	Directory string `json:"directory"` // of its files, on podnas's machine or in its pod
}

func printSnapshot(out io.Writer, s shownSnapshot) error {
	of, clients := s.Volume, path.Join(".snapshots", s.Name)+" at the root of the volume"
	state := s.State
	if s.VolumeDeleted {
		of, clients = of+", which is deleted", "not, as its volume is deleted"
	}
	created := "not yet"
	if !s.Created.IsZero() {
		created = fmt.Sprintf("%s (%s ago)", s.Created.Format(time.RFC3339), age(s.Created))
	}
	directory, use := s.Directory, fmt.Sprintf("podnas volume copy %s NEW --snapshot %s", s.Volume, s.Name)
	if s.State == control.SnapshotTaking {
		state, directory, clients, use = takingText(s.Snapshot), "", "", ""
	}
	return printDetails(out, [][2]string{
		{"Name:", s.Name},
		{"Volume:", of},
		{"State:", state},
		{"Moment:", created},
		{"Took:", tookOf(&s.Snapshot)},
		{"Pause:", pauseText(&s.Snapshot)},
		{"Longest wait:", waitText(&s.Snapshot)},
		{"Scheduled:", strings.Join(s.Scheduled, ", ")},
		{"Files:", volume.FormatCount(s.Files, "")},
		{"Bytes:", volume.FormatSize(s.Bytes) + ", mostly shared with the volume"},
		{"Unchanged:", unchangedText(s.Linked)},
		{"Promised:", promisedFor(&s.Snapshot)},
		{"Size:", volume.FormatSize(s.Size) + ", the volume's limit at that moment"},
		{"Directory:", directory},
		{"Clients find it:", clients},
		{"As a volume:", use},
		{"Shown by:", strings.Join(s.ShownBy, ", ")},
	})
}

// unchangedText says how many files the snapshot before has, too.
func unchangedText(files int64) string {
	if files == 0 {
		return ""
	}
	return volume.FormatCount(files, "file") + ", which take nothing again: they are those of the snapshot before"
}

// pauseText says how long all changes have waited for the moment of the snapshot.
func pauseText(s *control.Snapshot) string {
	if s.Paused == 0 {
		return ""
	}
	return (time.Duration(s.Paused) * time.Millisecond).String() + ", in which all changes waited for its moment"
}

// waitText says how long a change has waited for the snapshot.
func waitText(s *control.Snapshot) string {
	if s.LongestWait == 0 {
		return ""
	}
	text := (time.Duration(s.LongestWait) * time.Millisecond).String()
	if s.WaitedFor != "" {
		text += ", of a change of " + plainPath(s.WaitedFor)
	}
	return text
}

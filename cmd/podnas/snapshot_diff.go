package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"path/filepath"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/podnas/podnas/internal/volume"
	"github.com/podnas/podnas/provisioner/control"
	"github.com/podnas/podnas/server/snapshot"
)

const snapshotDiffLong = `Print what has changed in a volume from its snapshot A to its snapshot B, or without B until now.

A line has "+" for what was added, "-" for what was removed, and "M" for what has changed, and in which way:
"content" (or the target of a link), "mode", "owner" (or group), "attributes" (extended ones and ACLs), and
"modified", the time. A directory has a "/" at its end, and comes before what is in it; a change of its names is
no change of the directory. A file that was renamed is removed and added. Names that a terminal might not
take are quoted.

A file that two snapshots have in common, or that has not changed since A, is not read. Of other files of the
same size the content is compared. A volume that changes meanwhile is compared as it is found.

The exit code is 0 also if there are differences.

`

func newSnapshotDiffCommand(cfg *volumeConfig) *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use:     "diff VOLUME A [B]",
		Aliases: []string{"compare"},
		Short:   "Print what has changed since a snapshot, or between two",
		Long:    snapshotDiffLong + snapshotExitHelp,
		Example: "  # Since the snapshot\n  podnas snapshot diff data before-upgrade\n\n  # Between two\n  podnas snapshot diff data monday tuesday\n\n" +
			"  # For programs: the files that were removed\n  podnas snapshot diff data monday -o json | jq -r '.[] | select(.kind == \"removed\") | .path'",
		Args: from(2, "VOLUME", "A", "B"),
		RunE: func(cmd *cobra.Command, args []string) error {
			client, err := cfg.client()
			if err != nil {
				return err
			}
			a, err := cfg.comparable(cmd.Context(), client, args[0], args[1])
			if err != nil {
				return err
			}
			b, err := cfg.comparedWith(cmd.Context(), client, a, args)
			if err != nil {
				return err
			}
			return printDiff(cmd, output, cfg.earlier(&a), b, len(args) == 2)
		},
	}
	addOutputFlag(cmd.Flags(), &output, outputTable, outputJSON)
	return cmd
}

// comparable returns a snapshot that is complete.
func (c *volumeConfig) comparable(ctx context.Context, client *control.Client, of, name string) (control.Snapshot, error) {
	s, err := client.GetSnapshot(ctx, of, name)
	switch {
	case err != nil:
		return s, c.adviseSnapshot(ctx, client, of, name, err)
	case s.State != control.SnapshotReady:
		return s, &control.Error{Code: control.Busy, Message: fmt.Sprintf("snapshot %s of volume %s is being taken; compare it after that", name, of)}
	}
	return s, nil
}

// comparedWith returns what a snapshot is compared with.
func (c *volumeConfig) comparedWith(ctx context.Context, client *control.Client, a control.Snapshot, args []string) (*snapshot.Earlier, error) {
	if len(args) == 3 {
		b, err := c.comparable(ctx, client, args[0], args[2])
		return c.earlier(&b), err
	}
	v, err := client.Get(ctx, a.Volume)
	if err != nil {
		return nil, advise(err)
	}
	if v.ID != a.VolumeID {
		return nil, &control.Error{Code: control.NotFound, Message: fmt.Sprintf("the volume of snapshot %s is deleted, and volume %s is another one; compare it with another snapshot", a.Name, a.Volume)}
	}
	return &snapshot.Earlier{Tree: filepath.Join(c.root, v.Path)}, nil
}

// earlier is where a snapshot is.
func (c *volumeConfig) earlier(s *control.Snapshot) *snapshot.Earlier {
	return &snapshot.Earlier{Tree: filepath.Join(c.root, s.Directory()), Catalogue: filepath.Join(c.root, s.Catalogue()), Cut: s.Created}
}

// change is what a program gets of a difference.
type change struct {
	Kind snapshot.Kind `json:"kind"`
	Path string        `json:"path"`
	// Bytes is the path where it is not UTF-8, which JSON can't have.
	Bytes []byte   `json:"pathBase64,omitempty"`
	What  []string `json:"what,omitempty"`
	Size  int64    `json:"size"`
}

// printDiff prints the differences as they are found.
func printDiff(cmd *cobra.Command, output string, a, b *snapshot.Earlier, isVolume bool) error {
	out, counts := cmd.OutOrStdout(), map[snapshot.Kind]int64{}
	total, between := 0, "["
	err := snapshot.Diff(cmd.Context(), a, b, isVolume, func(c *snapshot.Change) error {
		counts[c.Kind]++
		total++
		if output == outputTable {
			return printChange(out, c)
		}
		said := change{Kind: c.Kind, Path: c.Path, What: c.What.Words(), Size: c.Size}
		if !utf8.ValidString(c.Path) {
			said.Bytes = []byte(c.Path)
		}
		data, err := json.Marshal(said)
		if err == nil {
			_, err = fmt.Fprintf(out, "%s\n  %s", between, data)
		}
		between = ","
		return err
	})
	switch {
	case err != nil:
		return fmt.Errorf("compare: %w", err)
	case output == outputJSON && total == 0:
		fmt.Fprintln(out, "[]")
	case output == outputJSON:
		fmt.Fprintln(out, "\n]")
	case total == 0:
		fmt.Fprintln(cmd.ErrOrStderr(), "there are no differences")
	default:
		fmt.Fprintf(cmd.ErrOrStderr(), "%s added, %s removed, %s changed\n", volume.FormatCount(counts[snapshot.Added], ""),
			volume.FormatCount(counts[snapshot.Removed], ""), volume.FormatCount(counts[snapshot.Changed], ""))
	}
	return nil
}

func printChange(out io.Writer, c *snapshot.Change) error {
	line := map[snapshot.Kind]string{snapshot.Added: "+ ", snapshot.Removed: "- ", snapshot.Changed: "M "}[c.Kind] + plainPath(c.Path)
	if c.What != 0 {
		line += "   (" + strings.Join(c.What.Words(), ", ") + ")"
	}
	_, err := fmt.Fprintln(out, line)
	return err
}

// plainPath is a path as a terminal takes it, and as nobody takes it for anything else: quoted if need be.
func plainPath(path string) string {
	strange := func(r rune) bool { return !unicode.IsPrint(r) }
	if !utf8.ValidString(path) || strings.ContainsFunc(path, strange) || strings.HasPrefix(path, `"`) || strings.HasSuffix(path, ")") || strings.Contains(path, "   ") {
		return strconv.Quote(path)
	}
	return path
}

package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/podnas/podnas/internal/volume"
	"github.com/podnas/podnas/provisioner/control"
)

const deleteLong = `Delete volumes. Clients that have one mounted get errors from then on. Its files are removed in the
background, moved to the archive, or kept in their directory, as set by the volume's --on-delete;
'podnas volume show NAME' shows it. 'podnas volume archive' archives the files of any volume.

A volume's snapshots are kept: 'podnas snapshot delete' deletes them.

For a volume that belongs to a claim, delete the claim instead. Deleting a copy that is not
complete cancels it; its source can't be deleted until then.

--kept removes the files of a volume that was deleted before, and archived or retained.
` + severalHelp

const archiveLong = `Delete volumes and move their files to the archive, also if their --on-delete says otherwise. Clients
that have one mounted get errors from then on. 'podnas volume list --all' shows archived volumes,
'podnas volume adopt NAME' restores one, with --on-delete=archive, and 'podnas volume delete --kept
NAME' removes its files.

A volume of a claim is only archived with --force; then delete its claim.
` + severalHelp

const severalHelp = `
Several volumes are deleted or archived one after the other, each with a question and a line of its
own; a name that is given twice counts once. If some of them fail, the exit code is 1. With one name
it says why: see 'podnas volume --help'.`

func newDeleteCommand(cfg *volumeConfig) *cobra.Command {
	r := remover{volumeConfig: cfg, verb: "delete", done: "deleted"}
	cmd := &cobra.Command{
		Use:     "delete NAME...",
		Aliases: []string{"rm", "remove"},
		Short:   "Delete volumes, and their files as --on-delete says",
		Long:    deleteLong,
		Example: "  podnas volume delete scratch\n  podnas volume delete scratch scratch-2 --yes    # in a script\n" +
			"  podnas volume delete old --kept       # what 'podnas volume list --all' shows as archived",
		Args: atLeastOne("NAME"),
		RunE: r.run,
	}
	r.addFlags(cmd)
	cmd.Flags().BoolVar(&r.kept, "kept", false, "remove the files of a volume that was deleted before, and archived or retained")
	return cmd
}

func newArchiveCommand(cfg *volumeConfig) *cobra.Command {
	r := remover{volumeConfig: cfg, verb: "archive", done: "archived", archive: true}
	cmd := &cobra.Command{
		Use:     "archive NAME...",
		Short:   "Delete volumes, and move their files to the archive",
		Long:    archiveLong,
		Example: "  podnas volume archive scratch\n  podnas volume archive team-1 team-2 --yes    # in a script\n  podnas volume adopt team-1                   # restores it",
		Args:    atLeastOne("NAME"),
		RunE:    r.run,
	}
	r.addFlags(cmd)
	return cmd
}

// remover deletes or archives volumes.
type remover struct {
	*volumeConfig
	verb, done        string // of the messages: delete, deleted
	archive           bool
	force, yes, kept  bool
	answers           *bufio.Reader // of a person, to the questions of all volumes
	questions, stdout io.Writer
}

func (r *remover) addFlags(cmd *cobra.Command) {
	cmd.Flags().BoolVarP(&r.yes, "yes", "y", false, "don't ask")
	cmd.Flags().BoolVar(&r.force, "force", false, r.verb+" even a volume that belongs to a claim")
}

// run removes each volume that is named.
func (r *remover) run(cmd *cobra.Command, args []string) error {
	client, err := r.client()
	if err != nil {
		return err
	}
	r.answers, r.questions, r.stdout = bufio.NewReader(cmd.InOrStdin()), cmd.ErrOrStderr(), cmd.OutOrStdout()
	return eachName(cmd, "volume", r.done, r.yes, args, func(name string) error { return r.remove(cmd.Context(), client, name) })
}

// eachName calls remove for each name, which asks a person unless yes is set. A name that is given twice counts once: another
// thing of that name may be in the archive. One name ends in its own error. Of several, each failure is printed, and their
// number is the error. thing and done are words of the messages: "volume", "deleted".
func eachName(cmd *cobra.Command, thing, done string, yes bool, args []string, remove func(name string) error) error {
	if !yes && !isTerminal(cmd.InOrStdin()) {
		return &usageError{fmt.Errorf("%s %s is not %s: there is no terminal for the question; use --yes", thing, args[0], done)}
	}
	var names []string
	for _, name := range args {
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	if len(names) == 1 {
		return remove(names[0])
	}
	failed := 0
	for _, name := range names {
		if err := remove(name); err != nil {
			fmt.Fprintf(cmd.ErrOrStderr(), "%s %s is not %s: %v\n", thing, name, done, err)
			failed++
		}
		if cmd.Context().Err() != nil {
			return cmd.Context().Err()
		}
	}
	if failed > 0 {
		return fmt.Errorf("%d of %d %ss are not %s", failed, len(names), thing, done)
	}
	return nil
}

// remove deletes or archives a volume, when a person has agreed to it.
func (r *remover) remove(ctx context.Context, client *control.Client, name string) error {
	v, err := client.Get(ctx, name)
	if err != nil {
		return advise(err)
	}
	if isKept := v.State == volume.Archived || v.State == volume.Retained; isKept != r.kept {
		return r.keptError(v, isKept)
	}
	fate := v.FateOfFiles(r.root)
	switch {
	case r.archive:
		fate = v.Archived()
	case r.kept || v.State == volume.Copying:
		fate = "its files are removed in the background"
	}
	if v.Snapshots > 0 {
		fate += fmt.Sprintf("; its %s kept, see 'podnas snapshot list %s'", keptSnapshots(v.Snapshots), name)
	}
	if !r.yes {
		if err := confirm(r.answers, r.questions, deleteQuestion(v, r.verb, fate), "--yes"); err != nil {
			return err
		}
	}
	switch {
	case r.archive:
		err = client.Archive(ctx, name, r.force)
	case r.kept:
		err = client.Discard(ctx, name)
	default:
		err = client.Delete(ctx, name, r.force)
	}
	if err != nil {
		return advise(err)
	}
	fmt.Fprintf(r.stdout, "volume %s is %s: %s\n", name, r.done, fate)
	return nil
}

// keptError says that a volume is not what --kept, or its absence, asks for.
func (r *remover) keptError(v control.Volume, isKept bool) error {
	switch {
	case isKept && r.archive:
		return &usageError{fmt.Errorf("volume %s is already deleted, and its files are %s", v.Name, v.State)}
	case isKept:
		return &usageError{fmt.Errorf("volume %s is already deleted, and its files are %s; use --kept to remove them too", v.Name, v.State)}
	}
	return &usageError{fmt.Errorf("volume %s is not archived or retained, but in use: don't use --kept", v.Name)}
}

func keptSnapshots(n int) string {
	if n == 1 {
		return "snapshot is"
	}
	return volume.FormatCount(n, "snapshot") + " are"
}

func deleteQuestion(v control.Volume, verb, fate string) string {
	what := volume.FormatSize(v.Size)
	if v.Used != nil {
		what += fmt.Sprintf(", %s used in %s", volume.FormatSize(v.Used.Bytes), volume.FormatCount(v.Used.Inodes, "file"))
	}
	if v.Claim != nil {
		what += ", of the claim " + claimName(v)
	}
	return fmt.Sprintf("%s volume %s (%s)? Then %s. [y/N] ", strings.ToUpper(verb[:1])+verb[1:], v.Name, what, fate)
}

// confirm asks a person. In a script the flag is used instead.
func confirm(answers *bufio.Reader, out io.Writer, question, flag string) error {
	fmt.Fprint(out, question)
	answer, err := answers.ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("read the answer: %w", err)
	}
	switch strings.ToLower(strings.TrimSpace(answer)) {
	case "y", "yes":
		return nil
	case "":
		if err != nil {
			return errors.New("no answer; in a script use " + flag)
		}
	}
	return errors.New(`the answer was not "y"`)
}

package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"path/filepath"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/podnas/podnas/internal/process"
	"github.com/podnas/podnas/internal/volume"
	"github.com/podnas/podnas/provisioner/control"
)

const clientLong = `List clients, and evict those of NFSv4.

With versions 4.1 and 4.2 the server knows its clients: each node that has mounted volumes is one
client, for all its mounts, and the server remembers what it has open and locked. With version 3 it knows
only the addresses that calls come from, and there is nothing to evict.

`

const clientExitHelp = `Exit codes: 0 success; 1 failed; 2 invalid request; 3 no such client of NFSv4;
6 podnas is not running.`

const clientListLong = `List the clients, and how many files those of NFSv4 have open and ranges locked.

VERSION is that of NFS, 4.1,4.2 for a node that has mounts of both. With these STATE is active; silent:
the client's lease has run out, and it keeps what no other client wants; or new: it has no session yet.
SEEN is the time since its last call. After a crash of podnas, the grace period and the clients that podnas
waits for are below the table.

A client of version 3 is an address that has made a call in the last hour: the server does not know
what it has mounted. 128 addresses are listed by themselves, and others together. A node that uses
version 3 and another one is there twice.

-o json also has each open file and each lock; 'podnas volume show' lists those of a volume. To the protocol
a node is one client for each of 4.1 and 4.2, with an ID of its own: identities has these.`

const evictLong = `Evict a client of NFSv4: the server forgets it, with all that it has open and locked, and what it
could reclaim after a crash. Others can have its locks at once.

Use it for a node that is gone for good, or hangs, while others wait for what it has locked. If its
lease (serve --lease) has run out, podnas gives its locks to who wants them anyway.

A node that is alive notices it with its next call, makes itself known again, and goes on: its mounts
stay, and its programs can use the files that they have open. But its locks are lost, and another node
may have changed in the meantime what they protected. So the node's kernel gives a program that had a
lock an I/O error for each further use of that file, until the program opens the file again.
Data that the node has not written yet is written, or the program gets an error. A file that was
removed while only this node had it open is gone.

NAME is the client's name as 'podnas client list' shows it, or its last word, which is a Linux
node's host name. If several have it, use the ID. A node with mounts of 4.1 and 4.2 loses what it has by both.

` + clientExitHelp

func newClientCommand() *cobra.Command {
	var root string
	cmd := group(&cobra.Command{
		Use:     "client",
		Aliases: []string{"clients"},
		Short:   "List clients, and evict those of NFSv4",
		Long:    clientLong + clientExitHelp,
		Example: "  # Which nodes use volumes?\n  podnas client list\n\n  # node3 is gone for good: give its locks to others\n  podnas client evict node3",
	})
	addRootFlag(cmd.PersistentFlags(), &root, "directory of the disk that the running podnas serves")
	cmd.AddCommand(newClientListCommand(&root), newEvictCommand(&root))
	return cmd
}

// controlOf is for the podnas that serves the disk at root.
func controlOf(root string) (*control.Client, error) {
	whole, err := filepath.Abs(root)
	return control.NewClient(whole), err
}

func newClientListCommand(root *string) *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use:     "list",
		Aliases: []string{"ls"},
		Short:   "List the clients",
		Long:    clientListLong,
		Example: "  podnas client list\n\n  # Every lock, with its holder\n  podnas client list -o json | jq -r '.locks[] | [.volume, .file, .client] | @tsv'",
		Args:    exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			client, err := controlOf(*root)
			if err != nil {
				return err
			}
			all, err := client.Clients(cmd.Context())
			if err != nil {
				return err
			}
			if output != outputTable {
				return printValue(cmd.OutOrStdout(), output, all)
			}
			return printClients(cmd.OutOrStdout(), &all)
		},
	}
	cmd.ValidArgsFunction = cobra.NoFileCompletions
	addOutputFlag(cmd.Flags(), &output, outputTable, outputJSON, outputYAML)
	return cmd
}

func printClients(out io.Writer, all *process.Clients) error {
	if len(all.Clients)+len(all.Version3) == 0 {
		fmt.Fprintln(out, "There are no clients.")
	} else {
		w := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
		fmt.Fprintln(w, "NAME\tID\tADDRESS\tVERSION\tSTATE\tOPEN\tLOCKED\tSINCE\tSEEN")
		for _, c := range all.Clients {
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%d\t%d\t%s\t%s\n", c.Name, c.ID, c.Address, c.Version, c.State, c.Opens, c.Locks, age(c.Since), age(c.Seen))
		}
		for _, c := range all.Version3 {
			fmt.Fprintf(w, "-\t-\t%s\t3\t-\t-\t-\t-\t%s\n", c.Address, age(c.Seen))
		}
		if err := w.Flush(); err != nil {
			return err
		}
	}
	if all.NoNFS4 != "" {
		fmt.Fprintf(out, "\n%s\n", all.NoNFS4)
	}
	if all.Grace != nil {
		fmt.Fprintf(out, "\nGrace period: %s\n", all.Grace.Text(time.Now()))
	}
	return nil
}

func newEvictCommand(root *string) *cobra.Command {
	var yes bool
	cmd := &cobra.Command{
		Use:     "evict NAME|ID",
		Short:   "Take from a client of NFSv4 all that it has open and locked",
		Long:    evictLong,
		Example: "  podnas client list\n  podnas client evict node3\n  podnas client evict 6f1c0d9e2b3a4758 --yes    # in a script",
		Args:    exactly("NAME|ID"),
		RunE: func(cmd *cobra.Command, args []string) error {
			client, err := controlOf(*root)
			if err != nil {
				return err
			}
			if !yes {
				if !isTerminal(cmd.InOrStdin()) {
					return &usageError{fmt.Errorf("client %s is not evicted: there is no terminal for the question; use --yes", args[0])}
				}
				question := fmt.Sprintf("Evict %s? Its locks are lost, and its programs that had some get I/O errors. [y/N] ", args[0])
				if err := confirm(bufio.NewReader(cmd.InOrStdin()), cmd.ErrOrStderr(), question, "--yes"); err != nil {
					return fmt.Errorf("client %s is not evicted: %w", args[0], err)
				}
			}
			c, err := client.Evict(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			fmt.Fprintf(cmd.OutOrStdout(), "client %s (%s, at %s) is evicted: it had %s open and %s locked\n",
				c.Name, c.IDs(), c.Address, volume.FormatCount(uint64(c.Opens), "file"), volume.FormatCount(uint64(c.Locks), "range"))
			return nil
		},
	}
	cmd.ValidArgsFunction = func(cmd *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		client, err := controlOf(*root)
		if err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		ctx, cancel := context.WithTimeout(cmd.Context(), completionTimeout)
		defer cancel()
		all, err := client.Clients(ctx)
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		var ids []cobra.Completion
		for _, c := range all.Clients {
			ids = append(ids, cobra.CompletionWithDesc(c.ID, c.Name))
		}
		return ids, cobra.ShellCompDirectiveNoFileComp
	}
	cmd.Flags().BoolVarP(&yes, "yes", "y", false, "don't ask")
	return cmd
}

// printHoldings prints who has which files of a volume open and locked.
func printHoldings(out io.Writer, all *process.NFS4) error {
	if len(all.Opens)+len(all.Locks) > 0 {
		w := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
		fmt.Fprintln(w, "\nFILE\tWHAT\tCLIENT\tADDRESS\tOPEN FOR")
		for i := range all.Opens {
			o := &all.Opens[i]
			printHolder(w, &o.Holder, o.Text())
		}
		for i := range all.Locks {
			l := &all.Locks[i]
			printHolder(w, &l.Holder, l.Text())
		}
		if err := w.Flush(); err != nil {
			return err
		}
	}
	if all.Omitted > 0 {
		fmt.Fprintf(out, "\n%d open files and locks of all volumes are not known here: there are too many\n", all.Omitted)
	}
	if all.Grace != nil {
		fmt.Fprintf(out, "\nGrace period: %s\n", all.Grace.Text(time.Now()))
	}
	return nil
}

func printHolder(w io.Writer, h *process.Holder, what string) {
	fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", h.File, what, h.Client, h.Address, age(h.Since))
}

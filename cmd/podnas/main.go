// Command podnas is shared storage in one process: an NFS server and a
// Kubernetes volume provisioner over one disk.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/podnas/podnas/provisioner/remote"
	"github.com/podnas/podnas/server/timerslack"
)

// defaultRoot is where the disk is in a pod.
const defaultRoot = "/export"

const rootExamples = `  # Without a cluster: serve the claims in a folder
  podnas serve --standalone --root=data/disk --claims=data/claims --listen=127.0.0.1:20490 --http=127.0.0.1:20491

  # In a cluster: volumes, problems, users
  kubectl exec -n podnas podnas-0 -- podnas volume list
  kubectl exec -n podnas podnas-0 -- podnas doctor
  kubectl exec -n podnas podnas-0 -- podnas mounted

  # The same, with this binary as the plug-in kubectl-podnas
  kubectl podnas volume list`

func main() {
	if len(os.Args) > 1 && os.Args[1] == "serve" {
		timerslack.Set()
	}
	if err := run(); err != nil {
		var said *remote.ExitError
		if !errors.As(err, &said) {
			fmt.Fprintln(os.Stderr, "podnas:", err)
		}
		os.Exit(exitCode(err))
	}
}

func run() error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	// A second signal ends the process at once.
	context.AfterFunc(ctx, stop)
	cmd, args := newCommandFor(os.Args[0], os.Args[1:])
	cmd.SetArgs(args)
	return execute(ctx, cmd)
}

func newCommand() *cobra.Command {
	root := group(&cobra.Command{
		Use:   "podnas",
		Short: "Shared storage in one pod: an NFS server and a Kubernetes provisioner over one disk",
		Long: `podnas turns PersistentVolumeClaims into directories with a quota on one disk,
exports them over NFS, and creates the PersistentVolumes by which Kubernetes mounts them.

Called kubectl-podnas, this binary is a plug-in of kubectl, which runs these commands in podnas's
pod from your own machine: see 'kubectl podnas --help'.

Each command's --help has examples. 'podnas completion --help' explains shell completion of
commands, flags and the names of volumes. On a terminal statuses have colours, unless NO_COLOR is set.`,
		Example:       rootExamples,
		SilenceErrors: true, // main says them
		SilenceUsage:  true, // an error is not a question about usage
	})
	root.SetFlagErrorFunc(flagError)
	root.PersistentFlags().Bool(noColourFlag, false, "print statuses without colours, as with NO_COLOR in the environment")
	if err := root.PersistentFlags().MarkHidden(noColourFlag); err != nil {
		panic(err) // only a flag that is not there gives one
	}
	root.AddCommand(newServeCommand(), newVolumeCommand(), newSnapshotCommand(), newClientCommand(), newDoctorCommand(), newMountedCommand(), newFailoverCommand(), newBenchCommand(), newVersionCommand())
	root.SetHelpCommand(newHelpCommand())
	if err := completeFlags(root); err != nil {
		panic(err) // only a flag that is there twice gives one
	}
	return root
}

// addRootFlag adds the flag that says which disk is meant.
func addRootFlag(f *pflag.FlagSet, root *string, usage string) {
	where := defaultRoot
	if s := os.Getenv("PODNAS_ROOT"); s != "" {
		where = s
	}
	f.StringVar(root, "root", where, usage+"; default: $PODNAS_ROOT")
}

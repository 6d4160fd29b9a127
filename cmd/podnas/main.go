// Command podnas is shared storage in one process: an NFSv3 server and a
// Kubernetes volume provisioner over one disk.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// defaultRoot is where the disk is in a pod.
const defaultRoot = "/export"

// version is set by the linker (-X main.version=...).
var version = "devel"

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "podnas:", err)
		os.Exit(exitCode(err))
	}
}

func run() error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	// A second signal ends the process at once.
	context.AfterFunc(ctx, stop)
	return newCommand().ExecuteContext(ctx)
}

func newCommand() *cobra.Command {
	root := &cobra.Command{
		Use:   "podnas",
		Short: "Shared storage in one pod: an NFSv3 server and a Kubernetes provisioner over one disk",
		Long: `podnas turns PersistentVolumeClaims into directories with a quota on one disk,
exports them over NFSv3, and gives Kubernetes the PersistentVolumes to mount them.`,
		SilenceErrors: true, // main says them
		SilenceUsage:  true, // an error is not a question about usage
	}
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return &usageError{err} })
	root.AddCommand(newServeCommand(), newVolumeCommand(), newDoctorCommand(), newBenchCommand(), &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Args:  exactly(),
		Run: func(cmd *cobra.Command, _ []string) {
			fmt.Fprintf(cmd.OutOrStdout(), "podnas %s %s %s/%s\n", version, runtime.Version(), runtime.GOOS, runtime.GOARCH)
		},
	})
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

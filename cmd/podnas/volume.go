package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/podnas/podnas/internal/volume"
	"github.com/podnas/podnas/provisioner"
	"github.com/podnas/podnas/provisioner/control"
)

const volumeLong = `Create, list, change and delete volumes.

These commands connect to the podnas that serves the disk at --root; they never access the
disk themselves. In a cluster, run them in podnas's pod:

  kubectl exec -n podnas podnas-0 -- podnas volume list

`

const volumeExamples = `  # All volumes and their usage
  podnas volume list

  # A volume of 1Gi without a claim; apply its PersistentVolume to the cluster
  podnas volume create scratch --size 1Gi | kubectl apply -f -

  # Without a cluster
  podnas volume list --root=data/root`

// volumeConfig is what all commands of podnas volume share.
type volumeConfig struct{ root string }

func newVolumeCommand() *cobra.Command {
	var cfg volumeConfig
	cmd := group(&cobra.Command{
		Use:     "volume",
		Aliases: []string{"volumes", "vol"},
		Short:   "Create, list, change and delete volumes",
		Long:    volumeLong + exitHelp,
		Example: volumeExamples,
	})
	addRootFlag(cmd.PersistentFlags(), &cfg.root, "directory of the disk that the running podnas serves")
	served, kept := []string{volume.Ready}, []string{volume.Archived, volume.Retained}
	all := append(slices.Concat(served, kept), volume.Copying, volume.Damaged, volume.NotServed)
	for _, sub := range []struct {
		command  *cobra.Command
		complete cobra.CompletionFunc
	}{
		{newCreateCommand(&cfg), cobra.NoFileCompletions},
		{newCopyCommand(&cfg), cfg.completeVolumes(false, served...)},
		{newListCommand(&cfg), cobra.NoFileCompletions},
		{newShowCommand(&cfg), cfg.completeVolumes(false, all...)},
		{newResizeCommand(&cfg), cfg.completeVolumes(false, served...)},
		{newSetCommand(&cfg), cfg.completeVolumes(false, served...)},
		{newDeleteCommand(&cfg), cfg.completeVolumes(true, all...)},
		{newArchiveCommand(&cfg), cfg.completeVolumes(true, served...)},
		{newAdoptCommand(&cfg), cfg.completeVolumes(false, kept...)},
		{newManifestsCommand(&cfg), cfg.completeVolumes(true, served...)},
	} {
		sub.command.ValidArgsFunction = sub.complete
		if sub.command.Flags().Lookup("from") != nil {
			if err := sub.command.RegisterFlagCompletionFunc("from", cfg.completeVolumes(true, served...)); err != nil {
				panic(err) // only a flag that is not there gives one
			}
		}
		if sub.command.Flags().Lookup("snapshot") != nil {
			if err := sub.command.RegisterFlagCompletionFunc("snapshot", cfg.completeSourceSnapshots); err != nil {
				panic(err) // only a flag that is not there gives one
			}
		}
		cmd.AddCommand(sub.command)
	}
	return cmd
}

// client is for the running podnas. Its disk's path is made whole, for texts
// that name it.
func (c *volumeConfig) client() (*control.Client, error) {
	root, err := filepath.Abs(c.root)
	if err != nil {
		return nil, err
	}
	c.root = root
	return control.NewClient(root), nil
}

// advise adds to an error what a person can do about it.
func advise(err error) error {
	var said *control.Error
	if errors.As(err, &said) && said.Code == control.NotFound {
		return fmt.Errorf("%w: see 'podnas volume list --all'", err)
	}
	return err
}

// sizeFlag takes a quantity as Kubernetes writes it.
type sizeFlag int64

func (s *sizeFlag) Set(text string) error {
	bytes, err := parseSize(text, provisioner.Bytes)
	*s = sizeFlag(bytes)
	return err
}

func (s *sizeFlag) String() string {
	if *s == 0 {
		return ""
	}
	return resource.NewQuantity(int64(*s), resource.BinarySI).String()
}

func (s *sizeFlag) Type() string { return "SIZE" }

// newSizeFlag takes the size of a new volume.
type newSizeFlag struct{ sizeFlag }

func (s *newSizeFlag) Set(text string) error {
	bytes, err := parseSize(text, provisioner.NewSize)
	s.sizeFlag = sizeFlag(bytes)
	return err
}

// parseSize parses a quantity, and returns what bytes makes of it: provisioner.Bytes, or
// provisioner.NewSize.
func parseSize(text string, bytes func(resource.Quantity) (int64, error)) (int64, error) {
	q, err := resource.ParseQuantity(text)
	if err != nil {
		return 0, fmt.Errorf("invalid size %q: use a Kubernetes quantity, for example 500Mi, 10Gi or 2T", text)
	}
	size, err := bytes(q)
	if err != nil {
		return 0, fmt.Errorf("invalid size: %w", err)
	}
	return size, nil
}

// age is how long ago something was, as kubectl says it.
func age(t time.Time) string { return duration.HumanDuration(time.Since(t)) }

// isTerminal reports whether a person reads or writes there.
func isTerminal(stream any) bool {
	f := fileOf(stream)
	return f != nil && term.IsTerminal(int(f.Fd()))
}

// screen tells the size of a terminal, or zeros if that is unknown.
type screen func() (width, height int)

// screenOf returns the screen of a stream, nil if that is no terminal.
func screenOf(stream any) screen {
	f := fileOf(stream)
	if f == nil || !isTerminal(f) {
		return nil
	}
	return func() (width, height int) {
		width, height, err := term.GetSize(int(f.Fd()))
		if err != nil {
			return 0, 0
		}
		return width, height
	}
}

// sleep waits, and is false when ctx ended first.
func sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

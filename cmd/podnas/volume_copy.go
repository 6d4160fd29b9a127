package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/podnas/podnas/provisioner"
	"github.com/podnas/podnas/provisioner/control"
)

func newCopyCommand(shared *volumeConfig) *cobra.Command {
	cfg := &createConfig{volumeConfig: shared}
	cmd := &cobra.Command{
		Use:     "copy SOURCE NAME",
		Aliases: []string{"cp", "clone"},
		Short:   "Copy a volume, and print the PersistentVolume of the copy",
		Long: `Copy a volume, and print the PersistentVolume of the copy.

This is 'podnas volume create NAME --from SOURCE', with the size of the source unless --size sets a
larger one. On XFS and btrfs, files share their blocks until one of them is written. If the source
is written to meanwhile, the copy is not consistent; that of a snapshot (--snapshot) is.`,
		Example: "  podnas volume copy scratch scratch-2\n\n  # With a larger size\n  podnas volume copy scratch scratch-2 --size 20Gi\n\n  # As it was at one moment\n  podnas snapshot create scratch now && podnas volume copy scratch scratch-2 --snapshot now",
		Args:    exactly("SOURCE", "NAME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			client, err := cfg.client()
			if err != nil {
				return err
			}
			size, err := cfg.sizeOfSource(cmd.Context(), client, args[0])
			if err != nil {
				return err
			}
			if cfg.size.sizeFlag == 0 {
				cfg.size.sizeFlag = sizeFlag(max(size, provisioner.MinSize))
			}
			cfg.request.Source = args[0]
			return cfg.run(cmd, args[1], (*control.Client).Create)
		},
	}
	f := cmd.Flags()
	f.SortFlags = false
	cfg.addFlags(f)
	f.StringVar(&cfg.request.SourceSnapshot, "snapshot", "", "copy this `SNAPSHOT` of the volume instead")
	f.BoolVar(&cfg.noWait, "no-wait", false, "don't wait for the copy")
	return cmd
}

// sizeOfSource is the size of what is to be copied: a volume, or a snapshot of one that may be deleted.
func (c *createConfig) sizeOfSource(ctx context.Context, client *control.Client, source string) (int64, error) {
	if name := c.request.SourceSnapshot; name != "" {
		s, err := client.GetSnapshot(ctx, source, name)
		if err != nil {
			return 0, c.adviseSnapshot(ctx, client, source, name, err)
		}
		return s.Size, nil
	}
	v, err := client.Get(ctx, source)
	return v.Size, advise(err)
}

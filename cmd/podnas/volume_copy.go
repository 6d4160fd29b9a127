package main

import (
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
is written to meanwhile, the copy is not consistent.`,
		Example: "  podnas volume copy scratch scratch-2\n\n  # With a larger size\n  podnas volume copy scratch scratch-2 --size 20Gi",
		Args:    exactly("SOURCE", "NAME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			client, err := cfg.client()
			if err != nil {
				return err
			}
			source, err := client.Get(cmd.Context(), args[0])
			if err != nil {
				return advise(err)
			}
			if cfg.size.sizeFlag == 0 {
				cfg.size.sizeFlag = sizeFlag(max(source.Size, provisioner.MinSize))
			}
			cfg.request.Source = source.Name
			return cfg.run(cmd, args[1], (*control.Client).Create)
		},
	}
	f := cmd.Flags()
	f.SortFlags = false
	cfg.addFlags(f)
	f.BoolVar(&cfg.noWait, "no-wait", false, "don't wait for the copy")
	return cmd
}

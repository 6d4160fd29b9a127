package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/podnas/podnas/internal/volume"
	"github.com/podnas/podnas/provisioner/control"
	"github.com/podnas/podnas/quota"
	"github.com/podnas/podnas/server"
)

// completionTimeout is how long a shell is kept waiting for the names of volumes.
const completionTimeout = 2 * time.Second

// formsAnnotation is on a flag that takes one of some words.
const formsAnnotation = "podnas_forms"

// completeFlags has a shell offer the words that flags take, in all commands.
func completeFlags(cmd *cobra.Command) error {
	words := map[string][]string{
		"engine":     server.Engines(),
		"handles":    server.Handles(),
		"quota":      {string(quota.Auto), string(quota.Kernel), string(quota.Server), string(quota.Off)},
		"log-format": {"text", "json"},
		"log-level":  {"debug", "info", "warn", "error"},
		"loads":      benchLoadNames(),
		"on-delete":  {string(volume.DeleteFiles), string(volume.ArchiveFiles), string(volume.RetainFiles)},
	}
	var err error
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		forms := f.Annotations[formsAnnotation]
		if len(forms) == 0 {
			forms = words[f.Name]
		}
		if len(forms) > 0 && err == nil {
			err = cmd.RegisterFlagCompletionFunc(f.Name, cobra.FixedCompletions(forms, cobra.ShellCompDirectiveNoFileComp))
		}
	})
	for _, sub := range cmd.Commands() {
		if err == nil {
			err = completeFlags(sub)
		}
	}
	return err
}

// completeVolumes has a shell offer the names of volumes in certain states, as the
// running podnas knows them; where none runs, none.
func (c *volumeConfig) completeVolumes(many bool, states ...string) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
		if len(args) > 0 && !many {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		client, err := c.client()
		if err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		ctx, cancel := context.WithTimeout(cmd.Context(), completionTimeout)
		defer cancel()
		volumes, err := client.List(ctx, true)
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		var names []cobra.Completion
		for i := range volumes {
			if v := &volumes[i]; slices.Contains(states, v.State) && !slices.Contains(args, v.Name) {
				names = append(names, cobra.CompletionWithDesc(v.Name, describeVolume(v)))
			}
		}
		return names, cobra.ShellCompDirectiveNoFileComp
	}
}

// describeVolume is what a shell shows beside a name.
func describeVolume(v *control.Volume) string {
	if v.Claim != nil {
		return fmt.Sprintf("%s, claim %s/%s", volume.FormatSize(v.Size), v.Claim.Namespace, v.Claim.Name)
	}
	return fmt.Sprintf("%s, %s", volume.FormatSize(v.Size), v.State)
}

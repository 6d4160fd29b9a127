package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/podnas/podnas/internal/volume"
)

// scheduleFlag takes a schedule of snapshots.
type scheduleFlag struct {
	to  volume.Schedule
	set bool
}

func (s *scheduleFlag) Set(text string) (err error) {
	s.to, err = volume.ParseSchedule(text)
	s.set = err == nil
	return err
}

func (s *scheduleFlag) String() string {
	if !s.set {
		return ""
	}
	return s.to.String()
}

func (s *scheduleFlag) Type() string { return "SCHEDULE" }

func newSetCommand(cfg *volumeConfig) *cobra.Command {
	var schedule scheduleFlag
	cmd := &cobra.Command{
		Use:   "set NAME --snapshots SCHEDULE",
		Short: "Change which snapshots of a volume are taken by themselves",
		Long: `Change which snapshots of a volume podnas takes by itself, and how many of them it keeps. The volume may be
in use, and belong to a claim.

A SCHEDULE is how many to keep of each kind: hourly, daily, weekly (on Monday), monthly and yearly, as in
hourly=24,daily=7,weekly=4. All times are in UTC. When podnas was away at such a time, it makes up for
the last one. If there are more of a kind than the schedule says, the oldest are deleted; snapshots that
somebody has asked for stay, and so do those of a kind that the schedule does not name.

With "none", no more snapshots are taken, and those that there are stay.`,
		Example: "  # Two days by the hour, a month by the day\n  podnas volume set data --snapshots hourly=48,daily=31\n\n" +
			"  # No more of them\n  podnas volume set data --snapshots none",
		Args: exactly("NAME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if !schedule.set {
				return &usageError{errors.New("--snapshots is missing: say what to change, for example --snapshots hourly=24,daily=7")}
			}
			client, err := cfg.client()
			if err != nil {
				return err
			}
			v, err := client.SetSchedule(cmd.Context(), args[0], schedule.to)
			if err != nil {
				return advise(err)
			}
			if v.Schedule.IsZero() {
				fmt.Fprintf(cmd.OutOrStdout(), "no more snapshots of volume %s are taken by themselves; those that there are stay\n", v.Name)
				return nil
			}
			fmt.Fprintf(cmd.OutOrStdout(), "volume %s now keeps these snapshots: %s\n", v.Name, v.Schedule)
			return nil
		},
	}
	cmd.Flags().Var(&schedule, "snapshots", "which snapshots to take, and how many of each kind to keep, or none")
	return cmd
}

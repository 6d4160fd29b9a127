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

// reserveFlag takes the part of what a volume uses that is promised for a snapshot.
type reserveFlag struct {
	percent int
	set     bool
}

func (r *reserveFlag) Set(text string) (err error) {
	r.percent, err = volume.ParseSnapshotReserve(text)
	r.set = err == nil
	return err
}

func (r *reserveFlag) String() string {
	if !r.set {
		return ""
	}
	return fmt.Sprintf("%d%%", r.percent)
}

func (r *reserveFlag) Type() string { return "PART" }

func newSetCommand(cfg *volumeConfig) *cobra.Command {
	var (
		schedule scheduleFlag
		reserve  reserveFlag
	)
	cmd := &cobra.Command{
		Use:   "set NAME",
		Short: "Change a volume's schedule of snapshots, and the room that is promised for one",
		Long: `Change which snapshots of a volume podnas takes by itself, and how many of them it keeps. The volume may be
in use, and belong to a claim.

A SCHEDULE is how many to keep of each kind: hourly, daily, weekly (on Monday), monthly and yearly, as in
hourly=24,daily=7,weekly=4. All times are in UTC. When podnas was away at such a time, it makes up for
the last one. If there are more of a kind than the schedule says, the oldest are deleted; snapshots that
somebody has asked for stay, and so do those of a kind that the schedule does not name.

With "none", no more snapshots are taken, and those that there are stay.

--snapshot-reserve is the part of what the volume uses that has to be free for a snapshot that somebody asks for, and
is promised for it if podnas has an overcommit. With 0, a disk can become full by what changes after it.`,
		Example: "  # Two days by the hour, a month by the day\n  podnas volume set data --snapshots hourly=48,daily=31\n\n" +
			"  # No more of them\n  podnas volume set data --snapshots none\n\n  # At most a fifth of it will change as long as there is a snapshot\n  podnas volume set data --snapshot-reserve 20%",
		Args: exactly("NAME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if !schedule.set && !reserve.set {
				return &usageError{errors.New("say what to change, for example --snapshots hourly=24,daily=7")}
			}
			client, err := cfg.client()
			if err != nil {
				return err
			}
			out := cmd.OutOrStdout()
			if reserve.set {
				v, err := client.SetSnapshotReserve(cmd.Context(), args[0], reserve.percent)
				if err != nil {
					return advise(err)
				}
				fmt.Fprintf(out, "for a snapshot of volume %s, %d%% of what it uses is promised from now on\n", v.Name, reserve.percent)
			}
			if !schedule.set {
				return nil
			}
			v, err := client.SetSchedule(cmd.Context(), args[0], schedule.to)
			switch {
			case err != nil:
				return advise(err)
			case v.Schedule.IsZero():
				fmt.Fprintf(out, "no more snapshots of volume %s are taken by themselves; those that there are stay\n", v.Name)
			default:
				fmt.Fprintf(out, "volume %s now keeps these snapshots: %s\n", v.Name, v.Schedule)
			}
			return nil
		},
	}
	cmd.Flags().SortFlags = false
	cmd.Flags().Var(&schedule, "snapshots", "which snapshots to take, and how many of each kind to keep, or none")
	cmd.Flags().Var(&reserve, "snapshot-reserve", "the part of what it uses that is promised for a snapshot, or 0")
	return cmd
}

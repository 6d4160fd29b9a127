package main

import (
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/podnas/podnas/doctor"
	"github.com/podnas/podnas/provisioner/control"
	"github.com/podnas/podnas/volume"
)

const doctorLong = `Ask the running podnas what it is, how its disk is, and what is wrong, and say what to do
about each. Nothing is changed. In a cluster, run it in podnas's pod:

  kubectl exec -n podnas podnas-0 -- podnas doctor

It looks at the disk (file system, space, inodes, records), the process (engine, quota,
capabilities), its ports, and in a cluster at the Service, podnas's rights, the
StorageClasses, the clock, and what differs between the disk and the cluster.

Whether a node or a pod can mount a volume, 'podnas doctor mount' tells there. Where podnas does
not run, there is nothing to ask: 'podnas doctor pod' says why, on your own machine.
`

const doctorExit = `
Exit codes: 0 all is well; 1 something does not work; 6 no podnas is running there; 7 all
works, and there are warnings.`

const doctorExamples = `  # In podnas's pod: what is wrong, and what to do
  kubectl exec -n podnas podnas-0 -- podnas doctor

  # Without a cluster, also what is well, for programs
  podnas doctor --root=data/root -o json

  # Only what has failed, in a script
  podnas doctor -o json | jq -r '.checks[] | select(.status == "failed") | .check + ": " + .says'

  # On a node: would this volume mount?
  podnas doctor mount 10.96.0.20:/default-data

  # On your own machine: why does its pod not run?
  podnas doctor pod`

func newDoctorCommand() *cobra.Command {
	var root, output string
	cmd := &cobra.Command{
		Use:     "doctor",
		Short:   "Say what is wrong, and what to do about it",
		Long:    doctorLong + doctorExit,
		Example: doctorExamples,
		Args:    exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := checkOutput(output, outputTable, outputJSON, outputYAML); err != nil {
				return err
			}
			whole, err := filepath.Abs(root)
			if err != nil {
				return err
			}
			report, err := control.NewClient(whole).Doctor(cmd.Context())
			if err != nil {
				return err
			}
			if output == outputTable {
				err = printReport(cmd.OutOrStdout(), report)
			} else {
				err = printValue(cmd.OutOrStdout(), output, report)
			}
			return errors.Join(err, verdict(report.Checks))
		},
	}
	addRootFlag(cmd.Flags(), &root, "directory of the disk that the running podnas serves")
	addOutputFlag(cmd.Flags(), &output, outputTable, outputJSON, outputYAML)
	cmd.AddCommand(newDoctorMountCommand(), newDoctorPodCommand())
	return cmd
}

// warningsError ends a command that has found nothing worse than warnings.
type warningsError struct{ n int }

func (e *warningsError) Error() string {
	return fmt.Sprintf("%d warning%s", e.n, plural(e.n))
}

// verdict is what a command with these results ends with.
func verdict(results []doctor.Result) error {
	failed, warned := doctor.Count(results, doctor.Failed), doctor.Count(results, doctor.Warning)
	switch {
	case failed > 0 && warned > 0:
		return fmt.Errorf("%d problem%s found, and %d warning%s", failed, plural(failed), warned, plural(warned))
	case failed > 0:
		return fmt.Errorf("%d problem%s found", failed, plural(failed))
	case warned > 0:
		return &warningsError{warned}
	}
	return nil
}

func printReport(out io.Writer, r control.Report) error {
	p, d := &r.Process, &r.Disk
	promised := "only free space is looked at"
	if p.Overcommit > 0 {
		promised = fmt.Sprintf("up to %g times the disk may be promised", p.Overcommit)
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	for _, line := range [][2]string{
		{"process", fmt.Sprintf("podnas %s, pid %d, running for %s, %s mode", p.Version, p.PID, age(p.Started), p.Mode)},
		{"serves", fmt.Sprintf("NFS on %s, claims of provisioner %s", p.Listen, p.Provisioner)},
		{"disk", fmt.Sprintf("%s, identity %s", p.Root, d.Identity)},
		{"promised", fmt.Sprintf("%s of %s to volumes (%s)", volume.FormatSize(d.Promised), volume.FormatSize(d.Capacity), promised)},
		{"volumes", fmt.Sprintf("%d served, %d archived, %d retained", d.Volumes, d.Archived, d.Retained)},
	} {
		fmt.Fprintf(w, "%s\t%s\n", line[0], line[1])
	}
	fmt.Fprintln(w)
	if err := w.Flush(); err != nil {
		return err
	}
	return printResults(out, r.Checks)
}

// printResults prints what was found: a line for each check, then what to do.
func printResults(out io.Writer, results []doctor.Result) error {
	mark := map[doctor.Status]string{doctor.OK: "ok", doctor.Warning: "WARNING", doctor.Failed: "FAILED"}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	for _, r := range results {
		first, _, _ := strings.Cut(r.Says, "\n")
		fmt.Fprintf(w, "%s\t%s\t%s\n", mark[r.Status], r.Check, first)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	wrong := 0
	for _, r := range results {
		if r.Status == doctor.OK {
			continue
		}
		wrong++
		fmt.Fprintf(out, "\n%s: %s\n", r.Check, r.Says)
		if r.Fix != "" {
			fmt.Fprintf(out, "  to do: %s\n", strings.ReplaceAll(r.Fix, "\n", "\n  "))
		}
	}
	if wrong == 0 {
		fmt.Fprintln(out, "\nNothing is wrong.")
	}
	return nil
}

func plural(n int) string {
	if n == 1 {
		return ""
	}
	return "s"
}

package main

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/podnas/podnas/internal/doctor"
	"github.com/podnas/podnas/internal/volume"
	"github.com/podnas/podnas/provisioner/control"
)

const doctorLong = `Check the running podnas and its disk, and say what is wrong and what to do about it. This
changes nothing. In a cluster, run it in podnas's pod:

  kubectl exec -n podnas podnas-0 -- podnas doctor

It checks the disk (file system, space, inodes, records), the volumes (how full they are), the
claims (which get no volume), the process (engine, quota, capabilities), its ports, and in a
cluster the Service, podnas's rights, the StorageClasses, the clock, and differences between the
disk and the cluster. The status page and podnas_findings report the same.

'podnas doctor mount', on a node or in a pod, tests whether a volume can be mounted there. If
podnas does not run, 'podnas doctor pod' says why; run it on your own machine.
`

const doctorExit = `
Exit codes: 0 no problems; 1 a check failed; 6 podnas is not running; 7 warnings, but no
failures.`

const doctorExamples = `  # In podnas's pod: what is wrong, and what to do
  kubectl exec -n podnas podnas-0 -- podnas doctor

  # Without a cluster; all checks, for programs
  podnas doctor --root=data/root -o json

  # Only failed checks, in a script
  podnas doctor -o json | jq -r '.checks[] | select(.status == "failed") | .check + ": " + .says'

  # On a node: can it mount this volume?
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
			client, err := controlOf(root)
			if err != nil {
				return err
			}
			report, err := client.Doctor(cmd.Context())
			if err != nil {
				return err
			}
			if output == outputTable {
				if err := printProcess(cmd.OutOrStdout(), &report); err != nil {
					return err
				}
			}
			return tell(cmd, output, report, report.Checks)
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

// tell prints what was found, for people or, as part of all, for programs, and returns what the command ends with.
func tell(cmd *cobra.Command, output string, all any, results []doctor.Result) (err error) {
	if out := cmd.OutOrStdout(); output == outputTable {
		err = printResults(out, newPainter(cmd, out), results)
	} else {
		err = printValue(out, output, all)
	}
	return errors.Join(err, verdict(results))
}

// printProcess prints the state of the process and its disk.
func printProcess(out io.Writer, r *control.Report) error {
	process, d := &r.Process, &r.Disk
	promised := "only free space is checked"
	if process.Overcommit > 0 {
		promised = fmt.Sprintf("at most %g times the disk may be promised", process.Overcommit)
	}
	err := printDetails(out, [][2]string{
		{"process", fmt.Sprintf("podnas %s, pid %d, running for %s, %s mode", process.Version, process.PID, age(process.Started), process.Mode)},
		{"serves", fmt.Sprintf("NFS on %s, claims of provisioner %s", process.Listen, process.Provisioner)},
		{"disk", fmt.Sprintf("%s, identity %s", process.Root, d.Identity)},
		{"promised", fmt.Sprintf("%s of %s to volumes (%s)", volume.FormatSize(d.Promised), volume.FormatSize(d.Capacity), promised)},
		{"volumes", fmt.Sprintf("%d served, %d archived, %d retained", d.Volumes, d.Archived, d.Retained)},
	})
	fmt.Fprintln(out)
	return err
}

// printResults prints what was found: a line for each check, then what to do.
func printResults(out io.Writer, p painter, results []doctor.Result) error {
	mark := map[doctor.Status]string{doctor.OK: "ok", doctor.Warning: "WARNING", doctor.Failed: "FAILED"}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	for _, r := range results {
		first, _, _ := strings.Cut(r.Says, "\n")
		fmt.Fprintf(w, "%s\t%s\t%s\n", p.paint(colourOf(r.Status), mark[r.Status]), r.Check, first)
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
		about := r.Check
		if name := about[strings.LastIndex(about, " ")+1:]; r.Volume != "" && name != r.Volume {
			about += " (" + r.Volume + ")" // it is called by its claim, and commands need its name
		}
		fmt.Fprintf(out, "\n%s: %s\n", about, r.Says)
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

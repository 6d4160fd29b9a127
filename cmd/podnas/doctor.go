package main

import (
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/podnas/podnas/provisioner/control"
	"github.com/podnas/podnas/volume"
)

const doctorLong = `Ask the running podnas what it is, how its disk is, and what is wrong, and say what to do
about each. Nothing is changed. In a cluster, run it in podnas's pod:

  kubectl exec -n podnas podnas-0 -- podnas doctor

Exit codes: 0 all is well; 1 something is wrong; 6 no podnas is running there.`

func newDoctorCommand() *cobra.Command {
	var root, output string
	cmd := &cobra.Command{
		Use:     "doctor",
		Short:   "Say what is wrong, and what to do about it",
		Long:    doctorLong,
		Example: "  podnas doctor\n  podnas doctor --root=data/root -o json",
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
			if n := len(report.Findings); n > 0 {
				err = errors.Join(err, fmt.Errorf("%d problem%s found", n, plural(n)))
			}
			return err
		},
	}
	addRootFlag(cmd.Flags(), &root, "directory of the disk that the running podnas serves")
	addOutputFlag(cmd.Flags(), &output, outputTable, outputJSON, outputYAML)
	return cmd
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
		{"engine", p.Engine + ": " + p.EngineWhy},
		{"disk", fmt.Sprintf("%s: %s", p.Root, d.FileSystem)},
		{"identity", d.Identity},
		{"space", fmt.Sprintf("%s, %s free, %s promised to volumes (%s)",
			volume.FormatSize(d.Capacity), volume.FormatSize(d.Free), volume.FormatSize(d.Promised), promised)},
		{"quota", p.QuotaMode + ": " + p.Quota},
		{"volumes", fmt.Sprintf("%d served, %d archived, %d retained", d.Volumes, d.Archived, d.Retained)},
	} {
		fmt.Fprintf(w, "%s\t%s\n", line[0], line[1])
	}
	if err := w.Flush(); err != nil {
		return err
	}
	for _, f := range r.Findings {
		fmt.Fprintf(out, "\n%s: %s\n", f.About, f.Problem)
		if f.Fix != "" {
			fmt.Fprintf(out, "  to do: %s\n", strings.ReplaceAll(f.Fix, "\n", "\n  "))
		}
	}
	if len(r.Findings) == 0 {
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

package nfsbench

import (
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strconv"
	"text/tabwriter"
	"time"
)

// The formats of a report.
const (
	FormatTable = "table"
	FormatJSON  = "json"
	FormatCSV   = "csv"
)

// Write writes the report in one of the formats.
func (r *Report) Write(out io.Writer, format string) error {
	switch format {
	case FormatTable:
		return r.writeTable(out)
	case FormatJSON:
		e := json.NewEncoder(out)
		e.SetIndent("", "  ")
		return e.Encode(r)
	case FormatCSV:
		return r.writeCSV(out)
	default:
		return fmt.Errorf("unknown output format %q: use table, json or csv", format)
	}
}

// writeTable writes one row for each load and server: the second server's is
// below the first's.
func (r *Report) writeTable(out io.Writer) error {
	t := table{Report: r, compared: len(r.Targets) == 2, load: len("load"), unit: len("unit")}
	for _, l := range r.Loads {
		t.load, t.unit = max(t.load, len(l.Load)), max(t.unit, len(l.Unit))
		t.seen = t.seen || slices.ContainsFunc(l.Results, func(r Result) bool { return r.ServerCost != nil })
	}
	t.about(out)
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, t.head())
	for i := range r.Loads {
		for target := range r.Loads[i].Results {
			fmt.Fprintln(w, t.row(&r.Loads[i], target))
		}
	}
	if err := w.Flush(); err != nil {
		return err
	}
	r.writeMeans(out)
	r.writeErrors(out)
	return nil
}

// table is a report as a table.
type table struct {
	*Report

	compared   bool // there are two servers
	seen       bool // a server's processor time is known
	load, unit int  // widths of these columns, which are padded, as names are left-aligned
}

// about writes what was measured, and how.
func (t *table) about(out io.Writer) {
	for i, target := range t.Targets {
		if t.compared {
			fmt.Fprintf(out, "%c: ", 'A'+i)
		}
		fmt.Fprintf(out, "%s, NFS version %s\n", target, t.NFS[i])
	}
	fmt.Fprintf(out, "%d connections, %d calls in flight on each, %g s per load", t.Connections, t.Depth, t.Seconds)
	if t.Rounds > 1 {
		fmt.Fprintf(out, " in %d rounds", t.Rounds)
	}
	if t.seen {
		fmt.Fprint(out, "\nserver, of it user and system, and client: microseconds of processor time for each of ops\n\n")
	} else {
		fmt.Fprint(out, "\nclient: microseconds of processor time for each of ops; the server's process can't be seen from here\n\n")
	}
}

// head returns the titles of the columns. Each cell of the table ends in a tab.
func (t *table) head() string {
	head := fmt.Sprintf("%-*s\t%-*s\t", t.load, "load", t.unit, "unit")
	if t.compared {
		head += "server\t"
	}
	head += "ops/s\t"
	if t.seen {
		head += "server\tuser\tsystem\t"
	}
	head += "client\tMB/s\tp50\tp99\tp999\terrors\t"
	if t.compared {
		head += "A/B\tmin..max\t"
	}
	if t.compared && t.seen {
		head += "cost B/A\tmin..max\t"
	}
	return head
}

// row returns what a load did on one of the servers, in the columns of head.
func (t *table) row(l *LoadReport, target int) string {
	row := "\t\t"
	if target == 0 {
		row = fmt.Sprintf("%-*s\t%-*s\t", t.load, l.Load, t.unit, l.Unit)
	}
	if t.compared {
		row += fmt.Sprintf("%c\t", 'A'+target)
	}
	result := &l.Results[target]
	row += fmt.Sprintf("%.0f\t", result.OpsPerSecond)
	if cost := result.ServerCost; cost != nil {
		row += fmt.Sprintf("%s\t%s\t%s\t", digits(cost.total()), digits(cost.User), digits(cost.System))
	} else if t.seen {
		row += "-\t-\t-\t"
	}
	row += fmt.Sprintf("%s\t%s\t%s\t%s\t%s\t%d\t", digits(result.ClientCost.total()), megabytes(result.MBPerSecond),
		short(result.P50), short(result.P99), short(result.P999), result.Errors)
	if t.compared {
		row += tableCells(l.Ratio, target)
	}
	if t.compared && t.seen {
		row += tableCells(l.CostRatio, target)
	}
	return row
}

// writeMeans writes the comparison of the servers over all loads.
func (r *Report) writeMeans(out io.Writer) {
	if r.GeometricMean > 0 {
		fmt.Fprintf(out, "\nA/B over all loads, geometric mean: %.2f\n", r.GeometricMean)
	}
	if r.CostGeometricMean > 0 {
		fmt.Fprintf(out, "the servers' processor time, B/A over all loads, geometric mean: %.2f\n", r.CostGeometricMean)
	}
}

// writeErrors writes the first error of each load and server.
func (r *Report) writeErrors(out io.Writer) {
	for _, load := range r.Loads {
		for i, result := range load.Results {
			if result.Errors > 0 {
				fmt.Fprintf(out, "\n%s: %d errors from %s, the first: %s", load.Load, result.Errors, r.Targets[i], result.Error)
			}
		}
	}
	if r.Errors() > 0 {
		fmt.Fprintln(out)
	}
}

// writeCSV writes a row for each load and server.
func (r *Report) writeCSV(out io.Writer) error {
	w := csv.NewWriter(out)
	rows := [][]string{{
		"load", "unit", "target", "nfs", "ops", "seconds", "ops_per_s", "mb_per_s", "p50_us", "p99_us", "p999_us", "max_us",
		"errors", "error", "ratio_median", "ratio_min", "ratio_max", "server_user_us", "server_system_us", "client_user_us", "client_system_us",
		"cost_ratio_median", "cost_ratio_min", "cost_ratio_max",
	}}
	for _, load := range r.Loads {
		for i, result := range load.Results {
			row := []string{load.Load, load.Unit, r.Targets[i], r.NFS[i], strconv.FormatInt(result.Ops, 10)}
			for _, f := range []float64{
				result.Seconds, result.OpsPerSecond, result.MBPerSecond, result.P50, result.P99, result.P999, result.Max,
			} {
				row = append(row, decimal(f))
			}
			row = append(row, strconv.FormatInt(result.Errors, 10), result.Error)
			row = append(row, ratioCells(load.Ratio, i)...)
			for _, cost := range []*Cost{result.ServerCost, result.ClientCost} {
				if cost != nil {
					row = append(row, decimal(cost.User), decimal(cost.System))
				} else {
					row = append(row, "", "")
				}
			}
			row = append(row, ratioCells(load.CostRatio, i)...)
			rows = append(rows, row)
		}
	}
	if err := w.WriteAll(rows); err != nil {
		return fmt.Errorf("write CSV: %w", err)
	}
	return nil
}

// tableCells is ratioCells for the table.
func tableCells(r *Ratio, target int) string {
	if r == nil || target > 0 {
		return "\t\t"
	}
	return fmt.Sprintf("%.2f\t%.2f..%.2f\t", r.Median, r.Min, r.Max)
}

// ratioCells returns a ratio in the row of the first server.
func ratioCells(r *Ratio, target int) []string {
	if r == nil || target > 0 {
		return []string{"", "", ""}
	}
	return []string{decimal(r.Median), decimal(r.Min), decimal(r.Max)}
}

func decimal(f float64) string { return strconv.FormatFloat(f, 'f', 3, 64) }

// megabytes returns no number for loads without data.
func megabytes(mb float64) string {
	if mb == 0 {
		return "-"
	}
	return fmt.Sprintf("%.1f", mb)
}

// digits formats microseconds with about three digits.
func digits(us float64) string {
	switch {
	case us == 0:
		return "-" // unknown, or nothing
	case us < 10:
		return fmt.Sprintf("%.2f", us)
	case us < 100:
		return fmt.Sprintf("%.1f", us)
	default:
		return fmt.Sprintf("%.0f", us)
	}
}

// short formats a time in microseconds with about three digits.
func short(us float64) string {
	if us == 0 {
		return "-" // nothing was done
	}
	switch d := time.Duration(us * 1e3); {
	case d < 100*time.Microsecond:
		return fmt.Sprintf("%.1fus", us)
	case d < time.Millisecond:
		return fmt.Sprintf("%.0fus", us)
	case d < 100*time.Millisecond:
		return fmt.Sprintf("%.1fms", us/1e3)
	case d < time.Second:
		return fmt.Sprintf("%.0fms", us/1e3)
	default:
		return fmt.Sprintf("%.2fs", us/1e6)
	}
}

package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
	"unicode/utf8"

	"github.com/maruel/natural"
	"github.com/spf13/cobra"

	"github.com/podnas/podnas/internal/volume"
	"github.com/podnas/podnas/provisioner/control"
)

// watchPeriod is the time between two looks of --watch.
const watchPeriod = 2 * time.Second

const listLong = `List the volumes: their size; their usage on the disk ("-" if it is not counted, and with a "+"
while the server still counts existing files), also in percent of the size; their StorageClass and
claim; their state; how many clients have used them in the last hour; and what enforces the size
(kernel, server, or off: nothing). If a volume's directory differs from its name, the list shows it,
relative to the root of the disk. A volume that SHOWS a snapshot is read-only, and takes no space.

A volume is "ready" if clients can mount it, "damaged" if its record can't be relied on, and "not
served" for another reason. Below the table is why, and what is wrong with volumes in a cluster, with
what to do, and the reason for the kind of quota.

--sort takes name, claim, class, size, used, use% or clients: names with their numbers by value, so team-2
is before team-10, and sizes, usage and clients with the largest first.`

const listExamples = `  podnas volume list
  podnas volume list --sort use%    # the fullest first
  podnas volume list --watch        # again every 2 seconds, until Ctrl-C
  podnas volume list --all          # also those that were deleted and kept
  podnas volume list -o wide        # files, age, and what clients may do
  podnas volume list -o json | jq -r '.[] | select(.claim == null) | .name'

  # Names alone, for a script
  podnas volume list -o name`

// listFlags are what the flags of podnas volume list say.
type listFlags struct {
	all, watch   bool
	sort, output string
	painter      painter
}

func newListCommand(cfg *volumeConfig) *cobra.Command {
	var flags listFlags
	cmd := &cobra.Command{
		Use:     "list",
		Aliases: []string{"ls"},
		Short:   "List the volumes",
		Long:    listLong,
		Example: listExamples,
		Args:    exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := flags.check(); err != nil {
				return err
			}
			client, err := cfg.client()
			if err != nil {
				return err
			}
			out := cmd.OutOrStdout()
			flags.painter = newPainter(cmd, out)
			if flags.watch {
				return repeat(cmd.Context(), out, screenOf(out), watchPeriod, func(ctx context.Context, out io.Writer) error {
					return flags.list(ctx, client, out, out, cfg.root)
				})
			}
			return flags.list(cmd.Context(), client, out, cmd.ErrOrStderr(), cfg.root)
		},
	}
	f := cmd.Flags()
	f.SortFlags = false
	f.BoolVar(&flags.all, "all", false, "also list deleted volumes that were archived or retained")
	f.StringVar(&flags.sort, "sort", sortName, "order: "+strings.Join(sortOrders(), ", "))
	f.Lookup("sort").Annotations = map[string][]string{formsAnnotation: sortOrders()}
	f.BoolVarP(&flags.watch, "watch", "w", false, "list them again every 2 seconds; if the output is no terminal, when something has changed")
	addOutputFlag(f, &flags.output, outputTable, outputWide, outputName, outputJSON, outputYAML)
	return cmd
}

// check refuses flags that mean nothing.
func (l *listFlags) check() error {
	switch {
	case !slices.Contains(sortOrders(), l.sort):
		return &usageError{fmt.Errorf("unknown order --sort=%s%s: use one of %s", l.sort, didYouMean(nearest(l.sort, sortOrders())), strings.Join(sortOrders(), ", "))}
	case l.watch && (l.output == outputJSON || l.output == outputYAML):
		return &usageError{fmt.Errorf("--watch has no end, so there is no whole document to print as %s: use -o %s, %s or %s", l.output, outputTable, outputWide, outputName)}
	}
	return nil
}

// list prints the volumes once. That there are none is said on remarks.
func (l *listFlags) list(ctx context.Context, client *control.Client, out, remarks io.Writer, root string) error {
	volumes, err := client.List(ctx, l.all)
	if err != nil {
		return err
	}
	sortVolumes(volumes, l.sort)
	switch {
	case l.output == outputJSON || l.output == outputYAML:
		return printValue(out, l.output, volumes)
	case l.output == outputName:
		for _, v := range volumes {
			fmt.Fprintln(out, v.Name)
		}
		return nil
	case len(volumes) == 0:
		fmt.Fprintf(remarks, "there are no volumes on %s\n", root)
		return nil
	}
	return printTable(out, l.painter, volumes, l.output == outputWide)
}

// repeat prints something again and again, until ctx ends: on a screen instead of what was there
// before, else when it has changed.
func repeat(ctx context.Context, out io.Writer, on screen, period time.Duration, list func(context.Context, io.Writer) error) error {
	said := ""
	for {
		var text strings.Builder
		err := list(ctx, &text)
		switch {
		case ctx.Err() != nil:
			return nil // how a watch ends
		case err != nil:
			return err
		case on != nil:
			// To the top left; each line, and what is below the last, is erased.
			fmt.Fprint(out, "\x1b[H", strings.ReplaceAll(on.fit(text.String()), "\n", "\x1b[K\n"), "\x1b[J")
		case text.String() != said:
			fmt.Fprint(out, text.String())
		}
		said = text.String()
		if !sleep(ctx, period) {
			return nil
		}
	}
}

// fit cuts a text to the rows of the screen, which would scroll, and says how much is left out.
func (s screen) fit(text string) string {
	width, height := s()
	if height == 0 {
		return text
	}
	lines := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
	rows, fitting := 0, 0 // the lines that fit above the one that says how many do not
	for i, line := range lines {
		rows += 1 + max(0, utf8.RuneCountInString(sgr.ReplaceAllString(line, ""))-1)/max(1, width)
		if rows <= height-2 {
			fitting = i + 1
		}
	}
	if rows < height { // the cursor is in the row below
		return text
	}
	return strings.Join(append(lines[:fitting:fitting], fmt.Sprintf("and %d more lines\n", len(lines)-fitting)), "\n")
}

// sgr is what painter writes, which has no width.
var sgr = regexp.MustCompile("\x1b\\[[0-9;]*m")

// The orders of --sort.
const (
	sortName       = "name"
	sortClaim      = "claim"
	sortClass      = "class"
	sortSize       = "size"
	sortUsed       = "used"
	sortUsePercent = "use%"
	sortClients    = "clients"
)

func sortOrders() []string {
	return []string{sortName, sortClaim, sortClass, sortSize, sortUsed, sortUsePercent, sortClients}
}

// sortVolumes sorts them; those that are equal in this order by their names.
func sortVolumes(volumes []control.Volume, order string) {
	slices.SortStableFunc(volumes, func(a, b control.Volume) int {
		first := 0
		switch order {
		case sortClaim:
			first = compareClaims(a, b)
		case sortClass:
			first = compareClasses(a, b)
		case sortSize:
			first = cmp.Compare(b.Size, a.Size)
		case sortUsed:
			first = cmp.Compare(usedFor(b), usedFor(a))
		case sortUsePercent:
			first = cmp.Compare(usePercent(b), usePercent(a))
		case sortClients:
			first = cmp.Compare(clientsFor(b), clientsFor(a))
		}
		return cmp.Or(first, natural.Compare(a.Name, b.Name))
	})
}

// compareClaims has the volumes without a claim at the end.
func compareClaims(a, b control.Volume) int {
	switch {
	case a.Claim == nil && b.Claim == nil:
		return 0
	case a.Claim == nil:
		return 1
	case b.Claim == nil:
		return -1
	}
	return natural.Compare(claimName(a), claimName(b))
}

// compareClasses has the volumes without a class at the end.
func compareClasses(a, b control.Volume) int {
	if (a.StorageClass == "") != (b.StorageClass == "") {
		return cmp.Compare(b.StorageClass, a.StorageClass)
	}
	return natural.Compare(a.StorageClass, b.StorageClass)
}

// clientsFor is less than 0 if nobody counts the clients.
func clientsFor(v control.Volume) int {
	if v.Clients == nil {
		return -1
	}
	return *v.Clients
}

// usedFor is less than 0 if the usage is unknown.
func usedFor(v control.Volume) int64 {
	if v.Used == nil {
		return -1
	}
	return v.Used.Bytes
}

// usePercent is less than 0 if the usage is unknown.
func usePercent(v control.Volume) float64 {
	if v.Used == nil || v.Size == 0 {
		return -1
	}
	return 100 * float64(v.Used.Bytes) / float64(v.Size)
}

func printTable(out io.Writer, p painter, volumes []control.Volume, wide bool) error {
	w := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
	header := []string{"NAME", "SIZE", "USED", p.paint(noColour, "USE%"), "CLASS", "CLAIM", p.paint(noColour, "STATE"), "CLIENTS", "QUOTA"}
	// Most directories are called what their volumes are.
	paths := wide || slices.ContainsFunc(volumes, func(v control.Volume) bool { return v.Path != v.Name })
	if paths {
		header = append(header, "PATH")
	}
	snapshots := wide || slices.ContainsFunc(volumes, func(v control.Volume) bool { return v.Snapshots > 0 })
	if snapshots {
		header = append(header, "SNAPSHOTS")
	}
	shows := slices.ContainsFunc(volumes, func(v control.Volume) bool { return v.View })
	if shows {
		header = append(header, "SHOWS")
	}
	if wide {
		header = append(header, "SNAPSHOT-BYTES", "FILES", "ON-DELETE", "OPTIONS", "AGE")
	}
	fmt.Fprintln(w, strings.Join(header, "\t"))
	for _, v := range volumes {
		row := []string{
			v.Name, sizeOf(v), usedBytes(v), p.paint(colourOfUse(v), useOf(v)), cmp.Or(v.StorageClass, "-"), claimName(v),
			p.paint(colourOfState(v.State), v.State), clientsOf(v), quotaOf(v),
		}
		if paths {
			row = append(row, v.Path)
		}
		if snapshots {
			row = append(row, fmt.Sprint(v.Snapshots))
		}
		if shows {
			row = append(row, showsOf(v))
		}
		if wide {
			files := "-"
			if v.Used != nil {
				files = usedFiles(v, "", "/")
			}
			since := "-"
			if !v.Created.IsZero() {
				since = age(v.Created)
			}
			row = append(row, volume.FormatSize(v.SnapshotBytes), files, onDelete(v), cmp.Or(strings.Join(options(v.Options), ","), "-"), since)
		}
		fmt.Fprintln(w, strings.Join(row, "\t"))
	}
	if err := w.Flush(); err != nil {
		return err
	}
	for _, v := range volumes {
		if v.Problem != "" {
			fmt.Fprintf(out, "\n%s: %s\n  to do: %s\n", v.Name, v.Problem, v.Fix)
		}
	}
	for _, q := range reasons(volumes) {
		fmt.Fprintf(out, "\nQUOTA %s: %s\n", q.By, q.Reason)
	}
	return nil
}

// reasons are the ways in which volumes are kept below their sizes, once each.
func reasons(volumes []control.Volume) []control.Quota {
	var said []control.Quota
	for _, v := range volumes {
		if v.Quota != nil && !slices.Contains(said, *v.Quota) {
			said = append(said, *v.Quota)
		}
	}
	return said
}

// useOf is how full a volume is.
func useOf(v control.Volume) string {
	if usePercent(v) < 0 {
		return "-"
	}
	use := fmt.Sprintf("%d%%", volume.Percent(v.Used.Bytes, v.Size))
	if v.Used.Partial {
		use += "+"
	}
	return use
}

// showsOf is the snapshot that a volume shows.
func showsOf(v control.Volume) string {
	if !v.View {
		return "-"
	}
	return copyOf(v)
}

func clientsOf(v control.Volume) string {
	if v.Clients == nil {
		return "-"
	}
	return fmt.Sprint(*v.Clients)
}

func quotaOf(v control.Volume) string {
	if v.Quota == nil {
		return "-"
	}
	return string(v.Quota.By)
}

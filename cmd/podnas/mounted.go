package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/podnas/podnas/provisioner/control"
)

// mountedPeriod is the time between two looks.
const mountedPeriod = 2 * time.Second

const mountedLong = `List the pods that have volumes of this podnas mounted, and the volumes that it has yet to delete
because their claims were deleted. With --wait, wait until there are none. Do this before you remove
podnas, its namespace or its disk. Otherwise nodes wait for a server that is gone, pods that can't
end prevent a node from being drained or shut down, and PersistentVolumes stay.

This evicts and changes nothing; delete or scale down the listed pods yourself.
In a cluster, run it in podnas's pod:

  kubectl apply -f deploy/components/drain/rbac.yaml
  kubectl exec -n podnas podnas-0 -- podnas mounted --wait
  kubectl delete -f deploy/components/drain/rbac.yaml

The first command lets podnas list pods, which it otherwise may not. It lists the pods that use
claims of this podnas, according to the API server. Without a cluster, and for volumes mounted by
hand, it only knows open connections. A mount that nobody has used for some minutes has no
connection: check for those yourself.

Exit codes: 0 nothing is mounted; 1 failed; 4 volumes are mounted, with --wait still at the
--timeout; 6 podnas is not running; 130 interrupted.`

const mountedExamples = `  # Which pods have volumes mounted?
  kubectl exec -n podnas podnas-0 -- podnas mounted

  # Wait up to ten minutes, then remove podnas
  kubectl exec -n podnas podnas-0 -- podnas mounted --wait --timeout=10m && kubectl delete -f deploy/podnas.yaml

  # Without a cluster: wait until no client is connected
  podnas mounted --wait --root=data/root`

// inUseError says that volumes are mounted.
type inUseError struct{ mounted control.Mounted }

func (e *inUseError) Error() string {
	return "still in use: " + summary(e.mounted)
}

func newMountedCommand() *cobra.Command {
	var m mountedFlags
	cmd := &cobra.Command{
		Use:     "mounted",
		Short:   "List the pods that have volumes mounted, and wait until there are none",
		Long:    mountedLong,
		Example: mountedExamples,
		Args:    exactly(),
		RunE:    m.run,
	}
	f := cmd.Flags()
	addRootFlag(f, &m.root, "directory of the disk that the running podnas serves")
	f.DurationVar(&m.timeout, "timeout", -1, "how long to wait; below 0: forever")
	f.Lookup("timeout").DefValue = "forever"
	addOutputFlag(f, &m.output, outputTable, outputJSON, outputYAML)
	f.BoolVarP(&m.wait, "wait", "w", false, "wait until nothing is mounted")
	return cmd
}

// mountedFlags are what the flags of podnas mounted say.
type mountedFlags struct {
	root, output string
	wait         bool
	timeout      time.Duration
}

func (m *mountedFlags) run(cmd *cobra.Command, _ []string) error {
	switch {
	case !m.wait && cmd.Flags().Changed("timeout"):
		return &usageError{errors.New("--timeout is for --wait")}
	case !m.wait:
		m.timeout = 0
	}
	client, err := controlOf(m.root)
	if err != nil {
		return err
	}
	return m.look(cmd, client.Mounted)
}

// look prints what ask says is mounted, and waits if it is to.
func (m *mountedFlags) look(cmd *cobra.Command, ask func(context.Context) (control.Mounted, error)) error {
	w := &unmounting{ask: ask, period: mountedPeriod, timeout: m.timeout, out: cmd.OutOrStdout()}
	if m.output != outputTable {
		w.out = io.Discard
	}
	mounted, err := w.wait(cmd.Context())
	var inUse *inUseError
	if m.output != outputTable && (err == nil || errors.As(err, &inUse)) {
		err = errors.Join(printValue(cmd.OutOrStdout(), m.output, mounted), err)
	}
	return err
}

// unmounting waits until the volumes of a podnas are not in use.
type unmounting struct {
	ask     func(context.Context) (control.Mounted, error)
	period  time.Duration
	timeout time.Duration // below 0: none
	out     io.Writer
}

// wait returns what there was at the last look.
func (u *unmounting) wait(ctx context.Context) (control.Mounted, error) {
	begin := time.Now()
	said := ""
	for {
		mounted, err := u.ask(ctx)
		if err != nil {
			return mounted, err
		}
		if !mounted.Any() {
			fmt.Fprintln(u.out, "Nothing is mounted.")
			return mounted, nil
		}
		if table := mountedTable(mounted); table != said {
			said = table
			fmt.Fprintf(u.out, "%s:\n%s", summary(mounted), table)
		}
		if u.timeout >= 0 && time.Since(begin) >= u.timeout {
			return mounted, &inUseError{mounted}
		}
		if !sleep(ctx, u.period) {
			return mounted, ctx.Err()
		}
	}
}

func summary(u control.Mounted) string {
	if !u.Cluster {
		return fmt.Sprintf("%d client%s connected", len(u.Clients), map[bool]string{true: " is", false: "s are"}[len(u.Clients) == 1])
	}
	pods, volumes := map[string]bool{}, map[string]bool{}
	for _, user := range u.Users {
		pods[user.Namespace+"/"+user.Pod] = true
		volumes[user.Volume] = true
	}
	says := fmt.Sprintf("%d pod%s with %d volume%s, %d client%s connected",
		len(pods), plural(len(pods)), len(volumes), plural(len(volumes)), len(u.Clients), plural(len(u.Clients)))
	if n := len(u.Deleting); n > 0 {
		says += fmt.Sprintf(", %d volume%s to be deleted", n, plural(n))
	}
	return says
}

func mountedTable(u control.Mounted) string {
	var text strings.Builder
	w := tabwriter.NewWriter(&text, 0, 0, 3, ' ', 0)
	if u.Cluster {
		if len(u.Users) > 0 {
			fmt.Fprintln(w, "  NAMESPACE\tPOD\tNODE\tCLAIM\tVOLUME\t")
		}
		for _, user := range u.Users {
			ending := ""
			if user.Ending {
				ending = "ending"
			}
			fmt.Fprintf(w, "  %s\t%s\t%s\t%s\t%s\t%s\n", user.Namespace, user.Pod, cmp.Or(user.Node, "-"), user.Claim, user.Volume, ending)
		}
		for _, name := range u.Deleting {
			fmt.Fprintf(w, "  volume %s is to be deleted\n", name)
		}
	} else {
		fmt.Fprintln(w, "  CLIENT")
		for _, c := range slices.SortedFunc(slices.Values(u.Clients), netip.Addr.Compare) {
			if c.IsValid() {
				fmt.Fprintf(w, "  %s\n", c)
			} else {
				fmt.Fprintln(w, "  and more")
			}
		}
	}
	_ = w.Flush() // a strings.Builder takes everything
	return text.String()
}

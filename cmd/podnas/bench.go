package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/podnas/podnas/internal/doctor"
	"github.com/podnas/podnas/tools/nfsbench"
)

const benchLong = `bench sends NFS calls to a server, like many concurrent clients, and measures its operations
per second and their latency. It mounts nothing. It needs root if the volume has privilegedPorts,
which is the default in a cluster, and no rights otherwise. It works with any server of NFSv3,
NFSv4.1 or NFSv4.2: podnas, NFS-Ganesha, the Linux kernel's server, or an appliance.

It works in its own directory podnas-bench-... in the root of the export, and removes it at the
end and after Ctrl-C. It verifies all data that it reads.

ops/s counts the load's unit: calls, blocks, directory entries, or files. p50, p99 and p999 are
the latencies that 50%, 99% and 99.9% of the operations did not exceed. With --against each load
runs alternately on both servers, and A/B is the ratio of the first server's rate to the
second's: the median of the rounds, the lowest, and the highest. If these are far apart, other
programs disturbed the measurement: repeat it, or use a longer --duration.

client, and server if it runs here and you may see its process, are microseconds of processor time
for each of ops: what other programs do changes them much less than it changes ops/s. B/A is how
much more of it the second server takes. A server in the kernel has a process for each thread:
--server-pid=$(pgrep -d, -x nfsd).

With --nfs=4.1 or 4.2 each connection is a client with a session of its own, as a node is, and
each of its --depth calls in flight has a slot. A call is a COMPOUND of SEQUENCE, PUTFH and the
operation; 4.2 has the same ones. Files are opened before they are read and written, and /path is that of an NFSv4
mount. To compare the versions of one server, name it twice.

A server with root_squash needs a directory that --uid may write to. The default port of NFS is
2049, and MOUNT is expected on the port of NFS; use HOST:PORT and --mountport to change them.
Other servers often have MOUNT on another port: rpcinfo -p HOST shows it.

Exit codes: 0 all calls succeeded; 1 some failed, or the benchmark could not run; 2 invalid
request; 130 interrupted.`

const benchExamples = `  # How fast is this volume? (the server and path of its PersistentVolume: kubectl get pv -o yaml)
  podnas bench 10.96.0.20:/default-data

  # Only small calls, one at a time, like a single program
  podnas bench nas.example.com:/export --loads=getattr,lookup,read-4k-rand --connections=1 --depth=1

  # Compare two servers; longer, for more stable results
  podnas bench 10.96.0.20:/default-data --against nas.example.com:/export --duration=20s

  # Is NFSv4.1 as fast as NFSv3 on this volume?
  podnas bench 10.96.0.20:/default-data --nfs=4.1 --against 10.96.0.20:/default-data --against-nfs=3

  # A server on other ports, over IPv6, as a user
  podnas bench '[2001:db8::1]:20490:/export' --mountport=20048 --uid=1000 --gid=1000

  # For a spreadsheet
  podnas bench nas.example.com:/export --loads='read-*,write-*' --output=csv >nas.csv`

// benchFlags are what the flags of bench say.
type benchFlags struct {
	against                     string
	nfs, againstNFS             string
	port, mountPort             uint16
	againstPort, againstMount   uint16
	connections, depth, entries int
	duration                    time.Duration
	rounds                      int
	loads                       []string
	fileSize                    int
	uid, gid                    uint32
	serverPID, againstPID       []int
	output                      string
}

func newBenchCommand() *cobra.Command {
	var flags benchFlags
	cmd := &cobra.Command{
		Use:     "bench HOST[:PORT]:/path",
		Short:   "Measure the speed of an NFS server",
		Long:    benchLong + "\n\nLoads:\n" + benchLoads(),
		Example: benchExamples,
		Args:    exactly("HOST:/path"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return bench(cmd.Context(), &flags, args[0], cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	f := cmd.Flags()
	f.SortFlags = false
	f.StringVar(&flags.against, "against", "", "HOST[:PORT]:/path of a second server to compare with")
	f.StringVar(&flags.nfs, "nfs", nfsbench.NFS3.String(), "version of NFS: 3, 4.1, 4.2")
	f.StringVar(&flags.againstNFS, "against-nfs", "", "like --nfs, for the second server (default that of --nfs)")
	f.StringSliceVar(&flags.loads, "loads", nil, "loads to run, separated by commas, with * as a wildcard (default all)")
	f.DurationVar(&flags.duration, "duration", 3*time.Second, "how long each load runs on each server")
	f.IntVar(&flags.rounds, "rounds", 0, "number of rounds that the duration is divided into (default 1, with --against 5)")
	f.IntVar(&flags.connections, "connections", 2, "connections to each server")
	f.IntVar(&flags.depth, "depth", 8, "calls in flight on each connection")
	f.IntVar(&flags.fileSize, "file-size", 0, "size in MiB of each of the two files that are read and written; data that does not\nfit into the server's memory is read from its disk (default 64, or what fits into\nthe volume)")
	f.IntVar(&flags.entries, "entries", 10000, "number of files in the directory that readdirplus lists")
	f.Uint32Var(&flags.uid, "uid", uint32(os.Getuid()), "user id of the calls; default: yours")
	f.Uint32Var(&flags.gid, "gid", uint32(os.Getgid()), "group id of the calls; default: yours")
	for _, id := range []string{"uid", "gid"} {
		f.Lookup(id).DefValue = "0" // whoever runs it, the help is the same
	}
	f.Uint16Var(&flags.port, "port", 0, "port of NFS (default 2049)")
	f.Uint16Var(&flags.mountPort, "mountport", 0, "port of MOUNT, which only NFSv3 needs (default that of NFS)")
	f.Uint16Var(&flags.againstPort, "against-port", 0, "like --port, for the second server")
	f.Uint16Var(&flags.againstMount, "against-mountport", 0, "like --mountport, for the second server")
	f.IntSliceVar(&flags.serverPID, "server-pid", nil, "process ids of the server, whose processor time is measured (default: the process\nat the other end of a connection, if it runs here and you may see it)")
	f.IntSliceVar(&flags.againstPID, "against-server-pid", nil, "like --server-pid, for the second server")
	addOutputFlag(f, &flags.output, nfsbench.FormatTable, nfsbench.FormatJSON, nfsbench.FormatCSV)
	return cmd
}

func benchLoadNames() []string {
	var names []string
	for _, l := range nfsbench.Loads() {
		names = append(names, l.Name)
	}
	return names
}

// benchLoads is a list of the loads for people.
func benchLoads() string {
	var b strings.Builder
	for _, l := range nfsbench.Loads() {
		fmt.Fprintf(&b, "  %-25s %s\n", l.Name, l.About)
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// config reads the flags.
func (f *benchFlags) config(target string) (cfg nfsbench.Config, err error) {
	cfg = nfsbench.Config{
		Connections: f.connections, Depth: f.depth, Duration: f.duration, Rounds: f.rounds,
		FileSize: int64(f.fileSize) << 20, Entries: f.entries, UID: f.uid, GID: f.gid,
	}
	first, err := benchTarget(target, f.nfs, f.port, f.mountPort)
	if err != nil {
		return cfg, &usageError{err}
	}
	cfg.Targets = []nfsbench.Target{first}
	cfg.Processes = [2][]int{f.serverPID, f.againstPID}
	switch {
	case f.against != "":
		second, err := benchTarget(f.against, cmp.Or(f.againstNFS, f.nfs), f.againstPort, f.againstMount)
		if err != nil {
			return cfg, &usageError{fmt.Errorf("--against: %w", err)}
		}
		cfg.Targets = append(cfg.Targets, second)
	case f.againstPort != 0 || f.againstMount != 0 || f.againstNFS != "" || len(f.againstPID) > 0:
		return cfg, &usageError{errors.New("--against-nfs, --against-port, --against-mountport and --against-server-pid need --against")}
	}
	if cfg.Rounds == 0 {
		cfg.Rounds = 1
		if f.against != "" {
			cfg.Rounds = 5
		}
	}
	if cfg.Loads, err = nfsbench.Select(f.loads, cfg.Targets...); err != nil {
		return cfg, &usageError{fmt.Errorf("--loads: %w", err)}
	}
	if err := cfg.Validate(); err != nil {
		return cfg, &usageError{err}
	}
	return cfg, nil
}

func benchTarget(where, version string, port, mountPort uint16) (t nfsbench.Target, err error) {
	if t, err = nfsbench.ParseTarget(where, port, mountPort); err != nil {
		if strings.HasPrefix(where, "/") {
			err = fmt.Errorf("%w: bench speaks NFS itself, so it takes the server and path that 'findmnt -no SOURCE %s' prints; 'podnas doctor mount' takes a directory, too", err, where)
		}
		return t, err
	}
	if t.Version, err = nfsbench.ParseVersion(version); err != nil {
		return t, err
	}
	if t.Version != nfsbench.NFS3 && mountPort != 0 {
		return t, fmt.Errorf("version %s of NFS has no MOUNT, and so no port of it", t.Version)
	}
	return t, nil
}

func bench(ctx context.Context, flags *benchFlags, target string, stdout, stderr io.Writer) error {
	defer nfsbench.HalveProcessors()()
	cfg, err := flags.config(target)
	if err != nil {
		return err
	}
	clearLine := func() {}
	if isTerminal(stderr) {
		cfg.Progress = func(p nfsbench.Progress) { fmt.Fprint(stderr, "\r\x1b[K", progressLine(&cfg, p)) }
		clearLine = func() { fmt.Fprint(stderr, "\r\x1b[K") }
	}
	report, err := nfsbench.Run(ctx, cfg)
	clearLine()
	if err != nil && ctx.Err() == nil && (report == nil || len(report.Loads) == 0) {
		err = explain(ctx, &cfg, err)
	}
	if report != nil && len(report.Loads) > 0 {
		err = errors.Join(err, report.Write(stdout, flags.output))
	}
	if ctx.Err() != nil && err != nil {
		return &interruptedError{fmt.Sprintf("interrupted; the remaining loads did not run: %v", err)}
	}
	if err == nil && report.Errors() > 0 {
		return fmt.Errorf("%d operations failed", report.Errors())
	}
	return err
}

// explain returns what podnas doctor mount finds wrong with one of the servers of a benchmark that could not begin, and what
// to do, before the error of the benchmark.
func explain(ctx context.Context, cfg *nfsbench.Config, err error) error {
	for _, target := range cfg.Targets {
		try := mountFlags{options: []string{"nfsvers=" + target.Version.String()}, uid: cfg.UID, gid: cfg.GID}
		m, bad := try.mount(target)
		if bad != nil {
			continue
		}
		for _, r := range onWire(ctx, m) {
			if r.Status == doctor.Failed {
				return fmt.Errorf("%s: %s: %s\n  to do: %s\n  bench had: %w", target, r.Check, r.Says, r.Fix, err)
			}
		}
	}
	return err
}

// progressLine is what a terminal shows while the bench runs.
func progressLine(cfg *nfsbench.Config, p nfsbench.Progress) string {
	if p.Load == "" {
		return p.Doing
	}
	line := fmt.Sprintf("%3.0f%%  %s", 100*p.Part, p.Load)
	if len(cfg.Targets) > 1 {
		line += fmt.Sprintf(" on %c, round %d of %d", 'A'+p.Target, p.Round+1, cfg.Rounds)
	}
	return line + fmt.Sprintf(": %d done", p.Ops)
}

// Command local puts an NFS server beside the disk that it serves: turn by turn
// the server is loaded as podnas bench does it, and as many threads as there are
// calls in flight make the same system calls on the disk, and the same syncs. What
// the server adds to its disk is in the ratio.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/podnas/podnas/tools/nfsbench"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "local:", err)
		os.Exit(1)
	}
}

func run() error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	dir := flag.String("dir", "", "a directory on the disk that the server has its volume on")
	loads := flag.String("loads", "", "loads to run (default all that are known here: "+strings.Join(names(), ", ")+")")
	connections := flag.Int("connections", 2, "connections to the server")
	depth := flag.Int("depth", 8, "calls in flight on each connection")
	duration := flag.Duration("duration", 10*time.Second, "how long each load runs on each side")
	rounds := flag.Int("rounds", 5, "turns that the duration is divided into")
	fileSize := flag.Int("file-size", 64, "MiB of the file that is written")
	flag.Parse()
	if *dir == "" || flag.NArg() != 1 {
		return errors.New("usage: local -dir DIR [FLAGS] HOST[:PORT]:/path")
	}
	target, err := nfsbench.ParseTarget(flag.Arg(0), 0, 0)
	if err != nil {
		return err
	}
	chosen, err := choose(*loads)
	if err != nil {
		return err
	}
	cfg := nfsbench.Config{
		Targets: []nfsbench.Target{target}, Connections: *connections, Depth: *depth, Duration: *duration / time.Duration(max(*rounds, 1)), Rounds: 1,
		FileSize: int64(*fileSize) << 20, Entries: 1, UID: uint32(os.Getuid()), GID: uint32(os.Getgid()),
	}
	threads := *connections * *depth
	// A thread that waits for the disk is not to keep another from running.
	runtime.GOMAXPROCS(threads + runtime.GOMAXPROCS(0))
	fmt.Printf("A: %s, %d connections, %d calls in flight on each\nB: %s, %d threads\n%g s per load in %d rounds\n\n%-24s %10s %10s  %6s  %s\n",
		target, *connections, *depth, *dir, threads, duration.Seconds(), *rounds, "load", "A ops/s", "B ops/s", "A/B", "min..max")
	for _, l := range chosen {
		var served, local []float64
		for round := range *rounds {
			sides := []func() error{
				func() error {
					rate, err := serverRate(ctx, cfg, l.bench)
					served = append(served, rate)
					return err
				},
				func() error {
					rate, err := localRate(ctx, l, *dir, threads, cfg.FileSize, cfg.Duration)
					local = append(local, rate)
					return err
				},
			}
			if round%2 == 1 { // nobody always has what the other leaves
				slices.Reverse(sides)
			}
			for _, side := range sides {
				if err := side(); err != nil {
					return fmt.Errorf("%s: %w", l.name, err)
				}
			}
		}
		tell(l.name, served, local)
	}
	return nil
}

// serverRate is how many operations a second the server does.
func serverRate(ctx context.Context, cfg nfsbench.Config, load string) (float64, error) {
	var err error
	if cfg.Loads, err = nfsbench.Select([]string{load}); err != nil {
		return 0, err
	}
	report, err := nfsbench.Run(ctx, cfg)
	if err != nil {
		return 0, err
	}
	result := report.Loads[0].Results[0]
	if result.Errors > 0 {
		return 0, fmt.Errorf("%d operations failed, the first: %s", result.Errors, result.Error)
	}
	return result.OpsPerSecond, nil
}

// tell prints a load's rates, and the median of the rounds' ratios.
func tell(load string, served, local []float64) {
	ratios := make([]float64, len(served))
	for i := range served {
		ratios[i] = served[i] / local[i]
	}
	fmt.Printf("%-24s %10.0f %10.0f  %6.2f  %.2f..%.2f\n",
		load, median(served), median(local), median(ratios), slices.Min(ratios), slices.Max(ratios))
}

func median(of []float64) float64 {
	sorted := slices.Sorted(slices.Values(of))
	n := len(sorted)
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
}

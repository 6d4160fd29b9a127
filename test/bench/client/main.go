//go:build linux

// Command client loads servers of NFSv3, NFSv4.1 or NFSv4.2 through the kernel's own client, as programs
// do, and prints how they compare with the first of them. It mounts all of them on
// the machine it runs on, which is where they serve, and makes what the loads need
// straight on their disk: test/bench/client.sh starts it in a guest.
//
// A load runs on one server after the other, several rounds, and who begins changes.
// Before each turn the export is mounted anew, so that the client remembers nothing.
// What is read is compared with what was written; what was written, with the disk.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path"
	"slices"
	"strings"
	"time"
)

type config struct {
	rounds   int
	duration time.Duration // of a turn of a load that can be any length
	fileSize int64
	entries  int
	tree     string
	loads    string
	calls    bool
}

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "client:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	var cfg config
	flags := flag.NewFlagSet("client", flag.ContinueOnError)
	flags.Usage = func() {
		fmt.Fprintln(flags.Output(), "usage: client [flags] NAME,PORT,MOUNTPORT,EXPORT,DIRECTORY,VERSION...\nDIRECTORY is what is exported, here, and VERSION that of NFS, 3, 4.1 or 4.2. Flags:")
		flags.PrintDefaults()
	}
	flags.IntVar(&cfg.rounds, "rounds", 3, "turns of each load on each server")
	flags.DurationVar(&cfg.duration, "duration", 400*time.Millisecond, "how long a turn is, of loads that have no end of their own")
	size := flags.Int64("file-size", 32, "MiB of each of the files that are read and written")
	flags.IntVar(&cfg.entries, "entries", 50000, "files in the directory that is listed")
	flags.StringVar(&cfg.tree, "tree", "", "the tar that is extracted, and in which git looks for changes")
	flags.StringVar(&cfg.loads, "loads", "*", "loads to run, separated by commas, with * for any letters")
	flags.BoolVar(&cfg.calls, "calls", false, "print, below each load, the calls that the client made for each of what was done")
	if err := flags.Parse(args); err != nil {
		return err
	}
	cfg.fileSize = *size << 20
	if flags.NArg() < 2 || cfg.tree == "" || cfg.rounds < 1 || cfg.entries < 1 || cfg.fileSize < 1 {
		flags.Usage()
		return errors.New("wants two servers or more, and a tree")
	}
	var servers []*server
	for _, arg := range flags.Args() {
		s, err := newServer(arg)
		if err != nil {
			return err
		}
		servers = append(servers, s)
	}
	return compare(&cfg, servers)
}

// compare runs the loads, and prints what came out of each at once: it takes a few
// minutes in all.
func compare(cfg *config, servers []*server) error {
	tree, err := readTree(cfg.tree)
	if err != nil {
		return err
	}
	begun := time.Now()
	made := map[string]bool{} // one directory may be served with two versions
	for _, s := range servers {
		if made[s.local] {
			continue
		}
		made[s.local] = true
		if err := errors.Join(makeFiles(s.local, cfg.fileSize), makeEntries(s.local, cfg.entries), makeRepository(s.local, tree)); err != nil {
			return fmt.Errorf("prepare %s: %w", s.name, err)
		}
	}
	fmt.Printf("made files of %d MiB, a directory of %d files and a source tree of %d, for each server, in %.0f s\n",
		cfg.fileSize>>20, cfg.entries, len(tree), time.Since(begun).Seconds())
	t := newTable(servers)
	for _, l := range loads(cfg, tree) {
		wanted, err := cfg.wants(l.name)
		if err != nil {
			return err
		}
		if !wanted {
			continue
		}
		results := make([][]result, len(servers))
		for round := range cfg.rounds {
			for i := range servers {
				i := (i + round) % len(servers)
				r, err := l.turn(servers[i], round)
				if err != nil {
					return fmt.Errorf("%s on %s: %w", l.name, servers[i].name, err)
				}
				results[i] = append(results[i], r)
			}
		}
		t.row(l, results)
		if cfg.calls {
			t.calls(results)
		}
	}
	t.end()
	fmt.Printf("took %.0f s\n", time.Since(begun).Seconds())
	return nil
}

func (cfg *config) wants(load string) (bool, error) {
	for pattern := range strings.SplitSeq(cfg.loads, ",") {
		if ok, err := path.Match(pattern, load); ok || err != nil {
			return ok, err
		}
	}
	return false, nil
}

// load is what programs do with a mounted directory.
type load struct {
	name string
	unit string
	// whole says that a turn is all there is to do, so that seconds say more
	// than what is done in one.
	whole bool
	run   func(*turn) (result, error)
}

// turn is one run of a load on one server.
type turn struct {
	at      string // the mounted export
	local   string // the same directory on the disk
	version string // of NFS
	round   int
}

type result struct {
	done  int
	took  time.Duration
	calls calls
}

func (r result) rate() float64 { return float64(r.done) / r.took.Seconds() }

// turn runs a load on a server, on a mount of its own.
func (l *load) turn(s *server, round int) (r result, err error) {
	at, err := s.mount()
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, s.unmount(at)) }()
	before, err := callsOf(at)
	if err != nil {
		return r, err
	}
	if r, err = l.run(&turn{at, s.local, s.version, round}); err != nil {
		return r, err
	}
	after, err := callsOf(at)
	r.calls = calls{}
	r.calls.add(before, after)
	return r, err
}

func loads(cfg *config, tree []treeFile) []load {
	return slices.Concat(ioLoads(cfg), fileLoads(cfg, tree))
}

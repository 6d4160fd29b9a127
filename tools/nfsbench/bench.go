package nfsbench

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/podnas/podnas/nfs/rpc"
)

const (
	// grace is how long calls in flight may take after an interrupt.
	grace = 3 * time.Second
	// cleanTimeout bounds the cleanup. Many servers sync each removal.
	cleanTimeout = 10 * time.Minute
	// patience is how long a server may leave all calls of a connection
	// unanswered.
	patience = 30 * time.Second
)

// fileSize is the default size of the files, in bytes, if there is space.
const fileSize = 64 << 20

// Config is what to run. Targets, Loads, Connections, Depth, Duration, Rounds and
// Entries are required.
type Config struct {
	Targets     []Target // one, or two to compare
	Loads       []Load
	Connections int           // to each server
	Depth       int           // calls in flight on each connection
	Duration    time.Duration // of each load on each server, all rounds together
	Rounds      int           // turns that Duration is divided into
	FileSize    int64         // of the files to read and write; 0: as there is space, 64 MiB at most
	Entries     int           // of the large directory
	UID, GID    uint32        // who makes the calls
	Patience    time.Duration // 0: patience

	// Processes are those of each server, whose processor time is measured. Without any it is the process
	// at the other end of a connection, if that can be seen.
	Processes [2][]int

	// Progress is called now and then with the progress. It may be nil.
	Progress func(Progress)
}

// Progress is what the bench is doing.
type Progress struct {
	Doing  string // for people
	Load   string // the running load, "" for none
	Target int    // its index in Config.Targets
	Round  int    // from 0
	Part   float64
	Ops    int64 // done in this turn
}

// Validate checks a Config.
func (c *Config) Validate() error {
	switch {
	case len(c.Targets) != 1 && len(c.Targets) != 2:
		return fmt.Errorf("%d servers, want one or two", len(c.Targets))
	case len(c.Loads) == 0:
		return errors.New("no loads")
	case c.Connections < 1 || c.Depth < 1:
		return errors.New("connections and depth must be at least 1")
	case c.Duration <= 0 || c.Rounds < 1:
		return errors.New("the duration must be more than 0, and rounds at least 1")
	case c.FileSize < 0 || c.FileSize%mebibyte != 0:
		return errors.New("the size of the files must be a multiple of 1 MiB")
	case slices.ContainsFunc(slices.Concat(c.Processes[0], c.Processes[1]), func(pid int) bool { return pid < 1 || pid > maxPID }):
		return fmt.Errorf("a process id is 1 to %d", maxPID)
	case c.Entries < 1:
		return errors.New("the large directory must have at least 1 entry")
	}
	return nil
}

func (c *Config) timeout() time.Duration {
	if c.Patience > 0 {
		return c.Patience
	}
	return patience
}

func (c *Config) cred() rpc.Auth {
	cred := rpc.SysCred{MachineName: []byte("podnas-bench"), UID: c.UID, GID: c.GID}
	return cred.Auth()
}

func (c *Config) say(p Progress) {
	if c.Progress != nil {
		c.Progress(p)
	}
}

// Run runs the loads, and removes its files from the servers, even when ctx ends.
// It returns a report if there are results, even with an error. Failed calls are
// no error: the report counts them.
func Run(ctx context.Context, cfg Config) (report *Report, err error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	var benchmarks []*benchmark
	defer func() {
		// An interrupted bench must remove its files, too.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanTimeout)
		defer cancel()
		cfg.say(Progress{Doing: "removing what was made"})
		for _, s := range benchmarks {
			err = errors.Join(err, s.end(ctx))
		}
	}()
	for i, t := range cfg.Targets {
		cfg.say(Progress{Doing: "connecting to " + t.String()})
		s, err := open(ctx, &cfg, t, cfg.Processes[i])
		if err != nil {
			return nil, err
		}
		benchmarks = append(benchmarks, s)
	}
	if err := fit(&cfg, benchmarks); err != nil {
		return nil, err
	}
	report = newReport(&cfg)
	for i := range cfg.Loads {
		turns, err := alternate(ctx, &cfg, benchmarks, i)
		if err != nil {
			return report, err
		}
		report.add(&cfg.Loads[i], turns)
	}
	return report, nil
}

// fit chooses the size of the files by the servers' free space, or checks the
// configured size.
func fit(cfg *Config, benchmarks []*benchmark) error {
	room := int64(math.MaxInt64)
	for _, s := range benchmarks {
		available, err := s.workers[0].room(s.root)
		if err != nil {
			return err
		}
		// Two files, and the space of a third for all else that the loads create.
		room = min(room, available/3&^(mebibyte-1))
	}
	switch {
	case cfg.FileSize > room, room == 0:
		return fmt.Errorf("the bench needs two files, of %d MiB each, and half as much for the rest, but there is room for files of %d MiB: choose less with --file-size, or raise the volume",
			max(cfg.FileSize, mebibyte)/mebibyte, room/mebibyte)
	case cfg.FileSize == 0:
		cfg.FileSize = min(fileSize, room)
		cfg.say(Progress{Doing: fmt.Sprintf("files of %d MiB are read and written", cfg.FileSize/mebibyte)})
	}
	return nil
}

// alternate runs a load on the servers turn by turn, and returns the turns of
// each. The first server changes with each round, so that none always has the
// caches, or the noise, that the other leaves.
func alternate(ctx context.Context, cfg *Config, benchmarks []*benchmark, load int) ([][]*turnResult, error) {
	turns := make([][]*turnResult, len(benchmarks))
	for round := range cfg.Rounds {
		for i := range benchmarks {
			if round%2 == 1 {
				i = len(benchmarks) - 1 - i
			}
			s := benchmarks[i]
			if s.broken() != nil || s.each(ctx, func(w *worker) error { return w.renew() }) != nil {
				// The last turn counted the failure, or the server has forgotten the bench
				// while it loaded the other: the next starts with new connections.
				if err := s.connect(ctx); err != nil {
					return nil, err
				}
				if err := s.findServer(); err != nil {
					return nil, err
				}
			}
			done := watch(cfg, s, Progress{
				Load: cfg.Loads[load].Name, Target: i, Round: round,
				Part: (float64(load) + float64(round)/float64(cfg.Rounds)) / float64(len(cfg.Loads)),
			})
			seed := uint64(load+1)<<32 + uint64(round+1)
			r, err := s.runTurn(ctx, &cfg.Loads[load], cfg.Duration/time.Duration(cfg.Rounds), seed)
			done()
			if err != nil {
				return nil, err
			}
			turns[i] = append(turns[i], r)
		}
	}
	return turns, nil
}

// watch reports the progress of a turn until stop is called.
func watch(cfg *Config, s *benchmark, p Progress) (stop func()) {
	if cfg.Progress == nil {
		return func() {}
	}
	quit, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		tick := time.NewTicker(250 * time.Millisecond)
		defer tick.Stop()
		for {
			p.Ops = 0
			for _, w := range s.workers {
				p.Ops += w.turn.done.Load()
			}
			cfg.Progress(p)
			select {
			case <-quit:
				return
			case <-tick.C:
			}
		}
	}()
	return func() {
		close(quit)
		<-ended
	}
}

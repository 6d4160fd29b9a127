package nfsbench

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"
)

// dialsAtOnce is how many connections are opened at a time.
const dialsAtOnce = 32

// benchmark is the bench's state for one server.
type benchmark struct {
	cfg     *Config
	target  Target
	filler  *filler
	proto   protocol
	root    []byte // of the export
	name    string // of the bench's own directory in it
	home    []byte // that directory
	conns   []*conn
	workers []*worker
	beside  []*worker // for loads with a beside; nil until one runs

	// rtmax and wtmax are the server's maxima for READ and WRITE.
	rtmax, wtmax int

	processes []int // of the server; none: findServer looks for it
	meter
	fixtures
	cursor atomic.Uint64 // of a sequential load; counts calls
	seed   uint64        // of the running write load
}

// worker makes one call at a time.
type worker struct {
	*benchmark
	*lane
	calls
	id   int
	dir  []byte // its own, in home
	seq  int    // a counter for its load
	made int    // entries that its load has in dir
	rng  uint64

	// Files that it has open. Without a handle they are to be opened.
	readFile, writeFile, ownFile file

	tree  []byte // the handle of the directory that untar is in
	text  []byte // a name, new for each call
	last  uint64 // offset of the last write
	wrote bool   // last is set
	verf  verifier

	page  page // of the large directory that was read last
	found int  // entries of it and of those before

	turn tally
}

// open connects to a server and creates the bench's directory there.
func open(ctx context.Context, cfg *Config, t Target, processes []int) (s *benchmark, err error) {
	s = &benchmark{cfg: cfg, target: t, filler: newFiller(), proto: newProtocol(cfg, t), processes: processes, meter: meter{client: []int{os.Getpid()}}}
	defer func() {
		if err != nil {
			s.leave()
		}
	}()
	if err := s.connect(ctx); err != nil {
		return s, err
	}
	w := s.workers[0]
	if s.root, err = s.proto.root(ctx, w.lane); err != nil {
		return s, err
	}
	if s.rtmax, s.wtmax, err = w.limits(s.root); err != nil {
		return s, err
	}
	if err := s.findServer(); err != nil {
		return s, err
	}
	s.name = "podnas-bench-" + rand.Text()[:12]
	home, err := w.mkdir(s.root, []byte(s.name))
	if err != nil {
		return s, fmt.Errorf("make a directory in %s as uid %d: %w", t, cfg.UID, err)
	}
	s.home = bytes.Clone(home)
	return s, nil
}

// connect opens the connections, at the start and if they have ended, and creates
// the workers.
func (s *benchmark) connect(ctx context.Context) error {
	s.disconnect()
	if err := s.dialAll(ctx); err != nil {
		return err
	}
	for i := len(s.workers); i < s.cfg.Connections*s.cfg.Depth; i++ {
		s.workers = append(s.workers, s.newWorker(i))
	}
	for i, c := range s.conns {
		if err := s.proto.join(i, c); err != nil {
			s.disconnect()
			return fmt.Errorf("%s: %w", s.target, err)
		}
	}
	s.beside = nil
	return s.spread(s.workers, 0)
}

// findServer notes which processes are the server's, after it has answered a call: before, the kernel
// may have accepted the connection for it.
func (s *benchmark) findServer() error {
	s.server = s.processes
	if pid, ok := peerProcess(s.conns[0].nc.LocalAddr(), s.conns[0].nc.RemoteAddr()); ok && len(s.processes) == 0 {
		s.server = []int{pid}
	}
	_, err := s.measure()
	return err
}

// dialAll opens the connections, a few at a time: a thousand at once might
// overflow the server's accept queue.
func (s *benchmark) dialAll(ctx context.Context) error {
	conns := make([]*conn, s.cfg.Connections)
	group, dialing := errgroup.WithContext(ctx)
	group.SetLimit(dialsAtOnce)
	for i := range conns {
		group.Go(func() (err error) {
			conns[i], err = dial(dialing, s.target.address(s.target.Port), s.cfg.timeout())
			if err == nil || dialing.Err() != nil {
				return err // the first error ends the rest
			}
			if errors.Is(err, syscall.EMFILE) {
				err = fmt.Errorf("%w (see ulimit -n for how many one program may have)", err)
			}
			return fmt.Errorf("connect to NFS (connection %d of %d): %w: write HOST:PORT:/path if the server has another port (see podnas volume show)", i+1, len(conns), err)
		})
	}
	err := group.Wait()
	for _, c := range conns {
		if c != nil {
			s.conns = append(s.conns, c)
		}
	}
	if err != nil {
		s.disconnect()
	}
	return err
}

func (s *benchmark) newWorker(id int) *worker {
	return &worker{
		benchmark: s, lane: newLane(s.cfg.cred()),
		id: id, rng: uint64(id)*0x9e3779b97f4a7c15 + 1,
	}
}

// spread assigns workers to connections: consecutive workers are on different
// ones. Those of a connection have its slots from first on.
func (s *benchmark) spread(workers []*worker, first int) (err error) {
	n := len(s.conns)
	for i, w := range workers {
		w.conn = s.conns[i%n]
		w.readFile, w.writeFile, w.ownFile = file{}, file{}, file{}
		if w.calls, err = s.proto.newCalls(w.lane, i%n, first+i/n); err != nil {
			return err
		}
	}
	return nil
}

// leave makes the server forget the bench, if it can, and ends the connections.
func (s *benchmark) leave() {
	if len(s.conns) > 0 && s.broken() == nil {
		l := newLane(s.cfg.cred())
		l.conn = s.conns[0]
		_ = s.proto.leave(l) // or the server does that by itself, in time
	}
	s.disconnect()
}

// disconnect ends the connections, and calls that still wait.
func (s *benchmark) disconnect() {
	for _, c := range s.conns {
		c.close()
	}
	s.conns = nil
}

// each runs do in all workers concurrently, until all are done or ctx ends. It
// returns the first error.
func (s *benchmark) each(ctx context.Context, do func(*worker) error) error {
	var group sync.WaitGroup
	errs := make([]error, len(s.workers))
	for i, w := range s.workers {
		group.Go(func() { errs[i] = do(w) })
	}
	defer s.hurry(ctx)()
	group.Wait()
	if err := ctx.Err(); err != nil {
		return err
	}
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// share calls do for 0 to n-1, distributed over the workers.
func (s *benchmark) share(ctx context.Context, n int, do func(w *worker, i int) error) error {
	var next atomic.Int64
	return s.each(ctx, func(w *worker) error {
		for ctx.Err() == nil {
			i := int(next.Add(1)) - 1
			if i >= n {
				break
			}
			if err := do(w, i); err != nil {
				return err
			}
		}
		return nil
	})
}

// hurry ends the connections some time after ctx ends, if calls still wait then,
// unless stop is called before.
func (s *benchmark) hurry(ctx context.Context) (stop func()) {
	done, conns := make(chan struct{}), s.conns
	unhook := context.AfterFunc(ctx, func() {
		select {
		case <-done:
		case <-time.After(grace):
			for _, c := range conns {
				c.fail(ctx.Err())
			}
		}
	})
	return func() {
		unhook()
		close(done)
	}
}

// random returns a number below n.
func (w *worker) random(n int) int {
	w.rng ^= w.rng << 13
	w.rng ^= w.rng >> 7
	w.rng ^= w.rng << 17
	return int(w.rng % uint64(n))
}

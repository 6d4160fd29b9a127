package nfsbench

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/podnas/podnas/nfs/mount3"
	"github.com/podnas/podnas/nfs/nfs3"
	"github.com/podnas/podnas/nfs/rpc"
)

// dialsAtOnce is how many connections are opened at a time.
const dialsAtOnce = 32

// session is the bench's state for one server.
type session struct {
	cfg     *Config
	target  Target
	filler  *filler
	root    nfs3.FH // of the export
	name    string  // of the bench's own directory in it
	home    nfs3.FH // that directory
	conns   []*conn
	workers []*worker
	beside  []*worker // for loads with a beside; nil until one runs

	// rtmax and wtmax are the server's maxima for READ and WRITE.
	rtmax, wtmax int

	fixtures
	cursor atomic.Uint64 // of a sequential load; counts calls
	seed   uint64        // of the running write load
}

// worker makes one call at a time.
type worker struct {
	*session
	*lane
	id    int
	dir   nfs3.FH // its own, in home
	seq   int     // a counter for its load
	made  int     // entries that its load has in dir
	rng   uint64
	fh    []byte // a copy of a handle from a reply
	tree  []byte // the handle of the directory that untar is in
	text  []byte // a name, new for each call
	last  uint64 // offset of the last write
	wrote bool   // last is set
	verf  [nfs3.WriteVerfSize]byte

	place page // in the large directory
	found int  // entries seen before place

	turn tally
}

// open connects to a server and creates the bench's directory there.
func open(ctx context.Context, cfg *Config, t Target) (s *session, err error) {
	s = &session{cfg: cfg, target: t, filler: newFiller()}
	defer func() {
		if err != nil {
			s.disconnect()
		}
	}()
	if s.root, err = mount(ctx, cfg, t); err != nil {
		return s, err
	}
	if err := s.connect(ctx); err != nil {
		return s, err
	}
	l := s.workers[0].lane
	if s.rtmax, s.wtmax, err = l.limits(s.root); err != nil {
		return s, err
	}
	s.name = "podnas-bench-" + rand.Text()[:12]
	home, err := l.mkdir(s.root, []byte(s.name))
	if err != nil {
		return s, fmt.Errorf("make a directory in %s as uid %d: %w", t, cfg.UID, err)
	}
	s.home = bytes.Clone(home)
	return s, nil
}

// mount gets the handle of the export.
func mount(ctx context.Context, cfg *Config, t Target) (nfs3.FH, error) {
	c, err := dial(ctx, t.address(t.MountPort), cfg.timeout())
	if err != nil {
		return nil, fmt.Errorf("connect to MOUNT at port %d: %w: write HOST:PORT:/path if the server has another port (see podnas volume show), and --mountport if MOUNT has one of its own", t.MountPort, err)
	}
	defer c.close()
	defer context.AfterFunc(ctx, func() { c.fail(ctx.Err()) })()
	l := newLane(cfg.cred())
	l.conn = c
	d, err := l.call(mount3.Program, mount3.Version, mount3.ProcMnt, &mount3.PathArgs{Path: []byte(t.Path)})
	if err != nil {
		if rpc := (*rpc.RPCError)(nil); errors.As(err, &rpc) {
			err = fmt.Errorf("%w (is MOUNT on another port than %d? see rpcinfo -p %s, and set --mountport)", err, t.MountPort, t.Host)
		}
		return nil, fmt.Errorf("mount %s: %w", t, err)
	}
	var res mount3.MntRes
	res.Decode(&d)
	if err := d.Err(); err != nil {
		return nil, fmt.Errorf("mount %s: decode the results: %w", t, err)
	}
	switch res.Status {
	case mount3.OK:
	case mount3.ErrAcces, mount3.ErrPerm:
		return nil, fmt.Errorf("mount %s: %v: the server does not let this machine in, or lets in callers from ports below 1024 alone (privilegedPorts of podnas, secure of knfsd): then run this as root", t, res.Status)
	default:
		return nil, fmt.Errorf("mount %s: %v", t, res.Status)
	}
	return bytes.Clone(res.Handle), nil
}

// connect opens the connections, at the start and if they have ended, and creates
// the workers.
func (s *session) connect(ctx context.Context) error {
	s.disconnect()
	if err := s.dialAll(ctx); err != nil {
		return err
	}
	for i := len(s.workers); i < s.cfg.Connections*s.cfg.Depth; i++ {
		s.workers = append(s.workers, s.newWorker(i))
	}
	s.spread(s.workers)
	s.spread(s.beside)
	return nil
}

// dialAll opens the connections, a few at a time: a thousand at once might
// overflow the server's accept queue.
func (s *session) dialAll(ctx context.Context) error {
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
			return fmt.Errorf("connect to NFS (connection %d of %d): %w", i+1, len(conns), err)
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

func (s *session) newWorker(id int) *worker {
	return &worker{
		session: s, lane: newLane(s.cfg.cred()),
		id: id, rng: uint64(id)*0x9e3779b97f4a7c15 + 1,
	}
}

// spread assigns workers to connections: consecutive workers are on different
// ones.
func (s *session) spread(workers []*worker) {
	for i, w := range workers {
		w.conn = s.conns[i%len(s.conns)]
	}
}

// disconnect ends the connections, and calls that still wait.
func (s *session) disconnect() {
	for _, c := range s.conns {
		c.close()
	}
	s.conns = nil
}

// limits gets the server's maxima for READ and WRITE.
func (l *lane) limits(root nfs3.FH) (rtmax, wtmax int, err error) {
	l.handle.Object = root
	d, err := l.nfs(nfs3.ProcFsinfo, &l.handle)
	if err != nil {
		return 0, 0, err
	}
	var res nfs3.FsinfoRes
	res.Decode(&d)
	if err := decoded("FSINFO", &d, res.Status); err != nil {
		return 0, 0, err
	}
	if res.RtMax == 0 || res.WtMax == 0 {
		return 0, 0, fmt.Errorf("FSINFO: the server reads %d bytes at once and writes %d", res.RtMax, res.WtMax)
	}
	return int(min(res.RtMax, nfs3.MaxData)), int(min(res.WtMax, nfs3.MaxData)), nil
}

// room gets the bytes that are free for the caller.
func (l *lane) room(root nfs3.FH) (int64, error) {
	l.handle.Object = root
	d, err := l.nfs(nfs3.ProcFsstat, &l.handle)
	if err != nil {
		return 0, err
	}
	var res nfs3.FsstatRes
	res.Decode(&d)
	return int64(min(res.ABytes, math.MaxInt64)), decoded("FSSTAT", &d, res.Status)
}

// each runs do in all workers concurrently, until all are done or ctx ends. It
// returns the first error.
func (s *session) each(ctx context.Context, do func(*worker) error) error {
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
func (s *session) share(ctx context.Context, n int, do func(w *worker, i int) error) error {
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
func (s *session) hurry(ctx context.Context) (stop func()) {
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

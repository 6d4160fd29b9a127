package oncrpc

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"github.com/podnas/podnas/internal/heartbeat"
	"github.com/podnas/podnas/internal/idle"
	"github.com/podnas/podnas/nfs/rpc"
	"github.com/podnas/podnas/nfs/socket"
	"github.com/podnas/podnas/server/stats"
)

// recordMax is the largest call: 1 MiB of data, which is what FSINFO lets
// clients write at once, and what stands around it.
const recordMax = 1<<20 + 8<<10

// limits of a server. Past a bound the server stops reading, or closes the one
// connection; it does not die.
type limits struct {
	conns      int           // connections
	peerConns  int           // of one address
	connCalls  int           // calls of one connection in flight
	connBytes  int64         // of its calls and reserved replies in flight
	totalBytes int64         // of all connections', see Budget
	idle       time.Duration // without a call
	record     time.Duration // from the start of a call to its end
	write      time.Duration // of replies
	drain      time.Duration // of calls under way when the server stops
}

// defaultLimits are those of every server but a test's.
func defaultLimits() limits {
	return limits{
		conns:      connsMax,
		peerConns:  connsPerPeer,
		connCalls:  256, // Linux clients have up to 128 by themselves
		connBytes:  budgetConn,
		totalBytes: budgetTotal,
		idle:       10 * time.Minute, // a client connects again by itself
		record:     30 * time.Second, // half a record, then nothing: that client is gone
		write:      30 * time.Second, // a client that does not read its replies
		drain:      3 * time.Second,
	}
}

// Program is one version of an RPC program.
type Program struct {
	Number, Version uint32
	Procedures      []Procedure // by number; one without Handle is PROC_UNAVAIL
}

// Procedure answers the calls of one number.
type Procedure struct {
	Name string
	// Handle answers a call, once: with the results in Call.Reply if it returns Success. It
	// runs on the goroutine that reads the connection, and the calls behind it wait, so it calls
	// Call.MayWait before what may block, and Call.Wait before it waits for another goroutine.
	Handle func(*Call) rpc.AcceptStat
	// Repeated, if not nil, is called first. It answers a repeated call, and returns false
	// for any other. It is for procedures that are not idempotent.
	Repeated func(*Call) (rpc.AcceptStat, bool)
	// AnyAuth means that a call needs no AUTH_SYS credential.
	AnyAuth bool
	// NoStatus means that the results don't begin with a status.
	NoStatus bool

	number int // among all procedures, in stats
}

// ServerConfig configures a Server. Programs and Log are needed.
type ServerConfig struct {
	Programs []Program
	SlowLog  *stats.SlowLog // nil: slow calls are not logged
	Log      *slog.Logger
	Closed   func(Conn) // called when a connection has ended; nil: nobody is told
	// Heartbeat says when replies may be sent; nil: always.
	Heartbeat *heartbeat.Heartbeat
}

// Server answers the calls of RPC clients over TCP.
type Server struct {
	programs []Program
	stats    *stats.Server
	log      *slog.Logger
	ends     *stats.Lines // connections that end with an error
	closed   func(Conn)
	beats    *heartbeat.Heartbeat
	limits   limits
	budget   *Budget
	buffers  buffers
	calls    freeList[*Call]
	inputs   inputBuffers
	blocking *semaphore
	readers  readers
	peers    *Peers

	// stopping is set when shutdown sets the last deadlines of the connections, with mu.
	stopping atomic.Bool

	full rate.Sometimes // there are too many connections

	mu sync.Mutex
	// +checklocks:mu
	conns map[*conn]bool
	open  sync.WaitGroup // conns
	late  sync.WaitGroup // conns that have calls under way although they are closed
}

// NewServer returns a Server.
func NewServer(cfg ServerConfig) (*Server, error) {
	if len(cfg.Programs) == 0 || cfg.Log == nil {
		return nil, errors.New("rpc server config lacks programs or log")
	}
	return newServer(cfg, defaultLimits()), nil
}

func newServer(cfg ServerConfig, limits limits) *Server {
	programs, names := numbered(cfg.Programs)
	return &Server{
		programs: programs,
		stats:    stats.New(names, cfg.SlowLog),
		log:      cfg.Log,
		ends:     stats.NewLines(cfg.Log, stats.LinesBurst, stats.LinesPeriod),
		closed:   cfg.Closed,
		beats:    cfg.Heartbeat,
		limits:   limits,
		budget:   newBudget(limits.totalBytes, limits.connBytes),
		blocking: newSemaphore(),
		peers:    newPeers(limits.conns, limits.peerConns),
		full:     rate.Sometimes{Interval: 10 * time.Second},
		conns:    map[*conn]bool{},
	}
}

// numbered numbers the procedures of some programs, and tells their names by number.
func numbered(programs []Program) (numbered []Program, names []string) {
	for _, p := range programs {
		p.Procedures = slices.Clone(p.Procedures)
		for i := range p.Procedures {
			if proc := &p.Procedures[i]; proc.Handle != nil {
				proc.number = len(names)
				names = append(names, proc.Name)
			}
		}
		numbered = append(numbered, p)
	}
	return numbered, names
}

// Stats returns the statistics of the server, at any time.
func (s *Server) Stats() *stats.Server { return s.stats }

// Serve answers the clients of l until ctx ends. Then it closes l, stops reading, lets
// current calls finish, and closes every connection. Call it once.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	closed := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		s.shutdown(l)
		close(closed)
	})
	serving, end := context.WithCancel(ctx)
	defer end()
	go idle.TrimMemory(serving, s.releaser())
	go s.endLongWaits(serving)
	err := s.accept(l)
	if !stop() {
		<-closed // Accept fails before Close has closed the socket, and until then no other server can listen there
	}
	s.shutdown(l)
	s.open.Wait()
	s.readers.release(true)
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// Wait waits, when Serve has returned, for the calls that it did not wait for, as those that hang on
// the disk.
func (s *Server) Wait() { s.late.Wait() }

// accept serves clients until the listener is closed.
func (s *Server) accept(l net.Listener) error {
	delay := time.Duration(0)
	for {
		nc, err := l.Accept()
		if errors.Is(err, net.ErrClosed) {
			return err
		}
		if err != nil { // out of descriptors, or the client is gone already
			delay = min(max(2*delay, 5*time.Millisecond), time.Second)
			s.log.Warn("rpc: accept", "err", err, "retry", delay)
			time.Sleep(delay)
			continue
		}
		delay = 0
		s.start(nc)
	}
}

func (s *Server) start(nc net.Conn) {
	on, err := socket.New(nc)
	if err != nil {
		s.ends.Log(slog.LevelWarn, "rpc: no socket", "client", nc.RemoteAddr(), "err", err)
		_ = nc.Close() // nothing was sent
		return
	}
	c := newConn(s, on)
	peer, closed := s.peers.Admit(c)
	s.stats.Closed.Add(uint64(closed))
	if peer == nil {
		s.stats.Refused.Add(1)
	}
	if peer == nil || closed > 0 {
		s.full.Do(func() {
			s.log.Warn("rpc: too many connections, idle ones are closed", "limit", s.limits.conns, "limit of an address", s.limits.peerConns, "client", c.client)
		})
	}
	if peer == nil {
		_ = c.Close() // nothing was sent
		return
	}
	if err := s.peers.LimitSocket(peer, nc); err != nil {
		s.log.Debug("rpc: limit a socket's memory", "client", c.client, "err", err) // it may be closed already
	}
	c.holding = NewHolding(peer)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopping.Load() {
		s.peers.Leave(peer, c)
		_ = c.Close() // nothing was sent
		return
	}
	c.served = s.stats.Connect(c.client)
	s.conns[c] = true
	s.open.Go(func() {
		c.serve()
		if s.closed != nil {
			s.closed(c)
		}
		c.served.Close()
		s.peers.Leave(peer, c)
		s.mu.Lock()
		delete(s.conns, c)
		s.mu.Unlock()
	})
}

// shutdown stops all reading. Connections close themselves when their calls are answered.
func (s *Server) shutdown(l net.Listener) {
	_ = l.Close() // it may be closed already
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopping.Swap(true) {
		return
	}
	time.AfterFunc(s.limits.drain, s.drain)
	for c := range s.conns {
		c.stopReading()
	}
}

// drain ends the connections that still have calls, once.
func (s *Server) drain() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.conns {
		c.drain()
	}
}

// procedure returns the procedure of a call. If there is none, it sets reply to the reason.
func (s *Server) procedure(h *rpc.CallHeader, reply *rpc.ReplyHeader) *Procedure {
	reply.Accept = rpc.ProgUnavail
	for i := range s.programs {
		p := &s.programs[i]
		if p.Number != h.Prog {
			continue
		}
		if p.Version != h.Vers {
			if reply.Accept != rpc.ProgMismatch {
				reply.Low, reply.High = p.Version, p.Version
			}
			reply.Accept = rpc.ProgMismatch
			reply.Low, reply.High = min(reply.Low, p.Version), max(reply.High, p.Version)
			continue
		}
		if h.Proc >= uint32(len(p.Procedures)) || p.Procedures[h.Proc].Handle == nil {
			reply.Accept = rpc.ProcUnavail
			return nil
		}
		reply.Accept = rpc.Success
		return &p.Procedures[h.Proc]
	}
	return nil
}

package nfsv41

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/podnas/podnas/internal/idle"
	"github.com/podnas/podnas/internal/statedir"
	"github.com/podnas/podnas/nfs/nfs4"
	"github.com/podnas/podnas/nfs/rpc"
	"github.com/podnas/podnas/server/disk"
	"github.com/podnas/podnas/server/exports"
	"github.com/podnas/podnas/server/inode"
	"github.com/podnas/podnas/server/locate"
	"github.com/podnas/podnas/server/nfsv41/state"
	"github.com/podnas/podnas/server/oncrpc"
	"github.com/podnas/podnas/server/vfs"
)

// Config says how to make a Server. Lease, Removed, StateLog, Tables and Reserve may be left out.
type Config struct {
	Files    *vfs.Service
	Opener   *inode.Opener
	Table    *exports.Table
	Key      *locate.Key
	Tracking string // the directory on the disk of the client tracking: the clients that have state
	Log      *slog.Logger

	// Lease is how long a client may be silent, in whole seconds from ShortestLease to LongestLease; DefaultLease if zero.
	Lease time.Duration
	// Answering returns since when replies have left without a pause; now, while they are held. nil: always. Leases and the grace
	// period don't run before.
	Answering func() time.Time
	// Removed is the directory on the disk for files that were removed while clients have them
	// open. If it is empty, a restart ends them.
	Removed string
	// StateLog is a directory in memory for what the next process goes on with if this one dies.
	// If it is empty, clients have to reclaim what they had.
	StateLog string
	// Tables is told how many bytes the tables of clients take: state.State.Bytes. Run calls it.
	Tables func(bytes int)
	// Reserve is room for Tracking on a full disk, nil for none.
	Reserve *statedir.Reserve
}

// Server answers the calls of version 4.
type Server struct {
	files      *vfs.Service
	opener     *inode.Opener
	table      *exports.Table
	key        *locate.Key
	state      *state.State
	log        *slog.Logger
	sets       [lastMinor + 1]attrSets
	operations operations
	lease      time.Duration
	began      time.Time
	crc        *crc32.Table // CRC-32C
	tracking   *tracking
	run        run
	pseudo     pseudo
	stateLog   *stateLog // nil: there is none
	tables     func(bytes int)
	wentOn     bool // with stateLog
	notices    notices
	events     *events
	freeing    *freeing
	identity   []byte // server_owner4 and scope: the same as long as the disk, and different for each
}

// How long a client may be silent, RFC 8881 section 8.3. Linux also takes it for how long it waits for a connection that
// no longer answers, and renews it after two thirds, at most each 5 s: an idle node sends a call each 10 s by default, and
// is silent for up to 8.3 s with the shortest one.
const (
	DefaultLease  = 15 * time.Second
	ShortestLease = 10 * time.Second
	LongestLease  = state.LongestLease
)

// restTick is how often Run looks at clients while nothing is due.
const restTick = 10 * time.Second

// Replies are kept for clients that ask again: replyBytes for all, with the slots. A slot has replyMax,
// which is what knfsd has, and where there are many sessions replyLeast: a Linux client has replies kept that
// are half of that, to operations that change something. A session gets 64 slots, as long as there are less
// than about 300, and each of the 24,000 that there may be gets one.
const (
	replyBytes = 64 << 20
	replyMax   = 2 << 10
	replyLeast = 1 << 10
)

// limits are what clients may have. Each open has a descriptor.
func limits() state.Limits {
	l := state.Limits{ReplyBytes: replyBytes, CachedReply: replyMax, LeastReply: replyLeast}
	if all := inode.HeldMax(); all > 0 {
		l.AllOpens = min(200_000, all)
		l.Opens = min(100_000, max(1, all/2))
	}
	return l
}

// New makes a Server. If clients had state when the one before ended, there is a grace period.
func New(cfg Config) (*Server, error) {
	kept, had, err := openTracking(cfg.Tracking, cfg.Reserve, cfg.Log)
	if err != nil {
		return nil, err
	}
	if cfg.Removed != "" {
		if err := cfg.Opener.OpenOrphans(cfg.Removed); err != nil { // as on a full disk
			cfg.Log.Warn("nfs: files that are removed while clients have them open can't be kept over a restart", "err", err)
		}
	}
	s := &Server{
		log: cfg.Log, files: cfg.Files, opener: cfg.Opener, table: cfg.Table, key: cfg.Key, lease: cmp.Or(cfg.Lease, DefaultLease), began: time.Now(),
		crc: crc32.MakeTable(crc32.Castagnoli), tracking: kept, sets: newAttrSets(), operations: newOperations(), events: newEvents(cfg.Log), tables: cfg.Tables,
		notices: notices{clients: map[uint64]*clientNotices{}}, freeing: newFreeing(limits().Opens, &cfg.Table.Freeing), pseudo: pseudo{table: cfg.Table},
	}
	if s.tables == nil {
		s.tables = func(int) {}
	}
	s.identity = s.key.Handle(pseudoVolume, idOf("/"))
	if err := s.openFolders(&cfg); err != nil {
		s.closeFolders()
		return nil, err
	}
	config := state.Config{
		Lease: s.lease, Answering: cfg.Answering, Boot: rand.Uint32(), Tracking: kept, Limits: limits(), LockFree: s.notify, Abandoned: s.freeing.add,
		Event: func(e state.Event) {
			if e.Gone() {
				s.forgetNotices(e.ClientID)
			}
			s.events.tell(e)
		},
	}
	if !s.inherit(config, had) {
		s.state = state.New(config)
		if len(had) > 0 {
			most := s.state.BeginGrace(had)
			s.log.Info("nfs: clients may reclaim what they had open and locked", "clients", len(had), "at most", most)
		}
	}
	s.table.OnForget(s.forgetVolume)
	return s, nil
}

// forgetVolume closes what clients have open of a volume that has ended, and waits for what they had: whoever deletes the volume, or
// a snapshot, goes on when this server has no file of it open.
func (s *Server) forgetVolume(id uint64) {
	s.state.ForgetVolume(id)
	s.freeing.wait(id)
}

// openFolders opens the folder of the run, and that of the log.
func (s *Server) openFolders(cfg *Config) (err error) {
	if s.run, err = openRun(filepath.Dir(cfg.Tracking), cfg.Reserve, cfg.Log); err != nil || cfg.StateLog == "" {
		return err
	}
	return s.newStateLog(cfg.StateLog)
}

// inherit goes on with what the server before has handed over, or with its log if it has died. It
// returns false if there is neither.
func (s *Server) inherit(config state.Config, had []state.TrackedClient) bool {
	var err error
	if s.state, err = s.takeOver(config, had); err == nil {
		n := s.state.Counts()
		s.log.Info("nfs: clients go on with what they have open and locked", "clients", n.Clients, "open files", n.Opens, "locks", n.Locks)
		return true
	}
	if !errors.Is(err, os.ErrNotExist) {
		s.log.Warn("nfs: what the podnas before has handed over can't be used", "err", err)
	}
	if s.stateLog == nil {
		return false
	}
	if s.state, err = s.goOn(config, had); err == nil {
		s.wentOn = true
		s.run.goOn()
		n := s.state.Counts()
		s.log.Info("nfs: podnas had died, and clients go on with what they have open and locked", "clients", n.Clients, "open files", n.Opens, "locks", n.Locks)
		return true
	}
	if !errors.Is(err, os.ErrNotExist) {
		s.log.Warn("nfs: the log of a podnas that had died can't be used", "err", err)
	}
	return false
}

// Begin must be called before the first call is served. From then on nobody else can go on with
// what the server before has left. That ends when the number of this run is on the disk, with which the log is right.
func (s *Server) Begin() error {
	s.startLog()
	err := s.run.record()
	if err != nil { // the disk is full, or worse
		if s.stateLog != nil {
			_ = s.stateLog.giveUp(err)
		}
		err = s.run.forget()
	}
	if err == nil {
		err = s.tracking.forgetHandover()
	}
	if err != nil {
		return fmt.Errorf("clients with state: %w", err)
	}
	return nil
}

// Run ends leases until ctx ends.
func (s *Server) Run(ctx context.Context) {
	tick := time.NewTimer(time.Second)
	defer tick.Stop()
	var beside sync.WaitGroup
	defer beside.Wait()
	beside.Go(func() { s.copyLogs(ctx) })
	for reclaiming := true; ; {
		if reclaiming && !s.state.InGrace() {
			reclaiming = false
			beside.Go(func() { s.opener.EndReclaim(ctx) })
		}
		select {
		case <-ctx.Done():
			return
		case <-s.state.Due():
			tick.Reset(time.Second)
		case <-tick.C:
			next := time.Second
			if s.state.Expire() {
				next = idle.UntilTick(time.Now(), restTick)
			}
			tick.Reset(next)
			s.tables(s.state.Bytes())
			if s.stateLog != nil {
				s.watchLog()
			}
		}
	}
}

// Stop hands what clients have over to the next Server, when no call is under way any more and
// Run has ended.
func (s *Server) Stop() {
	s.stopNotices()
	s.opener.LeaveRemoved()
	if err := s.handOver(); err != nil {
		s.log.Warn("nfs: clients may have to reclaim what they have open and locked, as it can't be handed over to the next podnas", "err", err)
	} else if s.stateLog != nil {
		_ = s.stateLog.remove() // what was handed over goes first
	}
	s.state.Stop()
	s.freeing.waitAll() // which frees no orphans any more: the next server does
	s.closeFolders()
}

// closeFolders closes the folders on the disk, which were only looked at or are synced, as far as they are open.
func (s *Server) closeFolders() {
	_ = s.tracking.dir.Close()
	if s.run.dir != nil {
		_ = s.run.dir.Close()
	}
	if s.stateLog != nil {
		_ = s.stateLog.dir.Close()
	}
}

// Closed must be called when a connection has ended.
func (s *Server) Closed(c oncrpc.Conn) { s.state.ConnClosed(c) }

// Program is the server's side of NFS version 4.
func (s *Server) Program() oncrpc.Program {
	return oncrpc.Program{
		Number:  nfs4.Program,
		Version: nfs4.Version,
		Procedures: []oncrpc.Procedure{
			nfs4.ProcNull:     {Name: "NULL4", Handle: func(*oncrpc.Call) rpc.AcceptStat { return rpc.Success }, AnyAuth: true},
			nfs4.ProcCompound: {Name: "COMPOUND", Handle: s.compound},
		},
	}
}

// keyOf is how state knows the file of a handle.
func (s *Server) keyOf(handle []byte) (state.FileKey, error) {
	volume, id, err := s.key.Parse(handle)
	return key(volume, id), err
}

func key(volume uint64, id disk.FileID) state.FileKey {
	key := state.FileKey{Volume: volume, Len: uint8(len(id.Bytes()))}
	copy(key.ID[:], id.Bytes())
	return key
}

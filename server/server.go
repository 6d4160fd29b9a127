// Package server is podnas's NFS server: a listener, an engine, and the table of
// exports.
//
// The table connects the two halves of podnas: the volume store adds and removes
// exports, and the engine serves them to clients. NFS and MOUNT share one port,
// and need neither rpcbind nor a second port.
package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/podnas/podnas/internal/heartbeat"
	"github.com/podnas/podnas/internal/statedir"
	"github.com/podnas/podnas/nfs/nfs3"
	"github.com/podnas/podnas/nfs/rpc"
	"github.com/podnas/podnas/server/actas"
	"github.com/podnas/podnas/server/disk"
	"github.com/podnas/podnas/server/exports"
	"github.com/podnas/podnas/server/gonfs"
	"github.com/podnas/podnas/server/inode"
	"github.com/podnas/podnas/server/locate"
	"github.com/podnas/podnas/server/nfsv41"
	"github.com/podnas/podnas/server/oncrpc"
	"github.com/podnas/podnas/server/restore"
	"github.com/podnas/podnas/server/stats"
)

// The engines.
const (
	// EngineAuto is EngineNative: where that can't find files, EngineGoNFS can't.
	EngineAuto = "auto"
	// EngineNative is podnas's own NFS.
	EngineNative = "native"
	// EngineGoNFS uses willscott/go-nfs, which has limits, see package gonfs.
	EngineGoNFS = "go-nfs"
)

// How the engines find files by their handles.
const (
	// HandlesAuto is HandlesKernel if the process's rights allow it, otherwise HandlesIndex.
	HandlesAuto = "auto"
	// HandlesKernel has the kernel open files by their handles, which takes CAP_DAC_READ_SEARCH.
	HandlesKernel = "kernel"
	// HandlesIndex finds files by an index of their names, in memory, and takes no right.
	HandlesIndex = "index"
)

// Handles returns the names that SelectEngine accepts.
func Handles() []string { return []string{HandlesAuto, HandlesKernel, HandlesIndex} }

// Choice is the engine that serves a disk, and why.
type Choice struct {
	Engine string // EngineNative or EngineGoNFS
	Reason string // for people
	// ByIndex is whether files are found by the index: exports.Table.ByIndex.
	ByIndex bool
	// Rights are what the process may do on the disk.
	Rights actas.Rights
}

// Only is the user as whom the engine does all calls, nil if it does each as its caller. go-nfs does
// not look at callers.
func (c Choice) Only() *actas.Only {
	if c.Engine == EngineGoNFS {
		return nil
	}
	return c.Rights.Only
}

// Engines returns the names that SelectEngine accepts.
func Engines() []string { return []string{EngineAuto, EngineNative, EngineGoNFS} }

// SelectEngine selects the engine for the disk at root, and how it finds files. It tries that there;
// what can't be had is an error.
func SelectEngine(name, handles, root string) (Choice, error) {
	c := Choice{Engine: EngineNative}
	switch {
	case !slices.Contains(Handles(), handles):
		return c, fmt.Errorf("unknown handles %q: use %s, %s or %s", handles, HandlesAuto, HandlesKernel, HandlesIndex)
	case name == EngineGoNFS:
		c.Engine = EngineGoNFS
	case name != EngineAuto && name != EngineNative:
		return c, fmt.Errorf("unknown engine %q: use %s, %s or %s", name, EngineAuto, EngineNative, EngineGoNFS)
	}
	if err := c.selectHandles(handles, root); err != nil {
		return c, fmt.Errorf("files on this disk can't be found by their handles: %w", err)
	}
	c.Rights = actas.TryRights(root)
	return c, nil
}

// selectHandles sets how files are found.
func (c *Choice) selectHandles(handles, root string) error {
	c.Reason = "files are found by the kernel's handles"
	if handles == HandlesIndex {
		c.ByIndex, c.Reason = true, "files are found by the index, as requested"
		return locate.ProbeIndex(root)
	}
	err := disk.ProbeHandles(root)
	if err == nil || handles == HandlesKernel {
		return err
	}
	c.ByIndex, c.Reason = true, fmt.Sprintf("files are found by the index: %v", err)
	if indexErr := locate.ProbeIndex(root); indexErr != nil {
		return errors.Join(err, indexErr)
	}
	return nil
}

// Check returns an error if the engine does not support a volume's options.
func (c Choice) Check(o *exports.Options) error {
	if c.Engine == EngineGoNFS && (o.RootSquash || o.AllSquash || o.AnonUID != 0 || o.AnonGID != 0) {
		return fmt.Errorf("squashing users (rootSquash, allSquash, anonUid, anonGid) needs the native engine, but this server runs %s", c.Engine)
	}
	return c.Only().Refuses(o.Squash())
}

// CheckNFS4 returns an error if the engine can't serve version 4.
func (c Choice) CheckNFS4() error {
	if c.Engine == EngineGoNFS {
		return fmt.Errorf("NFSv4.1 needs the native engine, but this server runs %s", c.Engine)
	}
	return nil
}

// Bounds of Config.Lease.
const (
	DefaultLease  = nfsv41.DefaultLease
	ShortestLease = nfsv41.ShortestLease
	LongestLease  = nfsv41.LongestLease
)

// Config configures a Server. All fields but those below Log are needed.
type Config struct {
	Engine    Choice // of SelectEngine
	Exports   *exports.Table
	HandleKey []byte // the secret of the disk's file handles, see locate.Key
	Log       *slog.Logger

	// NFS4 is the directory on the disk for what version 4 must know after a crash. If it
	// is empty, or with go-nfs, version 4 is not served.
	NFS4 string
	// Lease is how long a client of version 4 may be silent, in whole seconds from ShortestLease to LongestLease; DefaultLease if zero.
	Lease time.Duration
	// Removed is the directory on the disk for files that were removed while clients of version 4
	// have them open. If it is empty, a restart ends them.
	Removed string
	// NoAttrCache is whether the attributes of files are read from the disk for each reply.
	NoAttrCache bool
	// StateLog is a directory in memory for what clients of version 4 have, for the time after a
	// crash of this process. It may be empty.
	StateLog string
	// Tables is told how many bytes what clients of version 4 have takes, about once a second while that changes. It may be nil.
	Tables func(bytes int)
	// Reserve is room for what is in NFS4, on a full disk; nil: there is none.
	Reserve *statedir.Reserve
	// Heartbeat says when replies may be sent; nil: always.
	Heartbeat *heartbeat.Heartbeat
	// SlowCall is the duration from which calls are logged as slow; 0: none.
	SlowCall time.Duration
}

// Validate returns what is wrong with a Config.
func (c *Config) Validate() error {
	if c.Engine.Engine == "" || c.Exports == nil || len(c.HandleKey) == 0 || c.Log == nil {
		return errors.New("server config lacks engine, exports, handle key or log")
	}
	return nil
}

// engine serves the clients of a listener until ctx ends.
type engine interface {
	Serve(ctx context.Context, l net.Listener) error
	Stats() *stats.Server
	CacheCounts() inode.CacheCounts
	Opener() *inode.Opener
}

// Server serves NFS clients.
type Server struct {
	engine   engine
	name     string
	versions string // of NFS, for people
	log      *slog.Logger
}

// New makes a Server.
func New(cfg Config) (*Server, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	key := locate.NewKey(cfg.HandleKey)
	s := &Server{name: cfg.Engine.Engine, versions: "3", log: cfg.Log}
	if len(cfg.Engine.Rights.Tried) > 0 {
		cfg.Log.Info("nfs: rights on the disk: " + cfg.Engine.Rights.String())
	}
	slow := stats.NewSlowLog(cfg.SlowCall, StatusName, cfg.Log)
	cfg.Log.Info("nfs: "+cfg.Engine.Reason, "engine", s.name)
	if s.name == EngineGoNFS {
		s.engine = gonfs.New(cfg.Exports, key, slow, cfg.Heartbeat, cfg.Log)
		return s, nil
	}
	var err error
	s.engine, err = newNative(&cfg, key, slow)
	if cfg.NFS4 != "" {
		s.versions = "3, 4.1, 4.2"
	}
	return s, err
}

// Stats are what the server has served.
func (s *Server) Stats() *stats.Server { return s.engine.Stats() }

// CacheCounts counts what is kept between calls.
func (s *Server) CacheCounts() inode.CacheCounts { return s.engine.CacheCounts() }

// Restore makes the files of a volume those of one of its snapshots, see restore.Run.
func (s *Server) Restore(ctx context.Context, v *exports.Volume, name string, p *restore.Progress) error {
	return restore.Run(ctx, s.engine.Opener(), v, name, p)
}

// Touch has clients look again what is in the root of a volume, see inode.Opener.Touch.
func (s *Server) Touch(v *exports.Volume) error { return s.engine.Opener().Touch(v) }

// OpenFiles returns how many files of a volume clients of version 4 have open. Version 3 does not tell.
func (s *Server) OpenFiles(volume uint64) int { return s.engine.Opener().HeldIn(volume) }

// NFS4 returns what serves version 4, nil where it is not served.
func (s *Server) NFS4() *nfsv41.Server {
	n, ok := s.engine.(*native)
	if !ok {
		return nil
	}
	return n.nfs4
}

// StatusName is what people call a status: the RFC's name of it, without the
// protocol's. MOUNT's statuses are NFS's.
func StatusName(s stats.Status) string {
	switch s {
	case stats.Other:
		return "other"
	case stats.RPCError + stats.Status(rpc.GarbageArgs):
		return "GARBAGE_ARGS"
	case stats.RPCError + stats.Status(rpc.SystemErr):
		return "SYSTEM_ERR"
	}
	if s >= stats.RPCError {
		return fmt.Sprintf("rpc(%d)", s-stats.RPCError)
	}
	name := nfs3.Status(s).String()
	return strings.TrimPrefix(strings.TrimPrefix(name, "NFS3ERR_"), "NFS3_")
}

// Serve answers the clients of l until ctx ends, then finishes the calls under
// way, closes every connection so that no client stays bound to this process,
// and returns nil.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	s.log.Info("nfs: serving NFS", "address", l.Addr(), "versions", s.versions, "engine", s.name)
	if err := s.engine.Serve(ctx, l); err != nil {
		return fmt.Errorf("serve NFS on %s: %w", l.Addr(), err)
	}
	s.log.Info("nfs: stopped")
	return nil
}

// Dial connects a probe of this process to the server, at an address of this machine.
// Stats leave it out.
func (s *Server) Dial(ctx context.Context, address string) (*rpc.Client, error) {
	return oncrpc.DialOwn(ctx, address, s.Stats())
}

// Ping makes an NFS NULL call to a server, as `rpcinfo -t` would: it answers
// only if it is reading calls. Dial connects to it.
func Ping(ctx context.Context, dial func(context.Context, string) (*rpc.Client, error), address string) error {
	client, err := dial(ctx, address)
	if err != nil {
		return fmt.Errorf("connect to NFS: %w", err)
	}
	defer client.Close()
	if _, err := client.Call(ctx, nfs3.Program, nfs3.Version, nfs3.ProcNull, nil); err != nil {
		return fmt.Errorf("NFS NULL call to %s: %w", address, err)
	}
	return nil
}

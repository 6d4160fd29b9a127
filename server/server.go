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
	"strings"
	"time"

	"github.com/podnas/podnas/nfs/nfs3"
	"github.com/podnas/podnas/nfs/rpc"
	"github.com/podnas/podnas/server/export"
	"github.com/podnas/podnas/server/gonfs"
	"github.com/podnas/podnas/server/nfs4"
	"github.com/podnas/podnas/server/oncrpc"
	"github.com/podnas/podnas/server/stats"
)

// The engines.
const (
	// EngineAuto is EngineNative if the disk and the process's rights allow it,
	// otherwise EngineGoNFS.
	EngineAuto = "auto"
	// EngineNative is podnas's own NFS, on the kernel's file handles.
	EngineNative = "native"
	// EngineGoNFS uses willscott/go-nfs: portable and limited, see package gonfs.
	EngineGoNFS = "go-nfs"
)

// Choice is the engine that serves a disk, and why.
type Choice struct {
	Engine string // EngineNative or EngineGoNFS
	Reason string // for people
	// Fallback is whether EngineAuto could not use the native engine.
	Fallback bool
}

// Engines returns the names that SelectEngine accepts.
func Engines() []string { return []string{EngineAuto, EngineNative, EngineGoNFS} }

// SelectEngine selects the engine for the disk at root. It probes there whether
// the native engine can run; if name requires that engine and it can't, that is an
// error.
func SelectEngine(name, root string) (Choice, error) {
	switch name {
	case EngineGoNFS:
		return Choice{Engine: EngineGoNFS, Reason: "as requested"}, nil
	case EngineAuto, EngineNative:
	default:
		return Choice{}, fmt.Errorf("unknown engine %q: use %s, %s or %s", name, EngineAuto, EngineNative, EngineGoNFS)
	}
	err := export.Probe(root)
	switch {
	case err == nil:
		return Choice{Engine: EngineNative, Reason: "the disk and the process's capabilities allow it"}, nil
	case name == EngineNative:
		return Choice{}, fmt.Errorf("the native engine can't run here: %w", err)
	}
	return Choice{Engine: EngineGoNFS, Reason: fmt.Sprintf("the native engine can't run here: %v", err), Fallback: true}, nil
}

// Check returns an error if the engine does not support a volume's options.
func (c Choice) Check(o *export.Options) error {
	if c.Engine == EngineGoNFS && (o.RootSquash || o.AllSquash || o.AnonUID != 0 || o.AnonGID != 0) {
		return fmt.Errorf("squashing users (rootSquash, allSquash, anonUid, anonGid) needs the native engine, but this server runs %s: %s", c.Engine, c.Reason)
	}
	return nil
}

// CheckNFS4 returns an error if the engine can't serve version 4.
func (c Choice) CheckNFS4() error {
	if c.Engine == EngineGoNFS {
		return fmt.Errorf("NFSv4.1 needs the native engine, but this server runs %s: %s", c.Engine, c.Reason)
	}
	return nil
}

// Config configures a Server. All fields but NFS4 and SlowCall are needed.
type Config struct {
	Engine    Choice // of SelectEngine
	Exports   *export.Table
	HandleKey []byte // the secret of the disk's file handles, see export.Key
	Log       *slog.Logger

	// NFS4 is the directory on the disk for what version 4 must know after a crash. If it
	// is empty, or with go-nfs, version 4 is not served.
	NFS4 string
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
	key := export.NewKey(cfg.HandleKey)
	s := &Server{name: cfg.Engine.Engine, versions: "3", log: cfg.Log}
	if cfg.Engine.Fallback {
		cfg.Log.Warn("nfs: serving with go-nfs, which is slower and has limits (see docs/nfs.md)", "reason", cfg.Engine.Reason)
	}
	slow := stats.NewSlowLog(cfg.SlowCall, StatusName, cfg.Log)
	if s.name == EngineGoNFS {
		s.engine = gonfs.New(cfg.Exports, key, slow, cfg.Log)
		return s, nil
	}
	var err error
	s.engine, err = newNative(&cfg, key, slow)
	if cfg.NFS4 != "" {
		s.versions = "3, 4.1"
	}
	return s, err
}

// Stats are what the server has served.
func (s *Server) Stats() *stats.Server { return s.engine.Stats() }

// Kept counts what is kept between calls. ok is false where nothing is, with go-nfs.
func (s *Server) Kept() (kept export.Kept, ok bool) {
	n, ok := s.engine.(*native)
	if !ok {
		return kept, false
	}
	return n.opener.Kept(), true
}

// NFS4 returns what serves version 4, nil where it is not served.
func (s *Server) NFS4() *nfs4.Server {
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

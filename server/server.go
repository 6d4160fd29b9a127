// Package server is podnas's NFS server: a listener, an engine, and the table of
// what is exported.
//
// The table is the seam between the two halves of podnas. The volume store adds
// and removes exports; the engine answers clients from it. NFS and MOUNT share
// the one port, and nothing else is needed: no rpcbind, no second port.
package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"

	"github.com/podnas/podnas/server/export"
	"github.com/podnas/podnas/server/gonfs"
	"github.com/podnas/podnas/server/nfs3"
	"github.com/podnas/podnas/server/oncrpc"
)

// The engines.
const (
	// EngineAuto is EngineNative where the disk and the process's rights allow
	// it, else EngineGoNFS.
	EngineAuto = "auto"
	// EngineNative is podnas's own NFSv3, on the kernel's file handles.
	EngineNative = "native"
	// EngineGoNFS serves through willscott/go-nfs: portable and limited, see
	// package gonfs.
	EngineGoNFS = "go-nfs"
)

// Config says how to make a Server. All fields are needed.
type Config struct {
	Engine    string
	Root      string // of the disk, where the native engine's needs are probed
	Exports   *export.Table
	HandleKey []byte // the secret of the disk's file handles, see export.Key
	Log       *slog.Logger
}

// Validate says what is wrong with a Config.
func (c *Config) Validate() error {
	switch c.Engine {
	case EngineAuto, EngineNative, EngineGoNFS:
	default:
		return fmt.Errorf("engine %q is unknown: use %s, %s or %s", c.Engine, EngineAuto, EngineNative, EngineGoNFS)
	}
	if c.Exports == nil || len(c.HandleKey) == 0 || c.Log == nil {
		return errors.New("server config lacks exports, handle key or log")
	}
	return nil
}

// engine answers the clients of a listener until ctx ends.
type engine interface {
	Serve(ctx context.Context, l net.Listener) error
}

// Server answers NFS clients.
type Server struct {
	engine engine
	name   string
	log    *slog.Logger
}

// New makes a Server.
func New(cfg Config) (*Server, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	key := export.NewKey(cfg.HandleKey)
	s := &Server{name: cfg.Engine, log: cfg.Log}
	if cfg.Engine != EngineGoNFS {
		err := export.Probe(cfg.Root)
		switch {
		case err == nil:
			s.name = EngineNative
		case cfg.Engine == EngineNative:
			return nil, fmt.Errorf("the native engine can't run here: %w", err)
		default:
			s.name = EngineGoNFS
			cfg.Log.Warn("nfs: serving through go-nfs, slower and with limits (see README): the native engine can't run here", "reason", err)
		}
	}
	if s.name == EngineGoNFS {
		s.engine = gonfs.New(cfg.Exports, key, cfg.Log)
		return s, nil
	}
	var err error
	s.engine, err = newNative(cfg.Exports, key, cfg.Log)
	return s, err
}

// Serve answers the clients of l until ctx ends, then finishes the calls under
// way, closes every connection so that no client stays bound to this process,
// and returns nil.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	s.log.Info("nfs: serving NFSv3 and MOUNT", "address", l.Addr(), "engine", s.name)
	if err := s.engine.Serve(ctx, l); err != nil {
		return fmt.Errorf("serve NFS on %s: %w", l.Addr(), err)
	}
	s.log.Info("nfs: stopped")
	return nil
}

// Ping makes an NFS NULL call to a server, as `rpcinfo -t` would: it answers
// only if it is reading calls.
func Ping(ctx context.Context, address string) error {
	client, err := oncrpc.Dial(ctx, address)
	if err != nil {
		return fmt.Errorf("connect to NFS: %w", err)
	}
	defer client.Close()
	if _, err := client.Call(ctx, nfs3.Program, nfs3.Version, nfs3.ProcNull, nil); err != nil {
		return fmt.Errorf("NFS NULL call to %s: %w", address, err)
	}
	return nil
}

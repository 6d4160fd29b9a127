package server

import (
	"context"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/podnas/podnas/nfs/mount3"
	"github.com/podnas/podnas/server/actas"
	"github.com/podnas/podnas/server/disk"
	"github.com/podnas/podnas/server/exports"
	"github.com/podnas/podnas/server/inode"
	"github.com/podnas/podnas/server/locate"
	mountd "github.com/podnas/podnas/server/mount3"
	"github.com/podnas/podnas/server/nfsv3"
	"github.com/podnas/podnas/server/nfsv41"
	"github.com/podnas/podnas/server/oncrpc"
	"github.com/podnas/podnas/server/stats"
	"github.com/podnas/podnas/server/vfs"
)

// closeTimeout is how long shutdown waits for calls that use the disk.
const closeTimeout = time.Second

// handoverTimeout is how long it waits for the disk to have what clients of version 4 have
// open and locked: 160 bytes for an open.
const handoverTimeout = 10 * time.Second

// native is podnas's own engine: the RPC server with the programs NFS and MOUNT.
type native struct {
	nfs4   *nfsv41.Server // nil: version 4 is not served
	rpc    *oncrpc.Server
	opener *inode.Opener
}

func newNative(cfg *Config, key *locate.Key, slow *stats.SlowLog) (*native, error) {
	table, log := cfg.Exports, cfg.Log
	n := &native{opener: inode.NewOpener(table, key, log)}
	n.opener.NoAttrs = cfg.NoAttrCache
	filesConfig := vfs.Config{Opener: n.opener, Users: actas.NewUsers(cfg.Engine.Only()), Log: log}
	if cfg.NFS4 != "" {
		filesConfig.Denied = func(v *exports.Volume, id disk.FileID, write bool) bool { return n.nfs4.Denies(v, id, write) }
	}
	files := vfs.New(filesConfig)
	served := oncrpc.ServerConfig{
		Programs: []oncrpc.Program{nfsv3.NewProgram(files), nfsv3.NewACLProgram(files), mountd.NewProgram(mounts{table, n.opener}, log)},
		SlowLog:  slow,
		Log:      log,

		Heartbeat: cfg.Heartbeat,
	}
	var err error
	if cfg.NFS4 != "" {
		n.nfs4, err = nfsv41.New(nfsv41.Config{Files: files, Opener: n.opener, Table: table, Key: key, Tracking: cfg.NFS4, Lease: cfg.Lease, Answering: cfg.Heartbeat.Since, Removed: cfg.Removed, Log: log, StateLog: cfg.StateLog, Tables: cfg.Tables, Reserve: cfg.Reserve})
		if err != nil {
			n.opener.Close()
			return nil, err
		}
		served.Programs, served.Closed = append(served.Programs, n.nfs4.Program()), n.nfs4.Closed
	}
	n.rpc, err = oncrpc.NewServer(served)
	return n, err
}

// Stats returns the statistics of the engine.
func (n *native) Stats() *stats.Server { return n.rpc.Stats() }

// CacheCounts counts what is kept between calls.
func (n *native) CacheCounts() inode.CacheCounts { return n.opener.CacheCounts() }

// Opener returns what opens files for all programs.
func (n *native) Opener() *inode.Opener { return n.opener }

// Serve serves the clients of l until ctx ends. It can be called once.
func (n *native) Serve(ctx context.Context, l net.Listener) error {
	if n.nfs4 != nil {
		if err := n.nfs4.Begin(); err != nil {
			return err
		}
	}
	running, end := context.WithCancel(ctx)
	defer end()
	var leases sync.WaitGroup
	if n.nfs4 != nil {
		leases.Go(func() { n.nfs4.Run(running) })
	}
	err := n.rpc.Serve(ctx, l)
	end()
	idle, closed := make(chan struct{}), make(chan struct{})
	go func() {
		n.rpc.Wait()
		leases.Wait()
		close(idle)
		if n.nfs4 != nil {
			n.nfs4.Stop()
		}
		n.opener.Close()
		close(closed)
	}()
	select {
	case <-idle:
	case <-time.After(closeTimeout): // a call that hangs on the disk ends with the process
		return err
	}
	select {
	case <-closed:
	case <-time.After(handoverTimeout):
	}
	return err
}

// mounts is the table of exports as MOUNT sees it.
type mounts struct {
	table  *exports.Table
	opener *inode.Opener
}

// Root returns the handle of a mount's root directory.
func (m mounts) Root(path string, client netip.AddrPort) ([]byte, mount3.Status) {
	v, ok := m.table.ByPath(path)
	switch {
	case !ok:
		return nil, mount3.ErrNoEnt
	case !v.Allows(client.Addr()), !v.AllowsPort(client):
		return nil, mount3.ErrAcces
	}
	handle, err := m.opener.Root(v)
	if err != nil {
		return nil, mount3.ErrServerFault
	}
	return handle, mount3.OK
}

// List returns the paths that can be mounted.
func (m mounts) List() []string {
	var paths []string
	for _, v := range m.table.Volumes() {
		paths = append(paths, v.Path)
	}
	return paths
}

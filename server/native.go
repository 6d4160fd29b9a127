package server

import (
	"context"
	"log/slog"
	"net"
	"net/netip"
	"time"

	"github.com/podnas/podnas/nfs/mount3"
	"github.com/podnas/podnas/server/export"
	mountd "github.com/podnas/podnas/server/mount3"
	"github.com/podnas/podnas/server/nfs3"
	"github.com/podnas/podnas/server/oncrpc"
	"github.com/podnas/podnas/server/stats"
	"github.com/podnas/podnas/server/vfs"
)

// workers is how many calls use the disk concurrently. It is larger than the
// number of processors, because most calls wait for a sync.
const workers = 64

// closeTimeout is how long shutdown waits for calls that use the disk.
const closeTimeout = time.Second

// native is podnas's own engine: the RPC server with the programs NFS and MOUNT.
type native struct {
	rpc     *oncrpc.Server
	opener  *export.Opener
	workers *export.Workers
}

func newNative(table *export.Table, key *export.Key, slow *stats.SlowLog, log *slog.Logger) (*native, error) {
	n := &native{opener: export.NewOpener(table, key, log), workers: export.NewWorkers(workers)}
	var err error
	n.rpc, err = oncrpc.NewServer(oncrpc.ServerConfig{
		Programs: []oncrpc.Program{
			nfs3.NewProgram(vfs.New(vfs.Config{Opener: n.opener, Workers: n.workers, Log: log})),
			mountd.NewProgram(exports{table, n.opener}, log),
		},
		SlowLog: slow,
		Log:     log,
	})
	return n, err
}

// Stats returns the statistics of the engine.
func (n *native) Stats() *stats.Server { return n.rpc.Stats() }

// Serve serves the clients of l until ctx ends. It can be called once.
func (n *native) Serve(ctx context.Context, l net.Listener) error {
	err := n.rpc.Serve(ctx, l)
	closed := make(chan struct{})
	go func() {
		n.workers.Close()
		n.opener.Close()
		close(closed)
	}()
	select {
	case <-closed:
	case <-time.After(closeTimeout): // a call that hangs on the disk ends with the process
	}
	return err
}

// exports is the table as MOUNT sees it.
type exports struct {
	table  *export.Table
	opener *export.Opener
}

// Root returns the handle of a mount's root directory.
func (e exports) Root(path string, client netip.AddrPort) ([]byte, mount3.Status) {
	v, ok := e.table.ByPath(path)
	switch {
	case !ok:
		return nil, mount3.ErrNoEnt
	case !v.Options.Allows(client.Addr()), !v.AllowsPort(client):
		return nil, mount3.ErrAcces
	}
	handle, err := e.opener.Root(v)
	if err != nil {
		return nil, mount3.ErrServerFault
	}
	return handle, mount3.OK
}

// List returns the paths that can be mounted.
func (e exports) List() []string {
	var paths []string
	for _, v := range e.table.Volumes() {
		paths = append(paths, v.Path)
	}
	return paths
}

// Package gonfs is the portable NFS engine: willscott/go-nfs over go-billy.
//
// It needs no capability and only ordinary system calls, and it is the baseline
// for measurements of other engines. The library limits it:
//
//   - the library's handlers do not get the caller's identity, so every client
//     that reaches a volume may do everything in it, and new files belong to
//     podnas's user;
//   - no hard links, device nodes, fifos, sockets, or exclusive create;
//   - one call at a time on a connection, and every WRITE is synced.
//
// A call's way: listener.Accept gives the library a connection whose Read returns
// whole, checked records (conn.go); the library decodes the call and gets the
// file's path from handler.FromHandle (tree.go); it works on paths through
// filesystem (filesystem.go), which checks at each step that the path still leads
// to the file of the handle.
package gonfs

import (
	"context"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/go-git/go-billy/v5"
	nfs "github.com/willscott/go-nfs"
	"golang.org/x/time/rate"

	"github.com/podnas/podnas/server/export"
	"github.com/podnas/podnas/server/oncrpc"
	"github.com/podnas/podnas/server/stats"
)

// Engine serves the volumes of a table.
type Engine struct {
	handler *handler
	stats   *stats.Server
	log     *slog.Logger
}

// New returns an engine. The table may change while it serves. slow logs slow calls,
// and may be nil.
func New(table *export.Table, key *export.Key, slow *stats.SlowLog, log *slog.Logger) *Engine {
	return &Engine{
		handler: &handler{table: table, key: key, opener: export.NewOpener(table, key, log), volumes: map[*export.Volume]*filesystem{}},
		stats:   stats.New(procedureNames(), slow),
		log:     log,
	}
}

// Stats returns the engine's counters, at any time.
func (e *Engine) Stats() *stats.Server { return e.stats }

// Serve answers clients of l until ctx ends, then closes l and every connection,
// after the reply to its current call. Call it once.
func (e *Engine) Serve(ctx context.Context, l net.Listener) error {
	guarded := &listener{
		Listener: l, log: e.log, allows: e.handler.allows, volume: e.handler.served, stats: e.stats,
		peers: oncrpc.NewPeers(), budget: oncrpc.NewBudget(), full: rate.Sometimes{Interval: 10 * time.Second},
	}
	go guarded.hurry(ctx)
	closed := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		guarded.shutdown()
		close(closed)
	})
	// The library's own context must outlive ctx: it drops replies when it ends.
	server := &nfs.Server{Handler: e.handler, Context: context.WithoutCancel(ctx)}
	err := server.Serve(guarded)
	if !stop() {
		<-closed // Accept fails before Close has closed the socket, and until then no other server can listen there
	}
	guarded.shutdown()
	guarded.wait()
	e.handler.opener.Close()
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// handler implements nfs.Handler and nfs.CachingHandler for the library.
type handler struct {
	table  *export.Table
	key    *export.Key
	opener *export.Opener
	listings

	mu      sync.Mutex
	volumes map[*export.Volume]*filesystem
}

// filesystem returns the library's view of a volume, the same for every call.
func (h *handler) filesystem(v *export.Volume) *filesystem {
	h.mu.Lock()
	defer h.mu.Unlock()
	fs, ok := h.volumes[v]
	if !ok {
		for old := range h.volumes { // a new volume is rare: a good time to forget ended ones
			select {
			case <-old.Closed():
				delete(h.volumes, old)
			default:
			}
		}
		fs = &filesystem{id: v.ID, volume: v, opener: h.opener, tree: newTree(h.opener, v)}
		h.volumes[v] = fs
	}
	return fs
}

// Mount answers MNT, RFC 1813 section 5.2.1.
func (h *handler) Mount(_ context.Context, client net.Conn, req nfs.MountRequest) (nfs.MountStatus, billy.Filesystem, []nfs.AuthFlavor) {
	v, ok := h.table.ByPath(string(req.Dirpath))
	switch {
	case !ok:
		return nfs.MountStatusErrNoEnt, nil, nil
	case !allows(v, client):
		return nfs.MountStatusErrAcces, nil, nil
	}
	return nfs.MountStatusOk, h.filesystem(v), []nfs.AuthFlavor{nfs.AuthFlavorUnix}
}

// allows reports whether a client may use the volume of a handle. FromHandle reports
// other errors of a handle.
func (h *handler) allows(client net.Conn, handle []byte) bool {
	id, _, err := h.key.Parse(handle)
	if err != nil {
		return true
	}
	v, ok := h.table.ByID(id)
	return !ok || allows(v, client)
}

func allows(v *export.Volume, client net.Conn) bool {
	address := addressOf(client)
	return v.Allows(address.Addr()) && v.AllowsPort(address)
}

// served returns the counters of a handle's volume, nil if there is none.
func (h *handler) served(handle []byte) *stats.Volume {
	id, _, err := h.key.Parse(handle)
	if err != nil {
		return nil
	}
	v, ok := h.table.ByID(id)
	if !ok {
		return nil
	}
	return &v.Served
}

func addressOf(client net.Conn) netip.AddrPort {
	a, ok := client.RemoteAddr().(*net.TCPAddr)
	if !ok {
		return netip.AddrPort{}
	}
	return netip.AddrPortFrom(a.AddrPort().Addr().Unmap(), uint16(a.Port))
}

// Change returns the interface that changes attributes.
func (h *handler) Change(fs billy.Filesystem) billy.Change { return fs.(*filesystem) }

// FSStat answers FSSTAT, RFC 1813 section 3.3.18.
func (h *handler) FSStat(_ context.Context, fs billy.Filesystem, stat *nfs.FSStat) error {
	st, err := fs.(*filesystem).volume.Statfs()
	if err != nil {
		return err
	}
	*stat = nfs.FSStat{
		TotalSize: st.Size, FreeSize: st.Free, AvailableSize: st.Available,
		TotalFiles: st.Files, FreeFiles: st.FreeFiles, AvailableFiles: st.FreeFiles,
	}
	return nil
}

// ToHandle returns the handle of the file at a path, nil if there is none.
func (h *handler) ToHandle(fs billy.Filesystem, path []string) []byte {
	f, ok := fs.(*filesystem)
	if !ok { // the library calls it after a refused MNT, too
		return nil
	}
	id, err := f.identify(f.Join(path...))
	if err != nil {
		return nil
	}
	return h.key.Handle(f.id, id)
}

// FromHandle finds the file of a handle. Every error becomes NFS3ERR_STALE.
func (h *handler) FromHandle(handle []byte) (billy.Filesystem, []string, error) {
	id, file, err := h.key.Parse(handle)
	if err != nil {
		return nil, nil, err
	}
	v, ok := h.table.ByID(id)
	if !ok {
		return nil, nil, errStale
	}
	fs := h.filesystem(v)
	if file, err = fs.tree.opener.InodeForm(v, file); err != nil {
		return nil, nil, errStale
	}
	path, err := fs.tree.find(file)
	if err != nil {
		return nil, nil, err
	}
	return fs, location{path: path, file: file}.elements(), nil
}

// InvalidateHandle does nothing: a handle is valid as long as its file is.
func (h *handler) InvalidateHandle(billy.Filesystem, []byte) error { return nil }

// HandleLimit bounds how many entries the library puts into a reply to READDIR,
// together with the client's byte count.
func (h *handler) HandleLimit() int { return 1 << 20 }

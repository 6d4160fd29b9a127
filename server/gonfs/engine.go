// Package gonfs is an NFS engine of willscott/go-nfs over go-billy, for who wants that library, and
// the baseline for measurements of other engines. It finds files as the native engine does. The library
// limits it:
//
//   - the library's handlers do not get the caller's identity, so every client
//     that reaches a volume may do everything in it, and new files belong to
//     podnas's user;
//   - no hard links, device nodes, fifos, sockets, or exclusive create;
//   - one call at a time on a connection, and every WRITE is synced.
//
// A call's way:
//
//  1. listener.Accept gives the library a connection (conn.go), which the Peers of package oncrpc
//     admit, as for the native engine. Its Read joins the fragments of a record, bounds its size, and
//     takes its memory from a Budget of that package.
//  2. check decodes the call by podnas's own wire packages (check.go), because the library allocates
//     whatever a length says. It keeps from the library what that would get wrong. A procedure that
//     the library lacks gets PROC_UNAVAIL.
//  3. The library decodes the call again, and asks handler.FromHandle for the path of the file.
//     Key.Parse checks the handle's MAC. The path consists of the file's FileID and of no name
//     (location.go): whatever other clients rename meanwhile, it leads to that file or to none.
//  4. The library works on paths through filesystem (filesystem.go) and file (file.go). They open
//     the file, and use it by the methods of inode.File, as the native engine does. What
//     changes the disk is synced before the reply.
package gonfs

import (
	"context"
	"crypto/rand"
	"log/slog"
	"net"
	"net/netip"
	"time"

	"github.com/go-git/go-billy/v5"
	nfs "github.com/willscott/go-nfs"
	"golang.org/x/time/rate"

	"github.com/podnas/podnas/internal/heartbeat"
	"github.com/podnas/podnas/server/exports"
	"github.com/podnas/podnas/server/inode"
	"github.com/podnas/podnas/server/locate"
	"github.com/podnas/podnas/server/oncrpc"
	"github.com/podnas/podnas/server/stats"
)

// Engine serves the volumes of a table.
type Engine struct {
	handler *handler
	stats   *stats.Server
	beats   *heartbeat.Heartbeat
	log     *slog.Logger
}

// New returns an engine. The table may change while it serves. slow logs slow calls, beats say when replies may be
// sent, and both may be nil.
func New(table *exports.Table, key *locate.Key, slow *stats.SlowLog, beats *heartbeat.Heartbeat, log *slog.Logger) *Engine {
	return &Engine{
		beats:   beats,
		handler: &handler{table: table, key: key, opener: inode.NewOpener(table, key, log)},
		stats:   stats.New(procedureNames(), slow),
		log:     log,
	}
}

// Stats returns the engine's counters, at any time.
func (e *Engine) Stats() *stats.Server { return e.stats }

// CacheCounts counts what is kept between calls.
func (e *Engine) CacheCounts() inode.CacheCounts { return e.handler.opener.CacheCounts() }

// Opener opens the files of volumes.
func (e *Engine) Opener() *inode.Opener { return e.handler.opener }

// Serve answers clients of l until ctx ends, then closes l and every connection,
// after the reply to its current call. Call it once.
func (e *Engine) Serve(ctx context.Context, l net.Listener) error {
	guarded := &listener{
		Listener: l, log: e.log, ends: stats.NewLines(e.log, stats.LinesBurst, stats.LinesPeriod), beats: e.beats, allows: e.handler.allows, volume: e.handler.served, stats: e.stats,
		peers: oncrpc.NewPeers(), budget: oncrpc.NewBudget(), full: rate.Sometimes{Interval: 10 * time.Second},
		stopping: make(chan struct{}),
	}
	go guarded.hurry(ctx)
	closed := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		guarded.shutdown()
		close(closed)
	})
	err := e.accept(ctx, guarded)
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

// accept has the library serve connections until the listener is closed. Each has a server of the library's, because its handlers do
// not get the connection.
func (e *Engine) accept(ctx context.Context, l *listener) error {
	var id [8]byte // the write verifier
	_, _ = rand.Read(id[:])
	for {
		c, err := l.Accept()
		if err != nil {
			return err
		}
		// The library's own context must outlive ctx: it drops replies when it ends.
		server := &nfs.Server{Handler: &connHandler{e.handler, c}, ID: id, Context: context.WithoutCancel(ctx)}
		_ = server.Serve(&single{Listener: l.Listener, conn: c}) // returns at once: single is closed after one connection
	}
}

// single is a listener that accepts one connection.
type single struct {
	net.Listener // its address alone
	conn         *conn
}

// Accept returns the connection, and then says that the listener is closed.
func (s *single) Accept() (net.Conn, error) {
	c := s.conn
	if c == nil {
		return nil, net.ErrClosed
	}
	s.conn = nil
	return c, nil
}

// Close does nothing.
func (s *single) Close() error { return nil }

// connHandler implements nfs.Handler and nfs.CachingHandler for the library, for one connection.
type connHandler struct {
	*handler
	conn *conn
}

// handler is what the connections share.
type handler struct {
	table  *exports.Table
	key    *locate.Key
	opener *inode.Opener
	listings
}

// filesystem returns the library's view of a volume.
func (h *connHandler) filesystem(v *exports.Volume) *filesystem {
	return &filesystem{id: v.ID, opener: h.opener, volume: v, conn: h.conn}
}

// Mount answers MNT, RFC 1813 section 5.2.1.
func (h *connHandler) Mount(_ context.Context, client net.Conn, req nfs.MountRequest) (nfs.MountStatus, billy.Filesystem, []nfs.AuthFlavor) {
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

func allows(v *exports.Volume, client net.Conn) bool {
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
func (h *handler) ToHandle(fs billy.Filesystem, path []string) (handle []byte) {
	f, ok := fs.(*filesystem)
	if !ok { // the library calls it after a refused MNT, too
		return nil
	}
	_ = f.do(join(path), func(file *inode.File) error {
		handle = file.Handle()
		return nil
	})
	return handle
}

// FromHandle finds the file of a handle. Every error becomes NFS3ERR_STALE.
func (h *connHandler) FromHandle(handle []byte) (billy.Filesystem, []string, error) {
	id, file, err := h.key.Parse(handle)
	if err != nil {
		return nil, nil, err
	}
	v, ok := h.table.ByID(id)
	if !ok {
		return nil, nil, errStale
	}
	found, err := h.opener.OpenIn(v, file, inode.UseAttr)
	if err != nil {
		return nil, nil, err
	}
	defer found.Close()
	return h.filesystem(v), elements(found.ID), nil
}

// InvalidateHandle does nothing: a handle is valid as long as its file is.
func (h *handler) InvalidateHandle(billy.Filesystem, []byte) error { return nil }

// HandleLimit bounds how many entries the library puts into a reply to READDIR,
// together with the client's byte count.
func (h *handler) HandleLimit() int { return 1 << 20 }

package exports

import (
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/podnas/podnas/server/actas"
	"github.com/podnas/podnas/server/disk"
	"github.com/podnas/podnas/server/durable"
	"github.com/podnas/podnas/server/locate"
	"github.com/podnas/podnas/server/snapshot"
	"github.com/podnas/podnas/server/space"
	"github.com/podnas/podnas/server/stats"
)

// Volume is an exported directory.
type Volume struct {
	ID   uint64 // in every handle of the volume
	Path string // what clients mount: "/" and a name

	// Options do not change while the volume is exported.
	Options Options
	Served  stats.Volume
	// Refused is why no client may use the volume, nil if clients may.
	Refused error
	// FS says what the file system of the volume can.
	FS disk.FS
	// Account counts what the volume uses; nil: the server does not count.
	Account *space.Account
	// Files finds the volume's files.
	Files locate.Volume
	// Durable has the syncs of the volume's files.
	Durable durable.Volume
	// Snapshots is passed by all changes of the volume.
	Snapshots snapshot.Volume
	// FSID tells clients which files are on one file system.
	FSID uint64
	// Of is the volume whose snapshots this one has, or of a snapshot that of all snapshots; nil: it is neither.
	Of *Volume

	shown   atomic.Pointer[Volume]            // see Shown
	numbers atomic.Pointer[map[string]uint64] // see NumberOf; each is never changed
	table   *Table
	counted atomic.Bool // the usage is, and Table.lookAfter looks after it
	mu      sync.RWMutex
	// +checklocks:mu
	ended  bool           // no call may begin
	calls  sync.WaitGroup // current calls: every File, and a scan
	ending chan struct{}
	closed chan struct{}
	credit atomic.Int64 // bytes that HasRoom accepts before it reads the free space again
	known  known        // what the file system can do
}

// GivesRoom reports whether the disk is full, but will not be for long.
func (v *Volume) GivesRoom() bool { return v.GivesRoomFor(0) }

// GivesRoomFor is GivesRoom for a call that takes so many bytes at once.
func (v *Volume) GivesRoomFor(bytes int64) bool {
	t := v.table
	return t != nil && (t.Freeing.Load() > 0 || t.GivesRoom != nil && t.GivesRoom(v.ID, bytes))
}

// Closed returns a channel that is closed when the export has ended and its last call has
// returned.
func (v *Volume) Closed() <-chan struct{} { return v.closed }

// Begin begins a call in the volume, which Done ends. It returns false after the end of the export.
func (v *Volume) Begin() bool {
	v.mu.RLock()
	defer v.mu.RUnlock()
	if v.ended {
		return false
	}
	v.calls.Add(1)
	return true
}

// Done ends what Begin has begun.
func (v *Volume) Done() { v.calls.Done() }

// Ending returns a channel that is closed when no call may begin any more.
func (v *Volume) Ending() <-chan struct{} { return v.ending }

// HasEnded reports whether no call may begin any more.
func (v *Volume) HasEnded() bool {
	v.mu.RLock()
	defer v.mu.RUnlock()
	return v.ended
}

func (v *Volume) end() {
	v.mu.Lock()
	v.ended = true
	v.mu.Unlock()
	close(v.ending)
	v.calls.Wait()
	v.Files.Close()
	if v.Account != nil {
		v.Account.LastMark()
	}
	_ = v.Files.Root.Close() // a directory, nothing to lose
	close(v.closed)
}

// Options determine what clients may do in a volume. With the zero Options, root
// is not squashed, and every change is durable before its reply.
type Options struct {
	RootSquash bool   // root becomes the anonymous user
	AllSquash  bool   // everyone does
	AnonUID    uint32 // the anonymous user, 0 stands for 65534
	AnonGID    uint32 // and group
	ReadOnly   bool   // nothing can be changed
	Async      bool   // metadata is not synced before the reply
	// PrivilegedPorts refuses calls from ports that any user may bind.
	PrivilegedPorts bool
	// Clients are the networks that may mount, all if empty.
	Clients []netip.Prefix
}

// Squash returns which callers become the anonymous user.
func (o *Options) Squash() actas.Squash {
	return actas.Squash{Root: o.RootSquash, All: o.AllSquash, AnonUID: o.AnonUID, AnonGID: o.AnonGID}
}

// Allows reports whether a client may use the volume. A client without an address,
// on a Unix socket, may only use a volume that allows all clients.
func (o *Options) Allows(client netip.Addr) bool {
	if len(o.Clients) == 0 {
		return true
	}
	client = client.WithZone("") // of a link-local address, which no network contains
	for _, network := range o.Clients {
		if network.Contains(client) {
			return true
		}
	}
	return false
}

// Allows reports whether a client may use the volume.
func (v *Volume) Allows(client netip.Addr) bool { return v.Refused == nil && v.Options.Allows(client) }

// ErrExists means that an export with this path or number exists.
var ErrExists = errors.New("is exported already")

// ErrReadOnly is EROFS for a change in a volume that is read-only, or among what podnas itself shows. The file system says EROFS, too,
// when the disk has failed.
var ErrReadOnly = fmt.Errorf("read-only volume: %w", syscall.EROFS)

// Table is the exported volumes. The zero Table is empty and ready; its methods
// may be called concurrently.
type Table struct {
	Syncs stats.Syncs  // of all its volumes, including removed ones
	Log   *slog.Logger // nil: nothing is logged
	// ByIndex is whether all files are found by an index, and none is opened by the kernel's handle. IndexMax is
	// how many bytes the indexes of all volumes may take, before those with the most files forget some; 0: as
	// many as most disks need. Both must be set before a volume is added.
	ByIndex  bool
	IndexMax int
	// Only is the user as whom all calls are done. It must be set before a volume is added.
	Only *actas.Only
	// Modes is the directory on the disk that has the modes of files which Only changes for a moment, see package inode.
	// If it is empty, none is changed. It must be set before inode.NewOpener.
	Modes string

	// GivesRoom reports whether the disk is full, but will not be for long, for a call in a volume that takes so many bytes, 0 if that are
	// few. nil: it is as it is. It must be set before a volume is added.
	GivesRoom func(volume uint64, bytes int64) bool
	// Scans limits concurrent counts of volumes; nil: to a few. It must be set before a volume is added.
	Scans chan struct{}
	// Indexes has what the indexes of all volumes share.
	Indexes locate.Indexes

	// Freeing counts the files of clients that were dismissed and that are being closed. One that was removed frees its space then.
	Freeing atomic.Int64

	diskSyncs snapshot.DiskSyncs

	refused refused
	admits  atomic.Pointer[admission] // see Admits
	marks   string                    // directory of the marks, see KeepMarks
	saving  atomic.Bool               // indexes are written

	mu sync.RWMutex
	// +checklocks:mu
	byPath map[string]*Volume
	// +checklocks:mu
	byID map[uint64]*Volume
	// snapshots are those that clients see, by their numbers. The ones that are open are in byID, too.
	// +checklocks:mu
	snapshots map[uint64]shownSnapshot
	// +checklocks:mu
	sorted []*Volume // by path; replaced by each change, because callers of Volumes have it
	// +checklocks:mu
	looking *time.Timer // calls lookAfter; nil: no volume is counted
	// +checklocks:mu
	forget []func(id uint64) // see OnForget
	// +checklocks:mu
	own func(*Volume) *snapshot.Own // see ReadsOwn; nil: the process may read everything
}

// Exported is a directory for Table.Export.
type Exported struct {
	ID      uint64
	Path    string // what clients mount
	Dir     string
	Options Options
	Form    locate.Form    // of the handles; empty: nobody has recorded it
	Account *space.Account // nil: the server does not count

	of *Volume // see Volume.Of
}

// Export exports a directory. With an account it starts to count the existing files.
func (t *Table) Export(e Exported) error {
	log := t.log().With("volume", path.Clean("/"+e.Path))
	if e.Account != nil {
		e.Account.KeepMark(t.markFile(e.ID), log)
	}
	v, err := t.Add(e)
	if err != nil || e.Account == nil {
		return err
	}
	if v.isEmpty() {
		v.scan(log) // an empty volume needs no slot, and writers need not wait for its scan
	}
	go v.count(t.Scans, log)
	return nil
}

// Add is Export without counting the files.
func (t *Table) Add(e Exported) (*Volume, error) {
	e.Path = path.Clean("/" + e.Path)
	t.setUp()
	if t.has(e.Path, e.ID) { // before it is opened, which may take long
		return nil, fmt.Errorf("export %s: %w", e.Path, ErrExists)
	}
	v, err := t.open(e)
	if err != nil {
		return nil, err
	}
	if v.Account != nil {
		v.Account.Attach(v.Files.Root, v.identifyAgain)
	}
	if !t.put(v) { // another call was faster
		v.Account = nil // its mark is the other's
		v.end()
		return nil, fmt.Errorf("export %s: %w", e.Path, ErrExists)
	}
	if v.Refused != nil {
		t.log().Warn("nfs: no client may use a volume", "volume", v.Path, "reason", v.Refused)
	}
	return v, nil
}

// setUp is for before the first volume is opened.
func (t *Table) setUp() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.byPath != nil {
		return
	}
	t.byPath, t.byID, t.snapshots = map[string]*Volume{}, map[uint64]*Volume{}, map[uint64]shownSnapshot{}
	if t.Scans == nil {
		t.Scans = make(chan struct{}, scansAtOnce)
	}
	t.Indexes.SetUp(t.IndexMax, t.log())
}

// has reports whether the table has an export with this path or number.
func (t *Table) has(path string, id uint64) bool {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.hasLocked(path, id)
}

// +checklocksread:t.mu
func (t *Table) hasLocked(path string, id uint64) bool {
	return t.byPath[path] != nil || t.byID[id] != nil
}

// put puts a volume into the table, unless that has its path or number, and begins to fill its index.
func (t *Table) put(v *Volume) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.hasLocked(v.Path, v.ID) {
		return false
	}
	v.Files.Fill() // a call that finds the volume may ask the index
	t.byPath[v.Path], t.byID[v.ID] = v, v
	at, _ := slices.BinarySearchFunc(t.sorted, v.Path, func(other *Volume, path string) int { return strings.Compare(other.Path, path) })
	t.sorted = slices.Concat(t.sorted[:at], []*Volume{v}, t.sorted[at:])
	return true
}

// open makes a Volume that is not in the table.
func (t *Table) open(e Exported) (*Volume, error) {
	root, err := os.OpenFile(e.Dir, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil, fmt.Errorf("export %s: %w", e.Path, err)
	}
	v := &Volume{
		ID: e.ID, FSID: e.ID, table: t, Path: e.Path, Options: e.Options, FS: disk.Of(root), Account: e.Account,
		Of: e.of, ending: make(chan struct{}), closed: make(chan struct{}), Refused: t.Only.Refuses(e.Options.Squash()),
	}
	if err := v.Files.SetUp(v, locate.Config{ID: v.ID, Path: v.Path, Root: root, FS: &v.FS, OnDemand: e.of != nil}, &t.Indexes, e.Form, t.ByIndex); err != nil {
		return nil, fmt.Errorf("export %s: %w", e.Path, errors.Join(err, root.Close()))
	}
	v.Served.Name = v.Path
	v.Durable.Init(v.ID, v.Path, &v.FS, &t.Syncs)
	v.Snapshots.Syncs = &t.diskSyncs
	return v, nil
}

func (t *Table) log() *slog.Logger {
	if t.Log == nil {
		return slog.New(slog.DiscardHandler)
	}
	return t.Log
}

// Remove ends an export and waits for its current calls, so the caller must have no File or
// call of the volume open. A missing export is no error. It returns the numbers of what clients saw as the
// volume's snapshots. What is kept of them all for clients stays, for the next process, until Forget.
func (t *Table) Remove(id uint64) (snapshots []uint64) {
	t.mu.Lock()
	v := t.byID[id]
	if v != nil {
		delete(t.byPath, v.Path)
		delete(t.byID, id)
		t.sorted = slices.DeleteFunc(slices.Clone(t.sorted), func(other *Volume) bool { return other == v })
	}
	t.mu.Unlock()
	if v == nil {
		return nil
	}
	snapshots = t.hideSnapshots(v)
	v.end()
	return snapshots
}

// OnForget has a function be called with the number of each volume that was deleted, and of each snapshot that clients see
// no more, for what is kept of its files.
func (t *Table) OnForget(forget func(id uint64)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.forget = append(t.forget, forget)
}

// Forget removes what is kept for clients of volumes that were deleted, by their numbers.
func (t *Table) Forget(ids ...uint64) {
	t.mu.RLock()
	all := t.forget
	t.mu.RUnlock()
	for _, id := range ids {
		for _, forget := range all {
			forget(id)
		}
	}
}

// ByPath finds the volume a client mounts. A trailing slash does not matter.
func (t *Table) ByPath(exportPath string) (*Volume, bool) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	v, ok := t.byPath[path.Clean("/"+exportPath)]
	return v, ok
}

// ByID finds the volume of a handle.
func (t *Table) ByID(id uint64) (*Volume, bool) {
	v, err := t.Find(id)
	return v, err == nil
}

// Find is ByID. The error is ESTALE if there is no such volume, or why a snapshot can't be opened.
func (t *Table) Find(id uint64) (*Volume, error) {
	t.mu.RLock()
	v, ok := t.byID[id]
	t.mu.RUnlock()
	if !ok {
		return t.openSnapshot(id)
	}
	return v, nil
}

// IsSame reports whether two lists of Volumes are one. The table has another one after each change.
func IsSame(a, b []*Volume) bool {
	return len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0])
}

// Volumes lists the exports, sorted by path. The caller must not change the list.
func (t *Table) Volumes() []*Volume {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.sorted
}

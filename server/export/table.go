package export

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
	"time"

	"golang.org/x/sys/unix"

	"github.com/podnas/podnas/server/actas"
	"github.com/podnas/podnas/server/disk"
	"github.com/podnas/podnas/server/durable"
	"github.com/podnas/podnas/server/inodeindex"
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
	// Durable has the syncs of the volume's files.
	Durable durable.Volume

	table       *Table
	root        *os.File
	form        Form
	byIndex     bool // finder is the index
	finder      finder
	index       atomic.Pointer[index] // nil: none is needed, yet
	rootID      disk.FileID           // zero if there is none
	over        atomic.Pointer[above]
	directories directories
	// climbing is held while walking up many levels, see findInside.
	climbing sync.Mutex
	mount    uint64 // the root's, and so of all that is opened by handle; 0 before Linux 5.8
	births   bool   // the disk has the times of birth
	rootIno  uint64
	disk     disk.FS
	account  *space.Account // nil: the server does not count
	counted  atomic.Bool    // the usage is, and Table.lookAfter looks after it
	mu       sync.RWMutex
	ended    bool           // no call may begin
	calls    sync.WaitGroup // current calls: every Dir and File, and a scan
	ending   chan struct{}
	closed   chan struct{}
	credit   atomic.Int64 // bytes that HasRoom accepts before it reads the free space again
}

// Closed returns a channel that is closed when the export has ended and its last call has
// returned.
func (v *Volume) Closed() <-chan struct{} { return v.closed }

// Account returns the volume's account, nil if the server does not count.
func (v *Volume) Account() *space.Account { return v.account }

// begin starts a call in the volume, which v.calls.Done ends. It returns false
// after the end of the export.
func (v *Volume) begin() bool {
	v.mu.RLock()
	defer v.mu.RUnlock()
	if v.ended {
		return false
	}
	v.calls.Add(1)
	return true
}

func (v *Volume) hasEnded() bool {
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
	if x := v.index.Load(); x != nil {
		x.names.Close()
	}
	if v.account != nil {
		v.account.LastMark()
	}
	_ = v.root.Close() // a directory, nothing to lose
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
	// Only is the user as whom all calls are done, see Rights. It must be set before a volume is added.
	Only *actas.Only
	// Modes is the directory on the disk that has the modes of files which Only changes for a moment, see Opener.openOwn.
	// If it is empty, none is changed. It must be set before NewOpener.
	Modes string

	refused refused
	mu      sync.RWMutex
	byPath  map[string]*Volume
	byID    map[uint64]*Volume
	sorted  []*Volume     // by path; replaced by each change, because callers of Volumes have it
	scans   chan struct{} // limits concurrent scans
	looking *time.Timer   // calls lookAfter; nil: no volume is counted
	walks   chan struct{} // and walks of indexes
	loads   chan struct{} // and files of indexes that are read
	marks   string        // directory of the marks, see KeepMarks
	indexes string        // of the indexes, see KeepIndexes
	opener  *Opener       // that keeps files, see Opener.KeepRemoved; nil: none

	memoryOnce sync.Once
	memory     *inodeindex.Memory // of the indexes, see indexMemory

	saving   atomic.Bool // indexes are written
	stopping atomic.Bool // and that without pauses
}

// Exported is a directory for Table.Export.
type Exported struct {
	ID      uint64
	Path    string // what clients mount
	Dir     string
	Options Options
	Form    Form           // of the handles; empty: nobody has recorded it
	Account *space.Account // nil: the server does not count
}

// Export exports a directory. With an account it starts to count the existing files.
func (t *Table) Export(e Exported) error {
	log := t.log().With("volume", path.Clean("/"+e.Path))
	if e.Account != nil {
		e.Account.KeepMark(t.markFile(e.ID), log)
	}
	v, err := t.add(e)
	if err != nil || e.Account == nil {
		return err
	}
	if v.isEmpty() {
		v.scan(log) // an empty volume needs no slot, and writers need not wait for its scan
	}
	go v.count(t.scans, log)
	return nil
}

func (t *Table) add(e Exported) (*Volume, error) {
	exportPath := path.Clean("/" + e.Path)
	root, err := os.OpenFile(e.Dir, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil, fmt.Errorf("export %s: %w", exportPath, err)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.byPath[exportPath] != nil || t.byID[e.ID] != nil {
		return nil, fmt.Errorf("export %s: %w", exportPath, errors.Join(ErrExists, root.Close()))
	}
	if t.byPath == nil {
		t.byPath, t.byID = map[string]*Volume{}, map[uint64]*Volume{}
		t.scans, t.loads = make(chan struct{}, scansAtOnce), make(chan struct{}, walksAtOnce)
		if t.walks == nil {
			t.walks = make(chan struct{}, walksAtOnce)
		}
	}
	v := &Volume{
		ID: e.ID, table: t, Path: exportPath, Options: e.Options, root: root, disk: disk.Of(root), account: e.Account,
		ending: make(chan struct{}), closed: make(chan struct{}), Refused: t.Only.Refuses(e.Options.Squash()),
	}
	v.statRoot()
	if err := v.setForm(e.Form); err != nil {
		return nil, fmt.Errorf("export %s: %w", exportPath, errors.Join(err, root.Close()))
	}
	if v.account != nil {
		v.account.Attach(root, v.identifyAgain)
	}
	if v.rootID, err = v.finder.Identify(int(root.Fd()), nil); err != nil {
		v.finder = disk.ByInode{FS: &v.disk}
	}
	if v.Refused != nil && t.Log != nil {
		t.Log.Warn("nfs: no client may use a volume", "volume", v.Path, "reason", v.Refused)
	}
	v.Served.Name = v.Path
	v.Durable.Init(v.ID, v.Path, &v.disk, &t.Syncs)
	t.byPath[v.Path], t.byID[v.ID] = v, v
	at, _ := slices.BinarySearchFunc(t.sorted, v.Path, func(other *Volume, path string) int { return strings.Compare(other.Path, path) })
	t.sorted = slices.Concat(t.sorted[:at], []*Volume{v}, t.sorted[at:])
	if x := v.index.Load(); x != nil {
		x.fill()
	}
	return v, nil
}

func (t *Table) log() *slog.Logger {
	if t.Log == nil {
		return slog.New(slog.DiscardHandler)
	}
	return t.Log
}

// Remove ends an export and waits for its current calls, so the caller must have no File or
// call of the volume open. A missing export is no error.
func (t *Table) Remove(id uint64) {
	t.mu.Lock()
	v := t.byID[id]
	if v != nil {
		delete(t.byPath, v.Path)
		delete(t.byID, id)
		t.sorted = slices.DeleteFunc(slices.Clone(t.sorted), func(other *Volume) bool { return other == v })
	}
	t.mu.Unlock()
	if v != nil {
		v.end()
	}
}

// ForgetRemoved removes what is kept for clients of a volume that was deleted, after Remove.
func (t *Table) ForgetRemoved(id uint64) {
	t.mu.RLock()
	o := t.opener
	t.mu.RUnlock()
	if o != nil {
		o.forgetVolume(id)
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
	t.mu.RLock()
	defer t.mu.RUnlock()
	v, ok := t.byID[id]
	return v, ok
}

// Volumes lists the exports, sorted by path. The caller must not change the list.
func (t *Table) Volumes() []*Volume {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.sorted
}

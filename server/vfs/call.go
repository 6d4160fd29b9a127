package vfs

import (
	"errors"
	"log/slog"
	"net/netip"
	"slices"
	"syscall"
	"time"

	"github.com/podnas/podnas/server/actas"
	"github.com/podnas/podnas/server/disk"
	"github.com/podnas/podnas/server/exports"
	"github.com/podnas/podnas/server/inode"
	"github.com/podnas/podnas/server/locate"
	"github.com/podnas/podnas/server/stats"
)

// Config configures a Service. All fields but Denied are needed.
type Config struct {
	Opener *inode.Opener
	Users  *actas.Users
	// Denied reports whether a client that has a file open denies reading or writing it to
	// who has not; nil: nobody does.
	Denied func(v *exports.Volume, id disk.FileID, write bool) bool
	Log    *slog.Logger
}

// Service has what calls share.
type Service struct {
	opener *inode.Opener
	users  *actas.Users
	denied func(v *exports.Volume, id disk.FileID, write bool) bool
	nobody *stats.Lines // callers as whom no thread can act

	copyFor time.Duration // copyFor, but in tests
}

// New returns a Service.
func New(cfg Config) *Service {
	return &Service{opener: cfg.Opener, users: cfg.Users, denied: cfg.Denied, nobody: stats.NewLines(cfg.Log, stats.LinesBurst, stats.LinesPeriod), copyFor: copyFor}
}

// Conn is what a call needs of the connection that it came by. Calls of a connection that come
// after it are read by the same goroutine, until the call hands that on to another one.
type Conn interface {
	// MayWait must be called before the call makes system calls that may block, for a
	// volume. surely is whether they are likely to: then the reading is handed on at once,
	// unless the call is alone, and otherwise after a moment. It
	// returns false if the client has gone: the call must not be begun then. Of calls that may block there are few, so it
	// may wait for others to end. Those may wait for a lock, so the call must hold none.
	MayWait(volume uint64, surely bool) bool
	// Alone reports whether no other call of the connection is under way, as far as is known.
	Alone() bool
	// Wait hands on the reading. It must be called before the call waits for another goroutine. MayWait
	// is needed again afterwards.
	Wait()
	// Woken may be called before the call goes on after Wait, by the goroutine that wakes it.
	Woken()
}

// Caller is who calls.
type Caller struct {
	Client   netip.AddrPort
	UID, GID uint32
	Groups   []uint32
}

// Call is a call on its way through the operations, on one goroutine from Begin to End. A
// protocol embeds it in what it keeps of a call, so that the most frequent calls allocate nothing.
type Call struct {
	Caller
	// WantChange is whether the change attribute of directories is wanted.
	WantChange bool
	// SharesChecked is whether the protocol itself checks what opens deny.
	SharesChecked bool
	// Served is where the call is counted.
	Served *stats.Call

	service  *Service
	conn     Conn
	volume   *exports.Volume // of the file that was opened last
	id       actas.Identity  // the caller's in that volume
	acting   bool            // in AsCaller
	waited   bool            // MayWait is needed again
	files    []closer        // closed by End
	filesMem [3]closer       // of files, for most calls
	writable *inode.File     // of files; see someMayWrite
	told     told            // of one of files; see askKernel
	together inode.Together  // of what it changes
}

// closer is a file as long as a call uses it.
type closer interface{ Close() }

// Begin starts a call.
func (c *Call) Begin(s *Service, conn Conn, who Caller, served *stats.Call) {
	c.service, c.conn, c.Caller, c.Served = s, conn, who, served
	c.files, c.volume = c.filesMem[:0], nil
	c.Forget()
	c.acting, c.waited = false, false
}

// End closes the call's files. It must be called whatever becomes of the call, so deferred.
func (c *Call) End() {
	c.closeFrom(0)
	c.files = nil
}

// Shortly calls do, and closes what that has opened when it returns: what a call has open must not grow with a listing.
func (c *Call) Shortly(do func() error) error {
	opened := len(c.files)
	defer func() {
		c.closeFrom(opened)
		c.Forget() // of a file that is used again as another one
	}()
	return do()
}

func (c *Call) closeFrom(first int) {
	for _, f := range c.files[first:] {
		f.Close()
	}
	clear(c.files[first:])
	c.files = c.files[:first]
}

// Closes adds a file that is closed when the call ends.
func (c *Call) Closes(f closer) { c.files = append(c.files, f) }

// AsCaller runs do with a thread that acts as the caller, in the volume of the file that was opened last,
// and returns its error. What do does must be little: the names that it changes, say, but no wait, no file
// of a handle, and no other AsCaller, for which the goroutine must be root.
func (c *Call) AsCaller(do func(actas.Thread) error) error {
	c.mustNotAct()
	if err := c.mayWaitAgain(); err != nil {
		return err
	}
	c.acting = true
	err := c.service.users.As(&c.id, do)
	c.acting = false
	if errors.Is(err, actas.ErrIdentity) {
		c.service.nobody.Log(slog.LevelError, "nfs: can't act as the caller of a call", "client", c.Client, "uid", c.id.UID, "gid", c.id.GID, "err", err)
	}
	return err
}

// mustNotAct panics in AsCaller.
func (c *Call) mustNotAct() {
	if c.acting {
		panic("vfs: acts as the caller, and must be root")
	}
}

// isProcess reports whether any goroutine acts as the caller.
func (c *Call) isProcess() bool { return c.service.users.IsProcess(&c.id) }

// Sync syncs a file of the call and waits for it; if dataOnly, without the metadata that is not
// needed to read the data back. A call that is alone does so itself. Otherwise
// another goroutine does so for all calls that wait.
func (c *Call) Sync(f *inode.File, dataOnly bool) error {
	c.mustNotAct()
	// After a wait MayWait would be needed for it, which may drop the call: that has begun.
	if !c.waited && c.conn.Alone() {
		if ok, err := f.SyncHere(dataOnly); ok {
			return err
		}
	}
	// Begun before the reading is handed on, the sync finds more calls that wait: Go's scheduler runs
	// first what was made last.
	syncing := f.BeginSync(dataOnly, c.conn)
	c.wait()
	return syncing.Wait()
}

// wait must be called before the call waits for another goroutine.
func (c *Call) wait() {
	c.conn.Wait()
	c.waited = true
}

// settle must be called before what reads the data of a file, and is part of settleToChange. If many calls wait for it already, the call waits
// without its permit: else those who wait for one file would keep all others of the volume from theirs.
func (c *Call) settle(f *inode.File) error {
	for f.IsAwaited() {
		c.wait()
		f.WaitForData()
		if err := c.mayWaitAgain(); err != nil {
			return err
		}
	}
	return nil
}

// settleToChange must be called before what changes the data of a file. It is settle and awaitSnapshot.
func (c *Call) settleToChange(f *inode.File, long bool) error {
	for {
		if err := c.settle(f); err != nil {
			return err
		}
		waited, err := c.awaitSnapshot(f, long)
		if err != nil || !waited {
			return err
		}
	}
}

// settleToResize is settleToChange before the size is set.
func (c *Call) settleToResize(f *inode.File) error {
	return c.settleToChange(f, f.Volume.Snapshots.IsCutting() && f.ResizesLong())
}

// awaitSnapshot must be called before what changes a file. If a snapshot is about to begin, or captures the file as it was, the
// call waits without its permit. long is whether the change may take long by itself, see snapshot.Volume.EnterLong.
func (c *Call) awaitSnapshot(f *inode.File, long bool) (waited bool, err error) {
	return c.awaitSnapshotOf(f.Volume, &f.ID, long)
}

func (c *Call) awaitSnapshotOf(v *exports.Volume, file *disk.FileID, long bool) (waited bool, err error) {
	for {
		done := v.Snapshots.Awaited(file, long)
		if done == nil {
			return waited, nil
		}
		waited = true
		c.wait()
		<-done
		if err := c.mayWaitAgain(); err != nil {
			return waited, err
		}
	}
}

// awaitSnapshotAt is awaitSnapshot for what has a name in a directory, and is about to be removed or replaced: later the call would wait
// with the directory locked.
func (c *Call) awaitSnapshotAt(dir *inode.File, name []byte) error {
	if !dir.Volume.Snapshots.IsTaking() || checkName(name) != nil {
		return nil
	}
	id, err := dir.IDOf(name)
	if err != nil {
		return nil // there is nothing to be captured
	}
	_, err = c.awaitSnapshotOf(dir.Volume, &id, false)
	return err
}

// mayWaitAgain is MayWait after a wait.
func (c *Call) mayWaitAgain() error {
	if c.waited && !c.conn.MayWait(c.volume.ID, false) {
		return errGone
	}
	c.waited = false
	return nil
}

// blocks must be called before what is likely to wait for the disk, or takes as long as many calls, on
// a file of the call.
func (c *Call) blocks(f *inode.File) error {
	if err := c.settle(f); err != nil {
		return err
	}
	if !c.conn.MayWait(f.Volume.ID, true) {
		return errGone
	}
	c.waited = false
	return nil
}

// blocksToChange is blocks before what changes the file, see settleToChange.
func (c *Call) blocksToChange(f *inode.File, long bool) error {
	if err := c.settleToChange(f, long); err != nil {
		return err
	}
	return c.blocks(f)
}

// The files of a call's handles are opened here, as root. The last one determines the volume
// that the call is counted for, and the caller's identity.

// errGone means that the client has gone. The reply is not sent.
var errGone = errors.New("the client has gone")

// MayWait has the call, for the file of a handle, be one that may block: another goroutine may read
// the connection from here on. The methods that open a file do it, unless they say otherwise.
func (c *Call) MayWait(handle []byte) error {
	c.mustNotAct()
	if !c.conn.MayWait(locate.VolumeIn(handle), false) {
		return errGone
	}
	c.waited = false
	return nil
}

// Open opens the file of a handle for the rest of the call. With inode.AtOnce the call does not become one that may block if the
// file is cached, or with inode.Recent, its attributes are: those are then all that can be used.
func (c *Call) Open(handle []byte, use inode.Use, how ...inode.How) (*inode.File, error) {
	if !slices.Contains(how, inode.AtOnce) {
		if err := c.MayWait(handle); err != nil {
			return nil, err
		}
	}
	f, err := c.service.opener.Open(c.Client.Addr(), handle, use, how...)
	if errors.Is(err, inode.ErrBlocks) {
		return c.Open(handle, use)
	}
	if err != nil {
		return nil, err
	}
	return c.opened(f)
}

// opened counts the call for the file's volume, unless the volume refuses the client's port.
func (c *Call) opened(f *inode.File) (*inode.File, error) {
	c.Closes(f)
	v := f.Volume
	if !v.AllowsPort(c.Client) {
		return nil, syscall.EACCES
	}
	c.Served.Volume = &v.Served
	c.enter(v)
	return f, nil
}

// OpenHeld is Open of a file by what a client holds open, also if the file was removed. wait is whether the call may wait from here on,
// as one that writes does.
func (c *Call) OpenHeld(h *inode.Held, wait bool) (*inode.File, error) {
	v := h.Volume()
	c.mustNotAct()
	if wait {
		if !c.conn.MayWait(v.ID, false) {
			return nil, errGone
		}
		c.waited = false
	}
	if !v.Allows(c.Client.Addr()) {
		return nil, syscall.EACCES
	}
	f, err := h.File()
	if err != nil {
		return nil, err
	}
	if f, err = c.opened(f); err == nil && wait && v.Options.ReadOnly {
		return nil, exports.ErrReadOnly
	}
	return f, err
}

// Parent opens a directory's parent, as root: the caller may have no right to the parent.
// The caller of Parent must check with May that the client's user may search the directory.
func (c *Call) Parent(dir *inode.File) (*inode.File, error) {
	c.mustNotAct()
	if !dir.Attr.IsDir() {
		return nil, syscall.ENOTDIR
	}
	parent, err := c.service.opener.Parent(dir)
	if err == nil {
		c.Closes(parent)
	}
	return parent, err
}

// Of has the operations that follow be for a file that the call has opened: they are done
// as who the caller is in its volume.
func (c *Call) Of(f *inode.File) {
	if c.volume != f.Volume {
		c.enter(f.Volume)
	}
}

func (c *Call) enter(v *exports.Volume) {
	c.volume, c.id = v, c.service.users.Identity(v.Options.Squash(), c.UID, c.GID, c.Groups)
}

// Owns reports whether the caller owns a file.
func (c *Call) Owns(f *inode.File) bool { return f.Attr.UID == c.id.UID }

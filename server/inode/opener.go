package inode

import (
	"errors"
	"log/slog"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/podnas/podnas/internal/idle"
	"github.com/podnas/podnas/server/disk"
	"github.com/podnas/podnas/server/durable"
	"github.com/podnas/podnas/server/exports"
	"github.com/podnas/podnas/server/locate"
	"github.com/podnas/podnas/server/space"
)

// Opener opens files by their handles. Its methods may be called concurrently, on goroutines that
// act as the process: never in Users.As. Each File that they return must be closed.
type Opener struct {
	table   *exports.Table
	key     *locate.Key
	log     *slog.Logger
	inodes  inodes
	orphans orphans
	handles locate.Handles
	// NoAttrs is whether attributes are not remembered. It must be set before calls are served.
	NoAttrs  bool
	versions versions
	inside   *locate.Inside
	changes  *changeAttrs
	// Closed objects are reused, so that frequent calls allocate nothing.
	spare        sync.Pool // of *File
	spareListing sync.Pool // of *Listing

	syncer *durable.Syncer
	modes  modes

	stop     chan struct{}
	sweeping sync.WaitGroup
}

// NewOpener returns an Opener of the volumes in a table.
func NewOpener(table *exports.Table, key *locate.Key, log *slog.Logger) *Opener {
	o := &Opener{
		table:        table,
		key:          key,
		log:          log,
		changes:      newChanges(),
		inside:       locate.NewInside(),
		spare:        sync.Pool{New: func() any { return new(File) }},
		spareListing: sync.Pool{New: func() any { return new(Listing) }},
		syncer:       durable.New(log),
		stop:         make(chan struct{}),
	}
	o.inodes.init()
	for _, v := range table.Volumes() { // clients must notice a restart, RFC 1813 section 3.3.7
		v.Durable.NewVerifier()
	}
	o.sweeping.Go(o.sweep)
	inside := o.inside
	o.sweeping.Go(func() { inside.Age(o.stop) })
	if table.Only != nil {
		table.ReadsOwn(o.readOwn)
	}
	if table.Modes != "" {
		o.modes.open(table.Modes, table.Only != nil, log)
		if o.modes.some.Load() {
			o.sweeping.Go(o.restoreModes)
		}
	}
	return o
}

// Close closes all cached files; the last user of a file that is still in use closes it. Call it
// once.
func (o *Opener) Close() {
	close(o.stop)
	o.sweeping.Wait()
	o.inodes.close()
	o.orphans.close()
	o.modes.close()
}

// CacheCounts returns the counts of the caches.
func (o *Opener) CacheCounts() CacheCounts {
	return CacheCounts{o.inodes.counts(), o.handles.Counts(), o.table.IndexCounts()}
}

// sweep evicts idle entries.
func (o *Opener) sweep() {
	// Without an idle descriptor there is nothing to do each second.
	tick := time.NewTimer(filesSweep)
	defer tick.Stop()
	age := time.NewTimer(idle.UntilTick(time.Now(), locate.HandlesKept))
	defer age.Stop()
	for {
		select {
		case <-o.stop:
			return
		case <-o.inodes.idle:
			tick.Reset(filesSweep)
		case <-tick.C:
			unsynced, more := o.inodes.removeIdle()
			for _, f := range unsynced {
				o.syncer.Then(&f.File, f) // if it fails, the write verifier changes
			}
			if more {
				tick.Reset(filesSweep)
			}
		case now := <-age.C:
			age.Reset(idle.UntilTick(now, locate.HandlesKept))
			o.handles.Evict()
			o.table.SaveIndexes()
			o.table.RestIndexes()
		}
	}
}

// volumeOf finds the volume of a handle, and begins a call in it.
func (o *Opener) volumeOf(client netip.Addr, handle []byte) (*exports.Volume, disk.FileID, error) {
	id, file, err := o.key.Parse(handle)
	if err != nil {
		return nil, file, err
	}
	v, err := o.table.Find(id)
	switch {
	case err != nil:
		return nil, file, err
	case !v.Allows(client):
		return nil, file, unix.EACCES
	case !v.Begin():
		return nil, file, unix.ESTALE
	}
	return v, file, nil
}

// Root returns the handle of a volume's root directory. It does not block.
func (o *Opener) Root(v *exports.Volume) []byte { return o.key.Handle(v.ID, *v.Files.RootID()) }

// How is how Open and OpenIn open a file, besides what for. By default they wait for the disk, and Attr is what is there now.
type How uint8

const (
	// AtOnce does not block, with UseAttr or UseRead: the error is ErrBlocks if it would.
	AtOnce How = 1 << iota
	// Recent, with UseAttr, has Attr be remembered attributes, if they are. The kernel decides all the same what callers
	// may do, except for a file's owner: for the owner a change of the mode that somebody makes directly on the disk
	// counts after attrsKept. With AtOnce, too, the file may have no descriptor: only Attr, Volume and ID can be used.
	Recent
	// Removed, with UseRead or UseWrite, opens a file also if it was removed while a client had it open, and also to write in a volume
	// that clients may not change. The caller knows that somebody holds it, or may reclaim it.
	Removed
	// ToRestore is for a restore, also of a volume that clients may not change. Changes by the File, and by those that are opened
	// through it, are made while the volume is held, see snapshot.Volume.Hold. The caller holds it.
	ToRestore
)

func allOf(how []How) (all How) {
	for _, h := range how {
		all |= h
	}
	return all
}

// ErrBlocks is that a file can't be opened AtOnce.
var ErrBlocks = errors.New("to open the file may block")

// Open opens a client's handle for use. The error is ErrBadHandle, ESTALE (also for a directory outside of the volume),
// EACCES if the client may not use the volume, ENOTDIR with UseNames for what is no directory, EISDIR or EINVAL with
// UseRead and UseWrite for what is no regular file, exports.ErrReadOnly for a change if the volume is, and EAGAIN if it is not known yet
// where the file is.
func (o *Opener) Open(client netip.Addr, handle []byte, use Use, how ...How) (*File, error) {
	v, id, err := o.volumeOf(client, handle)
	if err != nil {
		return nil, err
	}
	return o.open(v, id, use, allOf(how))
}

// openWait is how long OpenIn looks for a file.
const openWait = time.Minute

// OpenIn is Open for what podnas does by itself, and can't be asked to try again: where an index is used it waits for that, at most for
// openWait. The zero FileID is that of the volume's root, and whose clients may use the volume is not looked at.
func (o *Opener) OpenIn(v *exports.Volume, id disk.FileID, use Use, how ...How) (*File, error) {
	if id.IsZero() {
		id = *v.Files.RootID()
	}
	for began := time.Now(); ; time.Sleep(10 * time.Millisecond) {
		if !v.Begin() {
			return nil, unix.ESTALE
		}
		f, err := o.open(v, id, use, allOf(how))
		if !errors.Is(err, unix.EAGAIN) || time.Since(began) > openWait {
			return f, err
		}
		select {
		case <-o.stop:
			return nil, err
		default:
		}
	}
}

// open opens a file of a volume in which a call has begun; Close, or an error, ends that call.
func (o *Opener) open(v *exports.Volume, id disk.FileID, use Use, how How) (f *File, err error) {
	if how&Recent != 0 {
		f, err = o.openRecent(v, id, how)
	} else {
		f, err = o.openFile(v, id, use, how)
	}
	if f == nil {
		v.Done()
		return nil, err
	}
	if err == nil && v.Options.ReadOnly && (use == UseNames || use == UseWrite) && how&(Removed|ToRestore) == 0 {
		err = exports.ErrReadOnly
	}
	if err == nil && use == UseNames {
		err = f.enterCharge()
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	f.ofHeld, f.restoring = how&Removed != 0, how&ToRestore != 0
	return f, nil
}

// openFile opens a file by a descriptor from the cache, or a new one.
func (o *Opener) openFile(v *exports.Volume, id disk.FileID, use Use, how How) (f *File, err error) {
	switch {
	case how&AtOnce != 0 && !v.FS.Quick:
	case use.isData() && how&Removed == 0 && o.inodes.isOrphan(fileKey{v.ID, id}): // whose descriptors are for who holds it
	default:
		f = o.openCached(v, id, use)
	}
	switch {
	case f != nil:
		return f, o.mustBeInside(f, how)
	case how&AtOnce != 0:
		return nil, ErrBlocks
	}
	o.inodes.misses.Add(1)
	if use.isData() {
		return o.openData(v, id, use, how)
	}
	return o.openAttr(v, id, use)
}

// openCached opens a file by a descriptor from the cache. It returns nil if there is none.
func (o *Opener) openCached(v *exports.Volume, id disk.FileID, use Use) *File {
	cached := o.inodes.get(v, &id, use)
	if cached == nil {
		return nil
	}
	f := o.newCached(v, id, use, cached)
	if use.isData() {
		return f // Stat returns ESTALE if it has been removed
	}
	f.enterNames()
	if use == UseNames && !v.Files.IsByIndex() && (f.charge != nil || v.Account == nil) {
		f.namesSeq = never // StatLocked looks, unless another call has: a twentieth of what a CREATE costs
		return f
	}
	var err error
	if f.Attr, err = f.Stat(); err == nil && countsLinks(&f.Attr) {
		return f
	}
	if err == nil || errors.Is(err, unix.ESTALE) { // removed on the disk itself
		o.inodes.drop(v, id)
	}
	f.leaveNames()
	o.inodes.release(cached)
	o.spare.Put(f)
	return nil
}

// openAttr opens a file for UseAttr or UseNames.
func (o *Opener) openAttr(v *exports.Volume, id disk.FileID, use Use) (*File, error) {
	now := o.inside.Now()
	d, err := o.find(v, id, use.flags())
	if errors.Is(err, unix.EACCES) && o.table.Only != nil && use == UseNames {
		var path disk.Descriptor
		if path, err = o.find(v, id, UseAttr.flags()|unix.O_DIRECTORY); err == nil {
			d, err = o.openOwn(v, id, path.FD(), use)
			path.Close()
		}
	}
	if use == UseNames && errors.Is(err, unix.ELOOP) { // a symbolic link
		err = unix.ENOTDIR
	}
	if err != nil {
		return nil, err
	}
	f := o.newFile(v, id, use, d)
	f.enterNames()
	if f.Attr, err = f.Stat(); err != nil {
		return f, err
	}
	if v.Files.IsByIndex() && f.Attr.IsDir() {
		o.inside.Put(&v.Files, &id, now) // a path from the root led to it
	}
	if err = o.mustBeInside(f, 0); err != nil || !countsLinks(&f.Attr) {
		return f, err
	}
	var c *space.Charge
	if use == UseNames && v.Account != nil {
		c = v.Account.Enter(v.FS.Inode(&f.Attr))
	}
	f.useCached(o.cache(v, id, use, f.own.Take(), c))
	if f.charge != nil { // Attr must be what the charge was settled with
		f.Attr, err = f.Stat()
	}
	return f, err
}

// openData opens a regular file for its data.
func (o *Opener) openData(v *exports.Volume, id disk.FileID, use Use, how How) (*File, error) {
	path, err := o.find(v, id, UseAttr.flags())
	if err != nil {
		return nil, err
	}
	defer path.Close()
	attr, err := look(v, path.FD(), nil)
	switch {
	case err != nil:
		return nil, err
	case attr.Nlink == 0, attr.Nlink == 1 && how&Removed == 0 && o.inodes.isOrphan(fileKey{v.ID, id}):
		return nil, unix.ESTALE
	case attr.IsDir():
		return nil, unix.EISDIR
	case !attr.IsRegular(): // to open a fifo or a device has effects
		return nil, unix.EINVAL
	}
	d, err := v.Files.Reopen(id, path.FD(), use.flags())
	if errors.Is(err, unix.EACCES) && o.table.Only != nil {
		d, err = o.openOwn(v, id, path.FD(), use)
	}
	if err != nil {
		return nil, err
	}
	var c *space.Charge
	if v.Account != nil {
		c = v.Account.Enter(v.FS.Inode(&attr))
		_, _ = look(v, d.FD(), c) // so that only changes are charged; the next stat returns the error
	}
	return o.newCached(v, id, use, o.cache(v, id, use, d, c)), nil
}

// newCached returns a File of a cached descriptor.
func (o *Opener) newCached(v *exports.Volume, id disk.FileID, use Use, cached *descriptor) *File {
	f := o.newFile(v, id, use, disk.Descriptor{})
	f.useCached(cached)
	return f
}

// useCached makes the file use a cached descriptor, and its charge if the call may change the
// file or a directory's names.
func (f *File) useCached(cached *descriptor) {
	f.cached, f.fd, f.since = cached, cached.fd, cached.Sample()
	if f.use != UseAttr {
		f.charge = cached.charge
	}
}

// countsLinks reports whether the attributes of an open file show when it is
// removed. btrfs does not count the links of directories.
func countsLinks(a *disk.Attr) bool { return !a.IsDir() || a.Nlink > 1 }

// newFile is a File of a volume in which a call has begun, with a descriptor that it then
// owns. Close gives its memory back.
func (o *Opener) newFile(v *exports.Volume, id disk.FileID, use Use, d disk.Descriptor) *File {
	f := o.spare.Get().(*File)
	*f = File{opener: o, Volume: v, ID: id, use: use, own: d, fd: d.FD()}
	return f
}

// find opens a file by its FileID. One that was removed while a client has it open is where such files
// are kept.
func (o *Opener) find(v *exports.Volume, id disk.FileID, flags int) (disk.Descriptor, error) {
	key := fileKey{v.ID, id}
	if !o.inodes.isOrphan(key) || !v.Files.IsByIndex() {
		return v.Files.Open(id, flags)
	}
	path, err := disk.OpenEntry(o.orphans.at(), key.name())
	if err != nil {
		return disk.Descriptor{}, unix.ESTALE
	}
	if err := v.Files.Verify(path.FD(), v.FS.NumberIn(&id), &id); err != nil {
		path.Close()
		return disk.Descriptor{}, unix.ESTALE
	}
	if flags&unix.O_PATH != 0 {
		return path, nil
	}
	defer path.Close()
	return disk.Reopen(path.FD(), flags)
}

// isInside reports whether a file is no directory, or is known to be inside its
// volume. One that is open with UseNames is a directory, and may have no Attr yet.
func (o *Opener) isInside(f *File) bool {
	if f.use != UseNames && !f.Attr.IsDir() || f.IsRoot() {
		return true
	}
	return o.inside.Has(&f.Volume.Files, &f.ID)
}

// mustBeInside returns ESTALE for a directory outside of its volume. It may wait for the disk, and with AtOnce returns ErrBlocks
// instead.
func (o *Opener) mustBeInside(f *File, how How) error {
	switch {
	case o.isInside(f):
		return nil
	case how&AtOnce != 0:
		return ErrBlocks
	}
	return o.inside.Find(&f.Volume.Files, &f.ID, f.fd)
}

// Parent opens the parent of an open directory. The error is ESTALE if the parent is not in the
// volume. The root's parent is the root, but that of snapshots is the root of their volume.
func (o *Opener) Parent(dir *File) (*File, error) {
	if of := dir.Volume.Of; of != nil && dir.IsRoot() {
		return o.OpenIn(of, disk.FileID{}, UseAttr)
	}
	if dir.IsRoot() {
		if !dir.Volume.Begin() {
			return nil, unix.ESTALE
		}
		return o.open(dir.Volume, dir.ID, UseAttr, 0)
	}
	parent, err := dir.openAt([]byte(".."), unix.O_PATH|unix.O_DIRECTORY, 0, unix.RESOLVE_NO_XDEV, false)
	switch {
	case errors.Is(err, unix.EXDEV), errors.Is(err, unix.ENOENT): // past what is mounted
		return nil, unix.ESTALE
	case err != nil:
		return nil, err
	}
	if err := o.mustBeInside(parent, 0); err != nil {
		parent.Close()
		return nil, err
	}
	return parent, nil
}

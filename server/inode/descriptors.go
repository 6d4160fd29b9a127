package inode

import (
	"cmp"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/podnas/podnas/server/disk"
	"github.com/podnas/podnas/server/durable"
	"github.com/podnas/podnas/server/exports"
	"github.com/podnas/podnas/server/locate"
	"github.com/podnas/podnas/server/space"
)

const (
	// filesMax limits the idle descriptors, even if the limit of the process is
	// higher.
	filesMax = 4096
	// filesIdle is how long an unused descriptor is kept: as long as the pauses
	// between two calls of a program that reads or writes.
	filesIdle = 5 * time.Second
	// filesSweep is the time between two sweeps for idle descriptors.
	filesSweep = time.Second
)

// Use is what a file is opened for.
type Use uint8

// What a file can be opened for.
const (
	UseAttr  Use = iota // its attributes, and names to look up: no effect on a fifo or a device
	UseNames            // a directory's names, to change and sync them
	UseRead             // a regular file's data
	UseWrite
	uses // how many there are
)

func (u Use) isData() bool { return u == UseRead || u == UseWrite }

// kind is how a descriptor for it is synced.
func (u Use) kind() durable.Kind {
	return [uses]durable.Kind{UseAttr: durable.Other, UseNames: durable.Names, UseRead: durable.Read, UseWrite: durable.Write}[u]
}

// flags are the flags for open(2).
func (u Use) flags() int {
	return [uses]int{
		UseAttr:  disk.PathOnly,
		UseNames: unix.O_RDONLY | unix.O_DIRECTORY,
		UseRead:  unix.O_RDONLY | unix.O_NOFOLLOW | unix.O_NONBLOCK,
		UseWrite: unix.O_RDWR | unix.O_NOFOLLOW | unix.O_NONBLOCK,
	}[u]
}

// descriptor is a descriptor. It is in use, idle, or closed.
type descriptor struct {
	durable.File // stays open until it is synced

	opener *Opener
	volume *exports.Volume
	inode  *inode
	use    Use
	own    disk.Descriptor
	fd     int // of own

	// The mu of the inode's shard guards these.
	users         int
	dropped       bool        // to be closed by its last user, and found by nobody else
	since         int64       // the sweep after which nobody has used it, if users is 0
	in            *idleFiles  // the shard's list that it is in; nil: it is not idle
	before, after *descriptor // in that list

	charge  *space.Charge // where the server counts
	written atomic.Bool
	born    atomic.Int64 // File.Birth; 0: nobody has asked
	looked  atomic.Bool  // by an ACCESS or READ, whose next one may find its attributes remembered
}

// init has the descriptor be synced with what it shares with the file's others.
func (f *descriptor) init() {
	var owner durable.Owner
	if f.opener.table.Only != nil {
		owner = f
	}
	f.Init(&f.volume.Durable, f.fd, f.use.kind(), &f.inode.state, owner)
}

// OpenToSync implements durable.Owner.
func (f *descriptor) OpenToSync() (disk.Descriptor, error) {
	return f.opener.openOwn(f.volume, f.inode.key.id, f.fd, UseRead)
}

// Synced implements durable.Told, for a file that the cache wants to close.
func (f *descriptor) Synced(error) { f.opener.inodes.release(f) }

// cache has a descriptor of a file be found by other calls, and returns it for use. If another call has one already, cache
// returns that one and closes this one. If too many idle ones must be synced before they are closed, it syncs one of them:
// otherwise writers would open files, and directories between them, faster than those can be synced and closed, and
// descriptors would run out.
func (o *Opener) cache(v *exports.Volume, id disk.FileID, use Use, d disk.Descriptor, charge *space.Charge) *descriptor {
	f, unsynced := o.cacheUnsynced(v, id, use, d, charge)
	if unsynced != nil {
		o.syncNow(unsynced)
	}
	return f
}

// syncNow syncs descriptors and ends their use. It may take long, so the caller must hold no lock, and act as the process.
func (o *Opener) syncNow(all ...*descriptor) {
	for _, f := range all {
		o.syncer.Now(&f.File)
		o.inodes.release(f)
	}
}

// cacheUnsynced is cache, but for the caller to pass unsynced to syncNow if it is not nil.
func (o *Opener) cacheUnsynced(v *exports.Volume, id disk.FileID, use Use, d disk.Descriptor, charge *space.Charge) (f, unsynced *descriptor) {
	t, key := &o.inodes, fileKey{v.ID, id}
	s, number := t.shardOf(&key)
	s.mu.Lock()
	i := s.enterLocked(&key, number)
	f = &descriptor{opener: o, volume: v, inode: i, use: use, fd: d.FD(), users: 1, charge: charge, own: d}
	first := i.open[use]
	if first != nil && first.volume == v {
		s.useLocked(first)
		s.leaveLocked(i)
		s.mu.Unlock()
		f.close()
		return first, nil
	}
	ended := t.dropLocked(s, first) // of an export that has ended
	i.open[use] = f
	f.init()
	if t.isOverLocked(s) {
		if unsynced = s.unsynced.first; unsynced != nil {
			s.useLocked(unsynced)
		}
	}
	s.mu.Unlock()
	ended.close()
	return f, unsynced
}

// descriptorsMax returns how many descriptors the process may have, 0 if that is not known.
func descriptorsMax() uint64 {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return 0
	}
	return limit.Cur
}

func (t *inodes) init() {
	t.idle = make(chan struct{}, 1)
	t.limit.Store(filesMax)
	if most := descriptorsMax(); most > 0 { // clients may hold as many: HeldMax; half is for connections and other files in use
		t.limit.Store(int64(min(filesMax, most/4)))
	}
}

// CacheCounts counts what an Opener keeps between calls.
type CacheCounts struct {
	Files   FileCounts
	Handles locate.HandleCounts
	Index   locate.IndexCounts
}

// FileCounts counts the files that are kept open between calls: those that clients hold open are not among them.
type FileCounts struct {
	Open, Limit           int
	Hits, Misses, Evicted uint64 // Evicted: closed for others although not idle
}

func (t *inodes) counts() FileCounts {
	n := FileCounts{Limit: int(t.limit.Load()), Misses: t.misses.Load(), Evicted: t.evicted.Load()}
	for i := range t.shards {
		s := &t.shards[i]
		s.mu.Lock()
		n.Open += s.idle.len + s.unsynced.len
		n.Hits += s.hits
		s.mu.Unlock()
	}
	return n
}

// get returns a cached descriptor for use, or nil if there is none.
func (t *inodes) get(v *exports.Volume, id *disk.FileID, use Use) *descriptor {
	key := fileKey{v.ID, *id}
	s, number := t.shardOf(&key)
	s.mu.Lock()
	defer s.mu.Unlock()
	i := s.findLocked(&key, number)
	if i == nil {
		return nil
	}
	f := i.open[use]
	if f == nil && (use == UseAttr || use == UseRead) { // a descriptor for more is good enough
		f = cmp.Or(i.open[UseWrite], i.open[UseRead])
	}
	if f == nil || f.volume != v { // of an export that has ended
		return nil
	}
	if use == UseNames {
		i.withNamesLocked()
	}
	s.useLocked(f)
	s.hits++
	return f
}

// useLocked is a use of a descriptor, until release.
//
// +checklocks:s.mu
func (s *shard) useLocked(f *descriptor) {
	if f.in != nil {
		f.in.remove(f)
	}
	f.users++
}

// retain is another use of a descriptor that is in use.
func (f *descriptor) retain() {
	f.inode.shard.mu.Lock()
	defer f.inode.shard.mu.Unlock()
	f.users++
}

// release ends the use of a descriptor. If too many are idle then, it closes the one of its shard that is so for longest.
func (t *inodes) release(f *descriptor) {
	s := f.inode.shard
	s.mu.Lock()
	closing := t.releaseLocked(s, f)
	s.mu.Unlock()
	closing.close()
}

// releaseLocked is release, but for the caller to close what it returns.
//
// +checklocks:s.mu
func (t *inodes) releaseLocked(s *shard, f *descriptor) (closing *descriptor) {
	f.users--
	switch {
	case f.users > 0:
		return nil
	case f.dropped:
		closing = f
	default:
		t.unusedLocked(s, f)
		if !t.isOverLocked(s) || s.idle.first == nil {
			return nil
		}
		closing = s.idle.first
		t.evicted.Add(1)
	}
	t.forgetLocked(s, closing)
	return closing
}

// isOverLocked reports whether a shard has more idle descriptors than it may.
//
// +checklocks:s.mu
func (t *inodes) isOverLocked(s *shard) bool {
	return int64(s.idle.len+s.unsynced.len) > max(t.limit.Load()/shardsMax, 1)
}

// unusedLocked begins the time that a descriptor is idle. Whether it must be synced does not change meanwhile: only who uses it
// writes or syncs.
//
// +checklocks:s.mu
func (t *inodes) unusedLocked(s *shard, f *descriptor) {
	f.since = t.sweeps.Load()
	if f.Unsynced() {
		s.unsynced.push(f)
	} else {
		s.idle.push(f)
	}
	if t.rest.Load() && t.rest.CompareAndSwap(true, false) {
		select {
		case t.idle <- struct{}{}:
		default: // sweep is told already
		}
	}
}

// close closes an unused descriptor that is not in the cache; nil is nothing. It may take long, so the
// caller must not hold the shard's lock.
func (f *descriptor) close() {
	if f == nil {
		return
	}
	f.own.Close()
	if f.charge != nil {
		var written string
		if f.written.Load() {
			written = f.inode.key.id.AsString()
		}
		f.charge.Leave(written)
	}
}

// forgetLocked has an unused descriptor be found by nobody, for the caller to close.
//
// +checklocks:s.mu
func (t *inodes) forgetLocked(s *shard, f *descriptor) {
	if f.in != nil {
		f.in.remove(f)
	}
	if f.inode.open[f.use] == f {
		f.inode.open[f.use] = nil
	}
	s.leaveLocked(f.inode)
}

// drop closes the descriptors of a removed file, so that its space is freed.
func (t *inodes) drop(v *exports.Volume, id disk.FileID) {
	for _, f := range t.takeOut(v, id) {
		f.close()
	}
}

// takeOut removes the descriptors of a removed file, which need no sync, from the cache, and returns those that nobody uses, for the caller
// to close.
func (t *inodes) takeOut(v *exports.Volume, id disk.FileID) (unused [uses]*descriptor) {
	if id.IsZero() {
		return unused
	}
	key := fileKey{v.ID, id}
	s, number := t.shardOf(&key)
	s.mu.Lock()
	defer s.mu.Unlock()
	if i := s.findLocked(&key, number); i != nil {
		for use, f := range i.open {
			unused[use] = t.dropLocked(s, f)
		}
	}
	return unused
}

// takeOutIdle is takeOut of a file that has lost a name, and may have others. Then an unsynced descriptor must stay, and so must one that
// a call uses, which may write by it. left is one of these, for the caller to look at and to release; nil: there is none.
func (t *inodes) takeOutIdle(v *exports.Volume, id disk.FileID) (unused [uses]*descriptor, left *descriptor) {
	if id.IsZero() {
		return unused, nil
	}
	key := fileKey{v.ID, id}
	s, number := t.shardOf(&key)
	s.mu.Lock()
	defer s.mu.Unlock()
	i := s.findLocked(&key, number)
	if i == nil {
		return unused, nil
	}
	for use, f := range i.open {
		if f != nil && (f.users > 0 || f.Unsynced()) {
			left = f
		} else {
			unused[use] = t.dropLocked(s, f)
		}
	}
	if left != nil {
		s.useLocked(left)
	}
	return unused, left
}

// hasName reports whether the file, which is in use, has a name. A directory has lost its only one.
func (f *descriptor) hasName() bool {
	var st unix.Stat_t
	if err := unix.Fstat(f.fd, &st); err != nil || st.Mode&unix.S_IFMT == unix.S_IFDIR {
		return false
	}
	return st.Nlink > 1 || st.Nlink == 1 && !f.inode.orphan.Load()
}

// dropLocked removes an unused descriptor from the cache and returns it, for the caller to close. One
// that is in use is not found any more, and its last user closes it: dropLocked returns nil.
//
// +checklocks:s.mu
func (t *inodes) dropLocked(s *shard, f *descriptor) *descriptor {
	if f == nil {
		return nil
	}
	f.dropped, f.inode.open[f.use] = true, nil
	if f.users > 0 {
		return nil
	}
	t.forgetLocked(s, f)
	return f
}

// removeIdle closes descriptors that were idle for too long. It is called every filesSweep while there are
// more idle ones. It returns those that must be synced before, for the caller to sync and release.
func (t *inodes) removeIdle() (unsynced []*descriptor, more bool) {
	t.rest.Store(true) // what becomes idle from here on asks for another sweep
	sweep := t.sweeps.Add(1)
	for n := range t.shards {
		var idle []*descriptor
		s := &t.shards[n]
		s.mu.Lock()
		for f := s.idle.firstSince(sweep); f != nil; f = s.idle.firstSince(sweep) {
			t.forgetLocked(s, f)
			idle = append(idle, f)
		}
		for f := s.unsynced.firstSince(sweep); f != nil; f = s.unsynced.firstSince(sweep) {
			if f.volume.HasEnded() {
				t.forgetLocked(s, f)
				idle = append(idle, f)
				continue
			}
			s.useLocked(f)
			unsynced = append(unsynced, f)
		}
		more = more || s.idle.len+s.unsynced.len > 0
		if len(idle) > 0 && len(s.inodes) == 0 {
			s.inodes = nil // a map keeps the memory of its largest size
		}
		s.mu.Unlock()
		for _, f := range idle {
			f.close()
		}
	}
	if more {
		t.rest.Store(false)
	}
	return unsynced, more
}

// idleFiles is a list of cached descriptors that nobody uses, the least recently used first. A descriptor goes in and out
// with each call, so the list's links are in descriptor, and allocate nothing. The mu of the list's shard guards it.
type idleFiles struct {
	first, last *descriptor
	len         int
}

// push puts a descriptor at the end.
func (l *idleFiles) push(f *descriptor) {
	f.in, f.before, f.after = l, l.last, nil
	if l.last != nil {
		l.last.after = f
	} else {
		l.first = f
	}
	l.last = f
	l.len++
}

// remove takes a descriptor out that is in the list.
func (l *idleFiles) remove(f *descriptor) {
	if f.before != nil {
		f.before.after = f.after
	} else {
		l.first = f.after
	}
	if f.after != nil {
		f.after.before = f.before
	} else {
		l.last = f.before
	}
	f.in, f.before, f.after = nil, nil, nil
	l.len--
}

// firstSince returns the first descriptor if it was idle for too long at a sweep, or else nil.
func (l *idleFiles) firstSince(sweep int64) *descriptor {
	if f := l.first; f != nil && sweep-f.since > int64(filesIdle/filesSweep) {
		return f
	}
	return nil
}

// close closes what nobody uses; the last user of another descriptor closes it.
func (t *inodes) close() {
	var open, unused []*descriptor
	for n := range t.shards {
		s := &t.shards[n]
		s.mu.Lock()
		for _, i := range s.inodes {
			for ; i != nil; i = i.next {
				open = append(open, i.open[:]...)
			}
		}
		for _, f := range open {
			unused = append(unused, t.dropLocked(s, f))
		}
		s.mu.Unlock()
		open = open[:0]
	}
	for _, f := range unused {
		f.close()
	}
}

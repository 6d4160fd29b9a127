package locate

import (
	"errors"
	"slices"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/podnas/podnas/server/disk"
)

// A directory that somebody moved out of its volume, directly on the disk, still has a
// valid handle. It must not give access to its new surroundings, so before a directory
// is opened by its handle, podnas checks that its parents lead to the volume's root.
// Clients can't move a directory out of its volume, so the result is cached for a
// moment: a directory in use costs additional system calls only once a second.

const (
	// insideAge is half of the maximum time in the cache.
	insideAge = time.Second
	// insideMax is how many directories are cached, a power of 2.
	insideMax = 4096
	// leapMax is how many levels one system call goes up: as many as fit into a path,
	// PATH_MAX, and a power of 2.
	leapMax = 1024
	// leapsMax bounds the system calls of one check. It allows directories that are
	// nested 200,000 deep.
	leapsMax = 256
	// leapsFew are allowed to all calls at once. Longer checks run one at a time per
	// volume: the kernel takes half a microsecond per level.
	leapsFew = 12
)

// Inside caches directories that are known to be in their volumes. Its methods may be called concurrently.
type Inside struct {
	now   atomic.Uint32 // ages since the start, without the time in which nothing was cached
	aging atomic.Bool   // something may be cached, and Age is to come
	begin chan struct{} // for Age: aging was set
	found [insideMax]atomic.Pointer[insideDir]
}

type insideDir struct {
	key insideKey
	at  atomic.Uint32 // when it was checked
}

type insideKey struct {
	volume *Volume
	id     disk.FileID
}

// NewInside returns an empty Inside.
func NewInside() *Inside {
	return &Inside{begin: make(chan struct{}, 1)}
}

// Now returns the age that Put takes for a directory that is looked at from now on.
func (i *Inside) Now() uint32 { return i.now.Load() }

func (i *Inside) slot(key *insideKey) *atomic.Pointer[insideDir] {
	sum := key.id.Fold() + key.volume.ID
	return &i.found[sum%insideMax]
}

// Has reports whether a directory is known to be in its volume.
func (i *Inside) Has(v *Volume, id *disk.FileID) bool {
	_, ok := i.get(v, id)
	return ok
}

// get returns when a directory was found in its volume, if that is still valid.
func (i *Inside) get(v *Volume, id *disk.FileID) (at uint32, ok bool) {
	key := insideKey{v, *id}
	d := i.slot(&key).Load()
	if d == nil || d.key != key {
		return 0, false
	}
	at = d.at.Load()
	return at, i.now.Load()-at <= 1
}

// Put remembers that a directory was found in its volume at a time.
func (i *Inside) Put(v *Volume, id *disk.FileID, at uint32) {
	key := insideKey{v, *id}
	slot := i.slot(&key)
	if d := slot.Load(); d != nil && d.key == key {
		d.at.Store(at)
		return
	}
	d := &insideDir{key: key}
	d.at.Store(at)
	slot.Store(d)
	if !i.aging.Swap(true) {
		select {
		case i.begin <- struct{}{}:
		default: // Age is told already
		}
	}
}

// Age ages the entries until stop, while there are some.
func (i *Inside) Age(stop <-chan struct{}) {
	for {
		select {
		case <-stop:
			return
		case <-i.begin:
		}
		tick := time.NewTicker(insideAge)
		for some := true; some; {
			select {
			case <-stop:
				tick.Stop()
				return
			case <-tick.C:
				i.aging.Store(false) // before the look: Put sets it after adding an entry
				if some = i.removeOld(); some {
					i.aging.Store(true)
				}
			}
		}
		tick.Stop()
	}
}

// removeOld begins the next age, and reports whether there are still entries.
func (i *Inside) removeOld() (some bool) {
	now := i.now.Add(1)
	for n := range i.found {
		d := i.found[n].Load()
		if d == nil {
			continue
		}
		if now-d.at.Load() > 1 {
			i.found[n].CompareAndSwap(d, nil) // unless it was found again
		} else {
			some = true
		}
	}
	return some
}

// Find goes up from an open directory until it meets the volume's root, or a cached
// directory of the volume, and remembers it; else the error is ESTALE. A result from a cached directory gets that directory's
// age.
//
// It leaps: the first leap is one level, each further one twice as long, until one
// ends above the root; then they get shorter. So it takes some ten system calls if
// directories are not nested deeply, and a few more per thousand levels. Not checked: climbing is locked only by some.
//
// +checklocksignore
func (i *Inside) Find(v *Volume, f *disk.FileID, fd int) error {
	now := i.now.Load()
	above, err := v.above(now)
	if err != nil {
		return err
	}
	if above.has(f) {
		return unix.ESTALE
	}
	at, last := fd, *f
	var up disk.Descriptor // where at is, above f
	defer up.Close()
	far := false // a leap was too long
	levels := 1
	climbing := false
	defer func() {
		if climbing {
			v.climbing.Unlock()
		}
	}()
	for n := range leapsMax {
		if n == leapsFew {
			v.climbing.Lock()
			climbing = true
			if _, known := i.get(v, f); known { // the previous check has found it
				return nil
			}
		}
		next, id, err := v.ancestor(at, levels)
		if err == nil {
			seen, known := i.get(v, &id)
			if id == v.rootID {
				seen, known = now, true
			}
			if known {
				next.Close()
				i.Put(v, f, seen)
				return nil
			}
		}
		// Past a mount's root: EXDEV, or ENOENT from what is not below it.
		tooFar := errors.Is(err, unix.EXDEV) || errors.Is(err, unix.ENOENT)
		if err == nil && (above.has(&id) || id == last) {
			next.Close()
			tooFar = true
		}
		switch {
		case tooFar && levels == 1:
			return unix.ESTALE
		case tooFar:
			far = true
			levels /= 2
		case err != nil:
			return err
		default:
			up.Close()
			up = next
			at, last = up.FD(), id
			if !far {
				levels = min(2*levels, leapMax)
			}
		}
	}
	return unix.ENAMETOOLONG
}

// ancestor opens the directory some levels above another, on the same mount.
func (v *Volume) ancestor(dir, levels int) (disk.Descriptor, disk.FileID, error) {
	var path [3*leapMax + 1]byte // ends with 0
	for i := range levels {
		copy(path[3*i:], "../")
	}
	how := unix.OpenHow{
		Flags:   unix.O_PATH | unix.O_DIRECTORY | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_NO_XDEV | unix.RESOLVE_NO_MAGICLINKS,
	}
	fd, _, errno := unix.Syscall6(unix.SYS_OPENAT2, uintptr(dir), uintptr(unsafe.Pointer(&path)),
		uintptr(unsafe.Pointer(&how)), unix.SizeofOpenHow, 0, 0)
	if errno != 0 {
		return disk.Descriptor{}, disk.FileID{}, errno
	}
	d := disk.Owned(int(fd))
	id, err := v.finder.Identify(d.FD(), nil)
	if err != nil {
		d.Close()
		return disk.Descriptor{}, disk.FileID{}, err
	}
	return d, id, nil
}

// above has the directories above a volume's root, on its mount.
type above struct {
	at  uint32
	ids []disk.FileID
}

func (a *above) has(id *disk.FileID) bool { return slices.Contains(a.ids, *id) }

// above returns the directories above the root. It caches them for the same time as
// other directories.
func (v *Volume) above(now uint32) (*above, error) {
	if a := v.aboveRoot.Load(); a != nil && a.at == now {
		return a, nil
	}
	a := &above{at: now}
	at, last := int(v.Root.Fd()), v.rootID
	var up disk.Descriptor // where at is, above the root
	defer up.Close()
	for len(a.ids) < leapsMax {
		next, id, err := v.ancestor(at, 1)
		if errors.Is(err, unix.EXDEV) || errors.Is(err, unix.ENOENT) {
			v.aboveRoot.Store(a)
			return a, nil
		}
		if err != nil {
			return nil, err
		}
		if id == last { // "/"
			next.Close()
			v.aboveRoot.Store(a)
			return a, nil
		}
		a.ids = append(a.ids, id)
		up.Close()
		up = next
		at, last = up.FD(), id
	}
	return nil, unix.ENAMETOOLONG
}

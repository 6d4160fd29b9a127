package export

import (
	"errors"
	"hash/maphash"
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

// inside caches directories that are known to be in their volumes.
type inside struct {
	seed  maphash.Seed
	now   atomic.Uint32 // ages since the start, without the time in which nothing was cached
	aging atomic.Bool   // something may be cached, and age is to come
	begin chan struct{} // for age: aging was set
	found [insideMax]atomic.Pointer[insideDir]
}

type insideDir struct {
	key fileKey
	at  atomic.Uint32 // when it was checked
}

func (i *inside) slot(key *fileKey) *atomic.Pointer[insideDir] {
	sum := key.id.Hash(i.seed) + key.volume.ID
	return &i.found[sum%insideMax]
}

// get returns when a directory was found in its volume, if that is still valid.
func (i *inside) get(v *Volume, id *disk.FileID) (at uint32, ok bool) {
	key := fileKey{v, *id}
	d := i.slot(&key).Load()
	if d == nil || d.key != key {
		return 0, false
	}
	at = d.at.Load()
	return at, i.now.Load()-at <= 1
}

func (i *inside) put(v *Volume, id *disk.FileID, at uint32) {
	key := fileKey{v, *id}
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
		default: // age is told already
		}
	}
}

// age ages the entries until stop, while there are some.
func (i *inside) age(stop <-chan struct{}) {
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
				i.aging.Store(false) // before the look: put sets it after adding an entry
				if some = i.removeOld(); some {
					i.aging.Store(true)
				}
			}
		}
		tick.Stop()
	}
}

// removeOld begins the next age, and reports whether there are still entries.
func (i *inside) removeOld() (some bool) {
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

// isInside reports whether a file is no directory, or is known to be inside its
// volume. One that is open with UseNames is a directory, and may have no Attr yet.
func (o *Opener) isInside(f *File) bool {
	if f.use != UseNames && !f.Attr.IsDir() || f.IsRoot() {
		return true
	}
	_, ok := o.inside.get(f.Volume, &f.ID)
	return ok
}

// mustBeInside returns f, unless it is a directory outside of its volume: then it
// closes f and returns ESTALE. It may wait for the disk.
func (o *Opener) mustBeInside(f *File) (*File, error) {
	if o.isInside(f) {
		return f, nil
	}
	if err := o.findInside(f); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// findInside goes up from a directory until it meets the volume's root, or a cached
// directory of the volume. A result from a cached directory gets that directory's
// age.
//
// It leaps: the first leap is one level, each further one twice as long, until one
// ends above the root; then they get shorter. So it takes some ten system calls if
// directories are not nested deeply, and a few more per thousand levels.
func (o *Opener) findInside(f *File) error {
	v := f.Volume
	now := o.inside.now.Load()
	above, err := v.above(now)
	if err != nil {
		return err
	}
	if above.has(&f.ID) {
		return unix.ESTALE
	}
	at, last := f.fd, f.ID
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
			if _, known := o.inside.get(v, &f.ID); known { // the previous check has found it
				return nil
			}
		}
		next, id, err := v.ancestor(at, levels)
		if err == nil {
			seen, known := o.inside.get(v, &id)
			if id == v.rootID {
				seen, known = now, true
			}
			if known {
				next.Close()
				o.inside.put(v, &f.ID, seen)
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
	if a := v.over.Load(); a != nil && a.at == now {
		return a, nil
	}
	a := &above{at: now}
	at, last := int(v.root.Fd()), v.rootID
	var up disk.Descriptor // where at is, above the root
	defer up.Close()
	for len(a.ids) < leapsMax {
		next, id, err := v.ancestor(at, 1)
		if errors.Is(err, unix.EXDEV) || errors.Is(err, unix.ENOENT) {
			v.over.Store(a)
			return a, nil
		}
		if err != nil {
			return nil, err
		}
		if id == last { // "/"
			next.Close()
			v.over.Store(a)
			return a, nil
		}
		a.ids = append(a.ids, id)
		up.Close()
		up = next
		at, last = up.FD(), id
	}
	return nil, unix.ENAMETOOLONG
}

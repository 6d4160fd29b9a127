package export

import (
	"errors"
	"sync"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// described is a file by which its handle is remembered: a number that is used
// again comes with another time of birth.
type described struct {
	volume uint64 // its ID
	device uint64 // a snapshot on btrfs has the same numbers and times
	ino    uint64
	sec    int64 // of birth
	nsec   uint32
}

// handles remembers handles: to list a directory, or look up a name, one system
// call is enough then in place of two or more.
type handles struct {
	mu sync.Mutex
	// What is in young was used since old was: old is given up when young is full,
	// or after a while.
	young, old map[described]rememberedHandle
	count      HandleCounts
}

// HandleCounts are of the handles that are remembered.
type HandleCounts struct {
	Remembered   int
	Hits, Misses uint64
}

func (h *handles) counts() HandleCounts {
	h.mu.Lock()
	defer h.mu.Unlock()
	n := h.count
	n.Remembered = len(h.young) + len(h.old) // one that is in both counts twice
	return n
}

type rememberedHandle struct {
	n     uint8
	bytes [HandleMax]byte
}

const (
	// handlesMax is how many handles each of young and old has, about 120 bytes
	// each.
	handlesMax = 32 << 10
	// handlesKept is how long young is kept, and then old, at least.
	handlesKept = time.Minute
	// bornBefore is how long ago a file must have been made: files made within a
	// tick of the kernel's clock have the same time of birth.
	bornBefore = 100 * time.Millisecond
)

// append appends the handle of a file, ok false if it is not remembered.
func (h *handles) append(b []byte, d described) (_ []byte, ok bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	r, ok := h.young[d]
	if !ok {
		if r, ok = h.old[d]; !ok {
			h.count.Misses++
			return b, false
		}
		h.put(d, r)
	}
	h.count.Hits++
	return append(b, r.bytes[:r.n]...), true
}

// remember keeps a handle.
func (h *handles) remember(d described, handle []byte) {
	r := rememberedHandle{n: uint8(len(handle))}
	copy(r.bytes[:], handle)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.put(d, r)
}

// put is for who holds h.mu.
func (h *handles) put(d described, r rememberedHandle) {
	if len(h.young) >= handlesMax {
		h.age()
	}
	if h.young == nil {
		h.young = map[described]rememberedHandle{}
	}
	h.young[d] = r
}

// age is for who holds h.mu.
func (h *handles) age() { h.old, h.young = h.young, nil }

// forget gives up what was not used for a while. It is called every handlesKept.
func (h *handles) forget() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.age()
}

// mountOf tells which mount an open file is in, 0 if the kernel does not say (before
// Linux 5.8).
func mountOf(fd int) uint64 {
	var empty byte
	var st unix.Statx_t
	if err := statx(fd, &empty, unix.AT_EMPTY_PATH, unix.STATX_MNT_ID, &st); err != nil || st.Mask&unix.STATX_MNT_ID == 0 {
		return 0
	}
	return st.Mnt_id
}

// Describe tells the attributes of what has a name in the directory, and appends
// its handle, as Lookup would.
func (f *File) Describe(name, handle []byte) (Attr, []byte, error) {
	a, handle, err := f.describe(name, handle)
	if !errors.Is(err, errLookUp) {
		return a, handle, err
	}
	child, err := f.Lookup(name)
	if err != nil {
		return Attr{}, handle, err
	}
	defer child.Close()
	at := len(handle)
	handle = child.AppendHandle(handle)
	var empty byte
	var st unix.Statx_t
	if err := statx(child.fd, &empty, unix.AT_EMPTY_PATH, describing, &st); err == nil && lasting(&st) {
		f.opener.handles.remember(f.described(&st), handle[at:])
	}
	return child.Attr, handle, nil
}

// errLookUp says that it takes more to find out.
var errLookUp = errors.New("to be looked up")

// describe is Describe of a file whose handle is remembered, or can be had by the
// file's name, or that is not there.
func (f *File) describe(name, handle []byte) (Attr, []byte, error) {
	var path [unix.NAME_MAX + 1]byte // ends with 0
	if f.Volume.mount == 0 || !ValidName(name) || copy(path[:unix.NAME_MAX], name) < len(name) {
		return Attr{}, handle, errLookUp
	}
	var st unix.Statx_t
	err := statx(f.fd, &path[0], unix.AT_SYMLINK_NOFOLLOW|unix.AT_NO_AUTOMOUNT, describing, &st)
	if errors.Is(err, unix.ENOENT) {
		return Attr{}, handle, unix.ENOENT
	}
	if err != nil || st.Mnt_id != f.Volume.mount {
		return Attr{}, handle, errLookUp
	}
	at := len(handle)
	handle, ok := f.opener.handles.append(handle, f.described(&st))
	switch {
	case ok:
	case f.Volume.disk.fs == 0:
		return Attr{}, handle, errLookUp
	default:
		// The name may be another file's by now, which has another number, as long as the
		// one that was looked at is there. If not, it may have its number: then the reply
		// tells of both, a moment apart, and what is remembered is found by the time of
		// birth of the one that is gone, so never.
		id, err := nameToHandle(f.fd, &path[0], 0)
		if err != nil || f.Volume.disk.numberIn(&id) != st.Ino {
			return Attr{}, handle, errLookUp
		}
		handle = f.opener.key.AppendHandle(handle, f.Volume.ID, id)
		if lasting(&st) {
			f.opener.handles.remember(f.described(&st), handle[at:])
		}
	}
	return attrOfStatx(&st), handle, nil
}

// describing is what statx(2) is asked for.
const describing = unix.STATX_BASIC_STATS | unix.STATX_BTIME | unix.STATX_MNT_ID

// lasting tells whether no other file can have the same described, now or later.
func lasting(st *unix.Statx_t) bool {
	return st.Mask&unix.STATX_BTIME != 0 && time.Since(time.Unix(st.Btime.Sec, int64(st.Btime.Nsec))) > bornBefore
}

func (f *File) described(st *unix.Statx_t) described {
	return described{f.Volume.ID, unix.Mkdev(st.Dev_major, st.Dev_minor), st.Ino, st.Btime.Sec, st.Btime.Nsec}
}

// statx is statx(2); that of x/sys allocates the name.
func statx(dir int, name *byte, flags, mask int, st *unix.Statx_t) error {
	_, _, errno := unix.Syscall6(unix.SYS_STATX, uintptr(dir), uintptr(unsafe.Pointer(name)), uintptr(flags), uintptr(mask), uintptr(unsafe.Pointer(st)), 0)
	if errno != 0 {
		return errno
	}
	return nil
}

func attrOfStatx(st *unix.Statx_t) Attr {
	return Attr{
		Mode:  uint32(st.Mode),
		Nlink: st.Nlink,
		UID:   st.Uid,
		GID:   st.Gid,
		Size:  int64(st.Size),
		Used:  st.Blocks * 512,
		Ino:   st.Ino,
		Major: st.Rdev_major,
		Minor: st.Rdev_minor,
		Atime: time.Unix(st.Atime.Sec, int64(st.Atime.Nsec)),
		Mtime: time.Unix(st.Mtime.Sec, int64(st.Mtime.Nsec)),
		Ctime: time.Unix(st.Ctime.Sec, int64(st.Ctime.Nsec)),

		device: unix.Mkdev(st.Dev_major, st.Dev_minor),
	}
}

package locate

import (
	"encoding/binary"
	"errors"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/podnas/podnas/internal/tree"
	"github.com/podnas/podnas/server/disk"
)

// walks are the walks of a volume that fill its index, one at a time.
type walks struct {
	mu sync.Mutex
	// +checklocks:mu
	running bool // one is under way, or will begin
	// +checklocks:mu
	walking bool // one is under way
	// complete is whether the index has all files, so that what it does not know does not exist.
	// +checklocks:mu
	complete bool
	// +checklocks:mu
	doubts uint64 // counts signs of changes directly on the disk
	// +checklocks:mu
	begun uint64 // how many walks
	// +checklocks:mu
	ended uint64
	// +checklocks:mu
	next time.Time // not before that
	// +checklocks:mu
	asked map[uint64]uint64 // inodes that were not found, with the walk that answers whether they exist
	// +checklocks:mu
	found map[uint64]dirEntry // those of them that this walk has seen, as the index may forget them again
	moved []uint64            // directories that were renamed during this walk
	done  chan struct{}       // closed when a walk ends
}

const (
	// askedMax bounds what is remembered of files that were not found.
	askedMax = 4096
	// askWait is how long a call waits for a walk, until the client is asked to.
	askWait = 200 * time.Millisecond
	// Walks that answer questions use the disk for a fifth of the time.
	walkPause    = time.Second
	walkPauseFor = 4 // times as long as the walk before
	// A walk works for some time, then pauses as long, unless a client waits for it. If names were loaded,
	// few will, and it pauses loadedPauseFor times as long.
	walkWork       = 5 * time.Millisecond
	walkRest       = 100 * time.Millisecond
	loadedPauseFor = 4
	// walksAtOnce is how many volumes are walked concurrently.
	walksAtOnce = 4
)

// dirEntry is a name in a directory, by which the index has a file.
type dirEntry struct {
	parent uint64
	name   string
	isDir  bool
	in     *pending // the parent, if a walk has seen it
}

// see notes where a file is that was asked for.
func (w *walks) see(ino uint64, p dirEntry) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, asked := w.asked[ino]; asked {
		w.found[ino] = p
	}
}

// init is for before anybody else has w.
//
// +checklocksignore
func (w *walks) init() {
	w.asked, w.done = map[uint64]uint64{}, make(chan struct{})
}

// doubt says that somebody seems to have changed the disk directly, as a file is not where it was. What
// was asked of the file before is of no use.
func (w *walks) doubt(ino uint64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.doubts++
	w.complete = false
	delete(w.asked, ino)
}

// answer is what is known of a file that is not found.
type answer int

const (
	walkPending  answer = iota // the client must wait for a walk
	walkEnded                  // look again
	walkAnswered               // it does not exist
)

// ask asks whether a file exists that is not found.
func (x *Index) ask(ino uint64) answer {
	w := &x.walks
	w.mu.Lock()
	if w.complete && x.names.Losses() == x.losses {
		w.mu.Unlock()
		return walkAnswered
	}
	due, asked := w.asked[ino]
	if asked && w.ended >= due {
		delete(w.asked, ino)
		w.mu.Unlock()
		return walkAnswered
	}
	if !asked && len(w.asked) < askedMax {
		w.asked[ino] = w.begun + 1
	}
	x.startLocked()
	done := w.done
	w.mu.Unlock()
	wait := time.NewTimer(askWait)
	defer wait.Stop()
	select {
	case <-done:
		return walkEnded
	case <-wait.C:
	case <-x.volume.calls.Ending():
	}
	return walkPending
}

// startLocked has a walk begin, unless there is one.
//
// +checklocks:x.walks.mu
func (x *Index) startLocked() {
	if w := &x.walks; !w.running {
		w.running = true
		go x.walk(time.Until(w.next))
	}
}

// fill loads the names that are kept, and begins the first walk.
func (x *Index) fill() {
	x.walks.mu.Lock()
	defer x.walks.mu.Unlock()
	x.walks.running = true
	go func() {
		x.load()
		x.walk(0)
	}()
}

// walk walks the volume, until all questions are answered.
func (x *Index) walk(pause time.Duration) {
	v, w := x.volume, &x.walks
	for {
		select {
		case <-time.After(pause):
		case <-v.calls.Ending():
			return
		}
		select {
		case v.indexes.Walks <- struct{}{}:
		case <-v.calls.Ending():
			return
		}
		again := x.WalkOnce()
		<-v.indexes.Walks
		w.mu.Lock()
		pause = time.Until(w.next)
		w.running = again
		w.mu.Unlock()
		if !again {
			x.save()
			return
		}
	}
}

// WalkOnce walks once. again is whether another walk is needed.
func (x *Index) WalkOnce() (again bool) {
	v, w := x.volume, &x.walks
	if !v.calls.Begin() {
		return false
	}
	defer v.calls.Done()
	began := time.Now()
	w.mu.Lock()
	w.begun++
	w.walking, w.moved, w.found = true, nil, map[uint64]dirEntry{}
	doubts, n := w.doubts, w.begun
	w.mu.Unlock()
	losses := x.names.Losses()
	x.names.Unsee()
	all := x.walkAll(losses)
	if v.hasEnded() {
		return false
	}
	surprise := false
	if all && x.names.RemoveUnseen() > 0 {
		surprise = n > 1 // what was not there was removed directly on the disk, or moved behind the walk
	}
	took := time.Since(began)
	w.mu.Lock()
	found := w.found
	w.found = nil
	w.mu.Unlock()
	var buf [256]byte
	for ino, p := range found {
		x.remember(p.in) // or its path is not known
		x.names.Add(ino, p.parent, []byte(p.name), p.isDir)
		x.names.Name(ino, 0, &buf) // which makes it one that was used
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for ino := range found {
		delete(w.asked, ino)
	}
	w.ended, w.next = n, time.Now().Add(walkPause+walkPauseFor*took)
	w.complete = all && !surprise && doubts == w.doubts && losses == x.names.Losses()
	x.losses = losses
	close(w.done)
	w.done = make(chan struct{})
	if n == 1 {
		names, bytes := x.names.Size()
		x.log.Info("nfs: indexed the names of a volume", "volume", v.Path, "names", names, "bytes", bytes, "took", took.Round(time.Millisecond))
	}
	if w.complete {
		clear(w.asked)
		return false
	}
	for ino, due := range w.asked {
		if _, _, found := x.names.Name(ino, 0, &buf); found {
			delete(w.asked, ino)
		} else if due > n {
			again = true
		}
	}
	return again
}

// walkAll walks the tree. It finds each directory by the index, which follows renames through the
// server. It returns false if it could not see all. losses is how many names the index had forgotten before: since then it
// may have forgotten directories that are pending.
func (x *Index) walkAll(losses uint64) (all bool) {
	all = true
	var at way
	at.enter(&pending{ino: x.volume.rootIno})
	var moved []uint64
	buf := make([]byte, 64<<10)
	since := time.Now()
	for {
		dir := at.next()
		if dir == nil {
			if moved = x.movedSince(moved); len(moved) == 0 {
				return all
			}
			at.enter(&pending{ino: moved[0]})
			moved = moved[1:]
			continue
		}
		if x.volume.hasEnded() {
			return false
		}
		if x.names.Losses() != losses {
			x.remember(dir.pending)
		}
		if err := x.readOn(dir, buf, at.room()); err != nil {
			dir.unread = false
			all = all && x.gone(dir.ino)
		}
		at.hold(dir)
		if worked := time.Since(since); worked > walkWork {
			if !x.awaited() {
				rest := min(worked, walkRest)
				if x.loaded.Load() {
					rest *= loadedPauseFor
				}
				time.Sleep(rest)
			}
			since = time.Now()
		}
	}
}

// movedSince returns the directories that are still to be walked because they were renamed during the walk. If there are none,
// the walk ends: of renames after that it need not know.
func (x *Index) movedSince(left []uint64) []uint64 {
	if len(left) > 0 {
		return left
	}
	w := &x.walks
	w.mu.Lock()
	defer w.mu.Unlock()
	left, w.moved = w.moved, nil
	w.walking = len(left) > 0
	return left
}

// readOn reads the names in a directory, from where it has stopped: at its end, or when more than so many bytes are to be entered.
func (x *Index) readOn(dir *branch, buf []byte, most int) error {
	d, err := x.openDir(dir.ino)
	if err != nil {
		return err
	}
	defer d.Close()
	if dir.offset != 0 {
		if _, err := unix.Seek(d.FD(), dir.offset, unix.SEEK_SET); err != nil {
			return err
		}
	}
	if most == 0 {
		buf = buf[:4<<10] // only the next directory is wanted
	}
	return x.addNames(d.FD(), dir, buf, most)
}

// remember adds a directory to the index again, and those above it, if the index has forgotten them. If one was removed meanwhile, the
// walk does not find it, and another one follows.
func (x *Index) remember(dir *pending) {
	var buf [256]byte
	for ; dir.in != nil; dir = dir.in {
		if _, _, ok := x.names.Name(dir.ino, 0, &buf); !ok {
			x.names.Add(dir.ino, dir.in.ino, []byte(dir.name), true)
			x.names.Name(dir.ino, 0, &buf) // which makes it one that was used
		}
	}
}

// gone reports whether a directory was removed through the server.
func (x *Index) gone(dir uint64) bool {
	var buf [256]byte
	_, _, ok := x.names.Name(dir, 0, &buf)
	return !ok && dir != x.volume.rootIno
}

func (x *Index) awaited() bool {
	x.walks.mu.Lock()
	defer x.walks.mu.Unlock()
	return len(x.walks.asked) > 0
}

// openDir opens a directory of the index to read its names.
func (x *Index) openDir(ino uint64) (disk.Descriptor, error) {
	d, err := x.dirNow(ino)
	for n := 0; n < renameTries && errors.Is(err, errMoved); n++ {
		renames := x.renames.Load()
		time.Sleep(renamePause)
		if d, err = x.dirNow(ino); renames == x.renames.Load() && x.renaming.Load() == 0 {
			break
		}
	}
	return d, err
}

func (x *Index) dirNow(ino uint64) (disk.Descriptor, error) {
	path, err := x.byName(ino, 0)
	if err != nil {
		return path, err
	}
	defer path.Close()
	var empty byte
	var st unix.Statx_t
	if err := disk.Statx(path.FD(), &empty, unix.AT_EMPTY_PATH, unix.STATX_INO, &st); err != nil {
		return disk.Descriptor{}, err
	}
	if x.volume.FS.Number(disk.InodeOfStatx(&st)) != ino || !x.volume.Holds(&st) {
		return disk.Descriptor{}, errMoved
	}
	return disk.Reopen(path.FD(), unix.O_RDONLY|unix.O_DIRECTORY)
}

// addNames adds the names of an open directory to the index, and its subdirectories to those to be entered. It stops
// when they take more than so many bytes, where offsets stay the same while names come and go.
func (x *Index) addNames(dir int, in *branch, buf []byte, most int) error {
	direct, ino := x.volume.FS.Dirents, in.ino
	for {
		removals, asked := x.names.Removals(), x.awaited()
		n, err := unix.Getdents(dir, buf)
		if n <= 0 || err != nil {
			in.unread = false
			return err
		}
		for b := buf[:n]; len(b) > 0; {
			e := tree.DirentIn(b)
			b = b[e.Size:]
			// Names with one hash have one offset on ext4. To read on from there would return them again.
			goesOn := e.Next != in.offset
			in.offset = e.Next
			if string(e.Name) == "." || string(e.Name) == ".." {
				continue
			}
			if !direct || e.Kind == unix.DT_UNKNOWN {
				_, st, err := x.look(dir, string(e.Name))
				if errors.Is(err, unix.ENOENT) {
					continue
				}
				if err != nil && st.Ino == 0 {
					return err
				}
				e.Ino, e.Kind = st.Ino, 0
				if st.Mode&unix.S_IFMT == unix.S_IFDIR {
					e.Kind = unix.DT_DIR
				}
			}
			isDir := e.Kind == unix.DT_DIR
			if !x.learn(dir, ino, e.Name, e.Ino, isDir, removals) {
				continue
			}
			if isDir {
				in.below.add(e.Ino, e.Name)
			}
			if asked {
				x.walks.see(e.Ino, dirEntry{ino, string(e.Name), isDir, in.pending})
			}
			if direct && goesOn && len(in.below) > most {
				return nil
			}
		}
	}
}

// learn adds a name that was seen in an open directory after removals was read. It returns false if
// that name is not there any more.
func (x *Index) learn(dir int, parent uint64, name []byte, ino uint64, isDir bool, removals uint64) bool {
	for range 3 {
		if x.names.AddIf(removals, ino, parent, name, isDir) {
			return true
		}
		removals = x.names.Removals()
		_, st, err := x.look(dir, string(name))
		if err != nil && st.Ino == 0 || st.Ino != ino {
			return false
		}
	}
	x.names.Add(ino, parent, name, isDir) // if it is wrong, it is found to be
	return true
}

// repair looks where the index has a file, or a directory above it, but it is not: in that directory
// it may have another name. again is whether it was found.
func (x *Index) repair(ino uint64) (again bool, err error) {
	for range repairsMax {
		var entries []dirEntry
		var buf [256]byte
		for nth := 0; nth < namesMax; nth++ {
			parent, name, ok := x.names.Name(ino, nth, &buf)
			if !ok {
				break
			}
			entries = append(entries, dirEntry{parent: parent, name: string(name)})
		}
		above := uint64(0)
		for _, p := range entries {
			dir, err := x.openDir(p.parent)
			switch {
			case errors.Is(err, errMoved), errors.Is(err, errUnknown):
				above = p.parent
				continue
			case err != nil:
				return false, err
			}
			found, err := x.lookIn(dir.FD(), p.parent, []byte(p.name), ino)
			dir.Close()
			if err != nil {
				return false, err
			}
			again = again || found
		}
		if again || above == 0 {
			return again, nil
		}
		ino = above
	}
	return false, nil
}

// lookIn looks for a file in the directory where the index has it with a name, and corrects that. A client may move the file back
// meanwhile: the name that it has then stays.
func (x *Index) lookIn(dir int, parent uint64, name []byte, ino uint64) (found bool, err error) {
	x.names.Suspect(ino, parent, name)
	removals := x.names.Removals()
	if _, st, err := x.look(dir, string(name)); st.Ino == ino {
		x.learn(dir, parent, name, ino, st.Mode&unix.S_IFMT == unix.S_IFDIR, removals) // another call may be about to remove it
		return true, err
	}
	buf := make([]byte, 64<<10)
	for !found {
		n, err := unix.Getdents(dir, buf)
		if err != nil {
			return false, err
		}
		if n <= 0 {
			break
		}
		for b := buf[:n]; len(b) > 0 && !found; {
			e := tree.DirentIn(b)
			b = b[e.Size:]
			if e.Ino != ino && x.volume.FS.Dirents || !disk.ValidName(e.Name) {
				continue
			}
			_, st, _ := x.look(dir, string(e.Name))
			if st.Ino == ino {
				found = x.learn(dir, parent, e.Name, ino, st.Mode&unix.S_IFMT == unix.S_IFDIR, removals)
			}
		}
	}
	trusted := x.names.RemoveSuspect(ino, parent, name)
	return found || trusted, nil
}

// pending is a directory that a walk is in, and where the walk has seen it.
type pending struct {
	ino  uint64
	name string
	in   *pending // nil: its name is not known, or it is the root
}

// branch is a directory that a walk is in, and what is still to be done there.
type branch struct {
	*pending
	below  unentered
	unread bool  // there are more names, from offset
	offset int64 // in the directory, see getdents64(2)
}

// unentered has the subdirectories that are still to be entered, each as its name, its inode's number, and the length of its
// name: there can be millions of them.
type unentered []byte

func (u *unentered) add(ino uint64, name []byte) {
	*u = binary.NativeEndian.AppendUint16(binary.NativeEndian.AppendUint64(append(*u, name...), ino), uint16(len(name)))
}

// next removes the last one. There must be one.
func (u *unentered) next() (ino uint64, name string) {
	b := *u
	lengthAt := len(b) - 2
	numberAt := lengthAt - 8
	start := numberAt - int(binary.NativeEndian.Uint16(b[lengthAt:]))
	ino, name = binary.NativeEndian.Uint64(b[numberAt:]), string(b[start:numberAt])
	if *u = b[:start]; start == 0 {
		*u = nil // its memory, too
	}
	return ino, name
}

// belowMax is how many bytes of subdirectories that are still to be entered a walk holds in all, and one more in each directory on its
// way. If there are more, it enters those, and then reads on in the directory. A directory gets half of what those above it have left.
const belowMax = 128 << 10

// way is where a walk is: the directories from where it has begun to the current one.
type way struct {
	dirs []branch
	held int // bytes that the below of all of them take
}

func (w *way) enter(p *pending) { w.dirs = append(w.dirs, branch{pending: p, unread: true}) }

// next goes to the directory whose names are to be read next. It returns nil at the end of the walk.
func (w *way) next() *branch {
	for len(w.dirs) > 0 {
		at := &w.dirs[len(w.dirs)-1]
		switch {
		case len(at.below) > 0:
			takes := cap(at.below)
			ino, name := at.below.next()
			w.held -= takes - cap(at.below)
			w.enter(&pending{ino, name, at.pending})
		case at.unread:
			return at
		default:
			*at = branch{}
			w.dirs = w.dirs[:len(w.dirs)-1]
		}
	}
	return nil
}

// room is how many bytes the directory that next has returned may hold; it may go beyond it once.
func (w *way) room() int { return max(belowMax-w.held, 0) / 2 }

// hold counts what was read in the directory that next has returned.
func (w *way) hold(dir *branch) { w.held += cap(dir.below) }

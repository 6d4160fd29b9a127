package inode

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/podnas/podnas/internal/statedir"
	"github.com/podnas/podnas/server/disk"
	"github.com/podnas/podnas/server/exports"
	"github.com/podnas/podnas/server/snapshot"
)

// openOwn opens a file of the only user, which is open as path, although its mode does not let its
// owner. A client that has made a file may write it whatever its mode, and the server does not see
// opens; names in a directory may be changed by who may not read it; and what has just been made
// without a right for anybody is synced. Root needs no right for any of these. Another owner gets it
// by the mode, for a moment, of which there is a record, see modes.
func (o *Opener) openOwn(v *exports.Volume, id disk.FileID, path int, use Use) (d disk.Descriptor, err error) {
	wants := uint32(unix.S_IRUSR)
	if use == UseWrite {
		wants |= unix.S_IWUSR
	}
	err = o.widened(v, id, path, wants, func() (err error) {
		d, err = disk.Reopen(path, use.flags())
		return err
	})
	if err != nil {
		d.Close()
	}
	return d, err
}

// readOwn returns how snapshots of a volume read files of the only user that their owner may not read.
func (o *Opener) readOwn(v *exports.Volume) *snapshot.Own {
	return &snapshot.Own{
		Still: func(do func()) {
			o.modes.mu.Lock()
			defer o.modes.mu.Unlock()
			do()
		},
		Read: func(id disk.FileID, path int, do func() error) error {
			return o.widened(v, id, path, unix.S_IRUSR|unix.S_IXUSR, do)
		},
	}
}

// widened calls do while the mode of a file of the only user gives its owner the rights that are wanted, that to search it if it
// is a directory.
func (o *Opener) widened(v *exports.Volume, id disk.FileID, path int, wants uint32, do func() error) error {
	m := &o.modes
	m.mu.Lock()
	defer m.mu.Unlock()
	// A file has one record at a time: of two that a kill leaves, one would take what the other has added for the mode.
	if r, ok := m.left[fileKey{v.ID, id}]; ok {
		if err := o.undoLocked(v, path, r); err != nil {
			return err
		}
	}
	attr, err := look(v, path, nil)
	switch {
	case err != nil:
		return err
	case m.dir == nil || attr.UID != o.table.Only.UID:
		return unix.EACCES
	case !attr.IsDir():
		wants &^= unix.S_IXUSR
	}
	r := modeRecord{fileKey{v.ID, id}, attr.Mode & allModes, wants &^ attr.Mode}
	if r.added == 0 {
		return do()
	}
	if err := m.recordLocked(r); err != nil {
		return err
	}
	m.did("recorded")
	return o.changeInside(v, func() error { return o.whileWide(v, path, r, do) }, &id) // the mode is as before at the end
}

// whileWide calls do while a file has the bits of a record, which is on the disk. The caller has locked
// modes.mu. Not checked: checklocks can't follow it into change.
//
// +checklocksignore
func (o *Opener) whileWide(v *exports.Volume, path int, r modeRecord, do func() error) error {
	m := &o.modes
	if err := unix.Chmod(disk.ProcPath(path), r.mode|r.added); err != nil {
		return errors.Join(err, m.dropLocked(r))
	}
	m.did("widened")
	err := do()
	if undone := errors.Join(m.narrow(path, r), m.settle(v, path)); undone != nil {
		m.leaveLocked(r) // to the next process
		return undone
	}
	m.did("narrowed")
	if undone := m.dropLocked(r); undone != nil {
		m.leaveLocked(r)
	}
	m.did("dropped")
	return err
}

// A mode that is widened for a moment (openOwn) must not stay so if the process is killed in that moment. So before
// there is a record on the disk: a file without content, whose name says which file of which volume had which mode, and
// which bits it gets. The next process takes these bits away again. It does not if the mode
// is another one by then, or as soon as a client has set it.

// allModes are the bits that chmod(2) sets, and byWrite those that a write takes away.
const (
	allModes = 0o7777
	byWrite  = unix.S_ISUID | unix.S_ISGID
)

// modes are the modes that are changed for a moment.
type modes struct {
	// mu is held while that is done, over all its system calls: a client's chmod must come before or after it. They are
	// few, and it is rare.
	mu  sync.Mutex
	dir *statedir.Dir // with the records; nil: no mode is changed. Set by NewOpener.
	// left are records of what is not undone yet, mostly by a process before.
	// +checklocks:mu
	left map[fileKey]modeRecord
	some atomic.Bool  // left has one
	step func(string) // called after each step, if set by a test
}

// modeRecord is the mode of a file, and the bits that it got besides.
type modeRecord struct {
	key         fileKey
	mode, added uint32
}

// spareRecord is the name of a record of nothing: on a full disk a file can be renamed.
const spareRecord = "none"

func (r *modeRecord) name() string { return fmt.Sprintf("%s-%04o-%03o", r.key.name(), r.mode, r.added) }

// parseModeRecord is the reverse of modeRecord.name.
func parseModeRecord(name string) (r modeRecord, ok bool) {
	parts := strings.Split(name, "-")
	if len(parts) != 4 {
		return r, false
	}
	key, ok := parseFileKey(parts[0] + "-" + parts[1])
	mode, modeErr := strconv.ParseUint(parts[2], 8, 32)
	added, addedErr := strconv.ParseUint(parts[3], 8, 32)
	r = modeRecord{key, uint32(mode), uint32(added)}
	return r, ok && modeErr == nil && addedErr == nil && r.name() == name && r.mode&^allModes == 0 && r.added&^(unix.S_IRUSR|unix.S_IWUSR|unix.S_IXUSR) == 0
}

func (m *modes) did(what string) {
	if m.step != nil {
		m.step(what)
	}
}

// open opens the directory of records. If modes are to be changed, it is made if it is not there. Nobody else has
// m yet.
//
// +checklocksignore
func (m *modes) open(dir string, change bool, log *slog.Logger) {
	m.left = map[fileKey]modeRecord{}
	if _, err := os.Lstat(dir); errors.Is(err, os.ErrNotExist) && !change {
		return
	}
	d, err := statedir.Open(dir, nil, log)
	if err != nil { // as on a full disk
		log.Warn("nfs: files whose modes keep podnas's own user from them can't be opened for their owner", "err", err)
		return
	}
	names, err := d.Names()
	if err != nil {
		log.Warn("nfs: modes that were wider for a moment when podnas was killed can't be put right; the next start tries again", "err", err)
	}
	m.dir = d
	for _, name := range names {
		r, ok := parseModeRecord(name)
		irregular := d.Check(name)
		switch {
		case irregular != nil && (ok || name == spareRecord):
			if err := d.SetAside(name, irregular); err != nil {
				log.Warn("nfs: what is no record of a file's mode can't be put aside", "err", err)
			}
		case ok:
			m.leaveLocked(r)
		case name != spareRecord:
			log.Warn("nfs: this is no record of a file's mode: remove it", "file", filepath.Join(dir, name))
		}
	}
}

// close is for when nobody opens a file any more.
func (m *modes) close() {
	if m.dir != nil {
		_ = m.dir.Close() // a directory, nothing to lose
	}
}

// recordLocked writes a record.
//
// +checklocks:m.mu
func (m *modes) recordLocked(r modeRecord) error {
	dir, name := m.dir.Fd(), r.name()
	err := unix.Renameat(dir, spareRecord, dir, name)
	if errors.Is(err, unix.ENOENT) {
		var fd int
		fd, err = unix.Openat(dir, name, unix.O_WRONLY|unix.O_CREAT|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0o600)
		if err == nil {
			err = unix.Close(fd)
		}
	}
	if err == nil {
		err = unix.Fsync(dir)
	}
	if err != nil {
		return fmt.Errorf("record the mode of a file: %w", err)
	}
	return nil
}

// dropLocked removes a record.
//
// +checklocks:m.mu
func (m *modes) dropLocked(r modeRecord) (err error) {
	asRoot(func() {
		dir := m.dir.Fd()
		err = unix.Renameat(dir, r.name(), dir, spareRecord)
	})
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	return err
}

// leaveLocked has a record stay.
//
// +checklocks:m.mu
func (m *modes) leaveLocked(r modeRecord) {
	m.left[r.key] = r
	m.some.Store(true)
}

// forgetLocked ends what leaveLocked began.
//
// +checklocks:m.mu
func (m *modes) forgetLocked(r modeRecord) error {
	if err := m.dropLocked(r); err != nil {
		return err
	}
	delete(m.left, r.key)
	m.some.Store(len(m.left) > 0)
	return nil
}

// narrow takes the bits of a record away from an open file, unless the file has another mode than the record gave it.
// A write may have taken the set-user-ID bit meanwhile, which does not come back.
func (m *modes) narrow(path int, r modeRecord) error {
	var st unix.Stat_t
	if err := unix.Fstat(path, &st); err != nil {
		return err
	}
	if (st.Mode^(r.mode|r.added))&allModes&^byWrite != 0 {
		return nil
	}
	return unix.Chmod(disk.ProcPath(path), st.Mode&allModes&^r.added)
}

// settle has the mode be on the disk before the record can be gone from it. A journal has both in their order.
func (m *modes) settle(v *exports.Volume, path int) error {
	var st, dir unix.Stat_t
	if err := errors.Join(unix.Fstat(path, &st), unix.Fstat(m.dir.Fd(), &dir)); err != nil {
		return err
	}
	if v.FS.Journal && st.Dev == dir.Dev {
		return nil
	}
	return unix.Syncfs(int(v.Files.Root.Fd()))
}

// restoreModes puts right what is left of processes before.
func (o *Opener) restoreModes() {
	m := &o.modes
	m.mu.Lock()
	left := slices.Collect(maps.Values(m.left))
	m.mu.Unlock()
	for _, r := range left {
		select {
		case <-o.stop:
			return
		default:
		}
		if err := o.restoreMode(r); err != nil {
			o.log.Warn("nfs: the mode of a file can't be put right, which was wider for a moment when podnas was killed; the next start tries again",
				"record", filepath.Join(m.dir.Name(), r.name()), "err", err)
		}
	}
}

func (o *Opener) restoreMode(r modeRecord) error {
	v, ok := o.table.ByID(r.key.volume)
	if !ok {
		return errors.New("its volume is not served")
	}
	f, err := o.OpenIn(v, r.key.id, UseAttr)
	if err == nil {
		defer f.Close()
	}
	m := &o.modes
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case m.left[r.key] != r: // a client has set the mode
		return nil
	case errors.Is(err, unix.ESTALE): // the file is gone
		return m.forgetLocked(r)
	case err != nil:
		return err
	}
	return o.undoLocked(v, f.fd, r)
}

// undoLocked takes the bits of a record away from an open file, and ends the record.
//
// +checklocks:o.modes.mu
func (o *Opener) undoLocked(v *exports.Volume, path int, r modeRecord) error {
	m := &o.modes
	err := o.changeInside(v, func() error { return errors.Join(m.narrow(path, r), m.settle(v, path)) }, &r.key.id)
	if err == nil {
		err = m.forgetLocked(r)
	}
	return err
}

// set does a client's chmod of a file. What is left to be undone is not from then on.
func (m *modes) set(key fileKey, chmod func() error) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := chmod(); err != nil {
		return err
	}
	if r, ok := m.left[key]; ok {
		return m.forgetLocked(r)
	}
	return nil
}

package vfs

import (
	"syscall"

	"github.com/podnas/podnas/server/export"
)

// Handing a call to a worker takes longer than most operations. So calls that need no thread
// with the caller's identity are executed on the connection's goroutine, which is root: those
// of root, and those that the caller is known to have the right for. That is known of a file's
// owner: the mode's bits for the owner decide, whatever ACL there is (acl(5), "ACCESS CHECK
// ALGORITHM"). All other calls need a worker, also those that read data that is not in memory.

// knows reports whether this goroutine knows what the caller may do with a file.
func (t *Task) knows(a *export.Attr) bool {
	return t.worker || t.service.workers.Only() || t.id.UID == 0 || t.id.UID == a.UID
}

// May reports whether the caller may use a file that is open with UseAttr or UseNames, in
// the ways of File.Access. If known is false, only a worker can decide.
func (t *Task) May(f *export.File, mode uint32) (may, known bool) {
	if !t.knows(&f.Attr) {
		return false, false
	}
	switch {
	case t.worker || t.service.workers.Only():
		return f.Access(mode) == nil, true
	case mode&export.MayWrite != 0 && !t.someMayWrite(f):
		return false, true
	case t.IsCaller():
		// Root may do everything else, except execute a file that no user may execute.
		return mode&export.MayExec == 0 || f.Attr.IsDir() || f.Attr.Mode&0o111 != 0, true
	case t.id.UID == 0:
		return f.Access(mode) == nil, true
	}
	return f.Attr.Mode>>6&mode == mode, true
}

// someMayWrite is false for an immutable file, and one on a read-only disk, which no user may write. The
// kernel is asked once in a call: OPEN of version 4 and the ACCESS after it both want to know.
func (t *Task) someMayWrite(f *export.File) bool {
	if t.writable != f {
		if f.Access(export.MayWrite) != nil {
			return false
		}
		t.writable = f
	}
	return true
}

// The rights that ACCESS asks for, with the numbers that they have in all versions: RFC 1813
// section 3.3.4, RFC 8881 section 18.1.
const (
	rightRead = 1 << iota
	rightLookup
	rightModify
	rightExtend
	rightDelete
	rightExecute
)

// Rights returns which of the rights that are asked for the caller has to a file that is open with
// UseAttr, as the kernel says, and apply, which of them there are for such a file: only a directory
// has those to look up and to delete. If known is false, only a worker can decide.
func (t *Task) Rights(f *export.File, asked uint32) (rights, apply uint32, known bool) {
	// Of what may be changed, a directory's names also take the right to search
	// it, and nothing goes in a volume that is read only.
	read, change, execute := uint32(rightRead), uint32(rightModify|rightExtend), uint32(rightExecute)
	mayChange := uint32(export.MayWrite)
	if f.Attr.IsDir() {
		change, execute = change|rightDelete, rightLookup
		mayChange |= export.MayExec
	}
	apply = asked & (read | change | execute)
	if f.Volume.Options.ReadOnly {
		change = 0
	}
	for _, right := range [...]struct{ bits, mode uint32 }{
		{read, export.MayRead}, {change, mayChange}, {execute, export.MayExec},
	} {
		if asked&right.bits == 0 {
			continue
		}
		may, known := t.May(f, right.mode)
		if !known {
			return 0, 0, false
		}
		if may {
			rights |= asked & right.bits
		}
	}
	return rights, apply, true
}

// mayUse reports whether the caller may read or write a file's data, with the attributes that it has. The owner
// always may: it had the right when it opened the file, and the server of version 3 does not see opens. Every
// server does so. The right to execute a file includes reading it: to execute is to read. If known is false,
// only a worker can decide.
func (t *Task) mayUse(f *export.File, a *export.Attr, mode uint32) (known bool, err error) {
	switch {
	case a.UID == t.id.UID, f.Granted(&t.id, mode, a):
		return true, nil
	case !t.IsCaller():
		return false, nil
	}
	err = f.Access(mode)
	if err != nil && mode == export.MayRead && f.Access(export.MayExec) == nil {
		err = nil
	}
	if err == nil {
		f.Grant(&t.id, mode, a)
	}
	return true, err
}

// Opened remembers that the caller has the rights to read, or write, a file that it has opened. The attributes are from
// before they were checked.
func (t *Task) Opened(h *export.Held, a *export.Attr, read, write bool) {
	if a.UID == t.id.UID {
		return
	}
	if read {
		h.Grant(&t.id, export.MayRead, a)
	}
	if write {
		h.Grant(&t.id, export.MayWrite, a)
	}
}

// denied is EAGAIN if another client denies what the caller is about to do: a share
// reservation of version 4, RFC 8881 section 9.7. The caller may try again later.
func (t *Task) denied(f *export.File, write bool) error {
	if d := t.service.denied; d != nil && !t.SharesChecked && d(f.Volume, f.ID, write) {
		return syscall.EAGAIN
	}
	return nil
}

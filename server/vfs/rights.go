package vfs

import (
	"slices"
	"syscall"

	"github.com/podnas/podnas/server/actas"
	"github.com/podnas/podnas/server/disk"
	"github.com/podnas/podnas/server/inode"
)

// To act as the caller takes longer than most operations. So it is done only where it is not known
// what the caller may do: that is known of root, and of a file's owner, for whom the mode's bits for
// the owner decide, whatever ACL there is (acl(5), "ACCESS CHECK ALGORITHM").

// May reports whether the caller may use a file that is open with UseAttr or UseNames, in
// the ways of File.Access.
func (c *Call) May(f *inode.File, mode uint32) bool {
	if may, known := c.knownMay(f, mode); known {
		return may
	}
	ways := []uint32{mode}
	if f.Attr.IsRegular() { // OPEN of version 4, and the ACCESS after it, want to know the others, too
		ways = []uint32{mode, inode.MayRead, inode.MayWrite, inode.MayExec}
	}
	return c.askKernel(f, ways) == nil && c.told.may.has(mode)
}

// told is in which ways the caller may use a file, as the kernel has told.
type told struct {
	file       *inode.File
	asked, may modes
}

// modes is a set of modes of File.Access.
type modes uint8

func (m *modes) add(mode uint32)     { *m |= 1 << mode }
func (m modes) has(mode uint32) bool { return m&(1<<mode) != 0 }

// askKernel asks the kernel for those ways to use a file, 0 for none, that this call has not been told of yet.
func (c *Call) askKernel(f *inode.File, ways []uint32) error {
	if c.told.file != f {
		c.told = told{file: f}
	}
	t := &c.told
	isTold := func(mode uint32) bool { return mode == 0 || t.asked.has(mode) }
	if !slices.ContainsFunc(ways, func(mode uint32) bool { return !isTold(mode) }) {
		return nil
	}
	return c.AsCaller(func(u actas.Thread) error {
		for _, mode := range ways {
			if isTold(mode) {
				continue
			}
			if t.asked.add(mode); f.Access(u, mode) == nil {
				t.may.add(mode)
			}
		}
		return nil
	})
}

// Forget has May and Rights ask the kernel again. It must be called before them if the call has changed
// a file since, or has taken a while.
func (c *Call) Forget() { c.told, c.writable = told{}, nil }

// knownMay is May without acting as the caller, if that is known.
func (c *Call) knownMay(f *inode.File, mode uint32) (may, known bool) {
	switch {
	case c.service.users.Only():
		return f.Access(actas.AsProcess(), mode) == nil, true
	case c.id.UID != 0 && c.id.UID != f.Attr.UID:
		return false, false
	case mode&inode.MayWrite != 0 && !c.someMayWrite(f):
		return false, true
	case c.isProcess():
		// Root may do everything else, except execute a file that no user may execute.
		return mode&inode.MayExec == 0 || f.Attr.IsDir() || f.Attr.Mode&0o111 != 0, true
	case c.id.UID == 0:
		return f.Access(actas.AsProcess(), mode) == nil, true
	}
	return f.Attr.Mode>>6&mode == mode, true
}

// someMayWrite is false for an immutable file, and one on a read-only disk, which no user may write. The
// kernel is asked once in a call: OPEN of version 4 and the ACCESS after it both want to know.
func (c *Call) someMayWrite(f *inode.File) bool {
	if c.writable != f {
		if f.Access(actas.AsProcess(), inode.MayWrite) != nil {
			return false
		}
		c.writable = f
	}
	return true
}

// The rights that ACCESS asks for, with the numbers that they have in all versions: RFC 1813
// section 3.3.4, RFC 8881 section 18.1, RFC 8276 section 8.5.
const (
	rightRead = 1 << iota
	rightLookup
	rightModify
	rightExtend
	rightDelete
	rightExecute
	rightXattrRead
	rightXattrWrite
	rightXattrList
)

const rightsOfXattrs = rightXattrRead | rightXattrWrite | rightXattrList

// Rights returns which of the rights that are asked for the caller has to a file that is open with
// UseAttr, as the kernel says, and apply, which of them there are for such a file: only a directory
// has those to look up and to delete.
func (c *Call) Rights(f *inode.File, asked uint32) (rights, apply uint32, err error) {
	// Of what may be changed, a directory's names also take the right to search
	// it, and nothing goes in a volume that is read only.
	read, change, execute := uint32(rightRead), uint32(rightModify|rightExtend), uint32(rightExecute)
	mayChange := uint32(inode.MayWrite)
	if f.Attr.IsDir() {
		change, execute = change|rightDelete, rightLookup
		mayChange |= inode.MayExec
	}
	setXattr := uint32(0)
	if asked&rightsOfXattrs != 0 && (f.Attr.IsDir() || f.Attr.IsRegular()) {
		read, setXattr = read|rightXattrRead|rightXattrList, rightXattrWrite
	}
	apply = asked & (read | change | execute | setXattr)
	if f.Volume.Options.ReadOnly {
		change, setXattr = 0, 0
	}
	questions := [...]question{{read & asked, inode.MayRead}, {change & asked, mayChange}, {execute & asked, inode.MayExec}, {setXattr & asked, inode.MayWrite}}
	if _, known := c.knownMay(f, 0); known {
		return answered(&questions, func(mode uint32) bool { return c.May(f, mode) }), apply, nil
	}
	var ways [len(questions)]uint32
	for i, q := range questions {
		if q.rights != 0 {
			ways[i] = q.mode
		}
	}
	if err := c.askKernel(f, ways[:]); err != nil {
		return 0, apply, err
	}
	return answered(&questions, c.told.may.has), apply, nil
}

// question is what takes one right, mode, of File.Access.
type question struct{ rights, mode uint32 }

func answered(questions *[4]question, may func(mode uint32) bool) (rights uint32) {
	for _, q := range questions {
		if q.rights != 0 && may(q.mode) {
			rights |= q.rights
		}
	}
	return rights
}

// mayUse is nil if the caller may read or write a file's data, with the attributes that it has. The owner
// always may: it had the right when it opened the file, and the server of version 3 does not see opens. Every
// server does so. The right to execute a file includes reading it: to execute is to read.
func (c *Call) mayUse(f *inode.File, a *disk.Attr, mode uint32) error {
	if c.isKnown(f, a, mode) {
		return nil
	}
	return c.AsCaller(func(u actas.Thread) error { return c.ask(u, f, a, mode) })
}

// isKnown reports whether it is known that the caller may read or write a file's data.
func (c *Call) isKnown(f *inode.File, a *disk.Attr, mode uint32) bool {
	return a.UID == c.id.UID || f.Granted(&c.id, mode, a)
}

// ask is mayUse in AsCaller.
func (c *Call) ask(u actas.Thread, f *inode.File, a *disk.Attr, mode uint32) error {
	if c.isKnown(f, a, mode) {
		return nil
	}
	err := f.Access(u, mode)
	if err != nil && mode == inode.MayRead && f.Access(u, inode.MayExec) == nil {
		err = nil
	}
	if err == nil {
		f.Grant(&c.id, mode, a)
	}
	return err
}

// Opened remembers that the caller has the rights to read, or write, a file that it has opened. The attributes are from
// before they were checked.
func (c *Call) Opened(h *inode.Held, a *disk.Attr, read, write bool) {
	if a.UID == c.id.UID {
		return
	}
	if read {
		h.Grant(&c.id, inode.MayRead, a)
	}
	if write {
		h.Grant(&c.id, inode.MayWrite, a)
	}
}

// denied is EAGAIN if another client denies what the caller is about to do: a share
// reservation of version 4, RFC 8881 section 9.7. The caller may try again later.
func (c *Call) denied(f *inode.File, write bool) error {
	if d := c.service.denied; d != nil && !c.SharesChecked && d(f.Volume, f.ID, write) {
		return syscall.EAGAIN
	}
	return nil
}

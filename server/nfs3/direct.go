package nfs3

import (
	"github.com/podnas/podnas/nfs/nfs3"
	"github.com/podnas/podnas/server/export"
	"github.com/podnas/podnas/server/oncrpc"
)

// To hand a call to a worker takes longer than most calls. So what needs no thread
// with the caller's identity is answered at once, on the connection's goroutine,
// which is root: what root asks for, and what it is known of whether the caller may.
// That is known of who owns the file: the mode's bits for the owner decide, whatever
// ACL there is (acl(5), "ACCESS CHECK ALGORITHM"). Everybody else is for a worker, as
// is to read data that is not in memory.

// knows tells whether the goroutine can say what the caller may do with a file.
func knows(id *export.Identity, a *export.Attr) bool { return id.UID == 0 || id.UID == a.UID }

// may tells whether a caller of whom that is known may use a file in a way.
// Nobody may write what is immutable or on a disk that is read only, so the kernel is
// asked for that whoever it is; root may do all else, but execute what nobody may.
func (t *task) may(f *export.File, mode uint32) bool {
	switch {
	case mode&export.MayWrite != 0 && f.Access(export.MayWrite) != nil:
		return false
	case t.service.workers.Spare(&t.id):
		return mode&export.MayExec == 0 || f.Attr.IsDir() || f.Attr.Mode&0o111 != 0
	case t.id.UID == 0:
		return f.Access(mode) == nil
	}
	return f.Attr.Mode>>6&mode == mode
}

// identity is whom the volume takes a call's caller for.
func identity(c *oncrpc.Call, v *export.Volume) export.Identity {
	return v.Options.Identity(c.Cred.UID, c.Cred.GID, c.Cred.Groups())
}

// lookupDirectly makes the result of LOOKUP, if the caller may search the directory. It is
// false if a worker must.
func (t *task) lookupDirectly() bool {
	dir := t.file
	if !dir.Attr.IsDir() || !t.service.workers.Spare(&t.id) && (!knows(&t.id, &dir.Attr) || !t.may(dir, export.MayExec)) {
		return false
	}
	t.lookup()
	dir.Close()
	return true
}

// accessDirectly makes the result of ACCESS, if what the caller may do is known.
func (t *task) accessDirectly() bool {
	f := t.file
	if !knows(&t.id, &f.Attr) {
		return false
	}
	t.accessWith(func(mode uint32) bool { return t.may(f, mode) })
	f.Close()
	return true
}

// readDirectly makes the result of READ, if all of the data is in the kernel's cache.
func (t *task) readDirectly() bool {
	f, args, res := t.data, &t.args.read, &t.res.read
	if args.Count == 0 || args.Offset > maxOffset-ioMax {
		return false
	}
	at := len(t.call.Reply) + readHead
	data := t.call.Reply[at : at+int(args.Count) : at+int(args.Count)]
	n, err := f.ReadCached(data, int64(args.Offset))
	if err != nil {
		return false
	}
	// What was read goes to nobody unless the owner, or root, has asked.
	attr, err := f.Stat()
	end := args.Offset + uint64(n)
	switch {
	case err != nil || !knows(&t.id, &attr):
		return false
	case n < len(data) && end < uint64(attr.Size): // only so much was in the cache
		return false
	}
	t.call.Served.Read = n
	res.Data, res.EOF = data[:n], end >= uint64(attr.Size)
	res.Attr = nfs3.PostOpAttr{Present: true, Attr: fattr(f.Volume, &attr)}
	f.Close()
	return true
}

// writesDirectly reports whether root may make a WRITE for the caller. A file that would lose its setuid and setgid bits keeps them from root, so another
// writes as itself, and while the disk is nearly full too: ext4 keeps the last
// blocks for root.
func (t *task) writesDirectly() bool {
	if t.service.workers.Spare(&t.id) {
		return true
	}
	attr, err := t.data.Stat()
	return err == nil && attr.UID == t.id.UID && attr.Mode&(nfs3.ModeSetUID|nfs3.ModeSetGID) == 0 && t.data.Volume.HasRoom(len(t.args.write.Data))
}

// commitsDirectly reports whether it is known that the caller may COMMIT.
func (t *task) commitsDirectly() bool {
	if t.service.workers.Spare(&t.id) {
		return true
	}
	attr, err := t.data.Stat()
	return err == nil && attr.UID == t.id.UID
}

package nfsv41

import (
	"cmp"
	"encoding/binary"
	"errors"
	"sync/atomic"
	"syscall"

	"github.com/podnas/podnas/nfs/nfs4"
	"github.com/podnas/podnas/server/inode"
	"github.com/podnas/podnas/server/nfsv41/state"
)

const (
	anyAccess   = state.Access(0)
	readAccess  = state.Read
	writeAccess = state.Write
	// readHead is the size of READ's result before the data: the operation, status, eof
	// and length.
	readHead = 4 + 4 + 4 + 4
)

// descriptor is a state.Descriptor: the file of an open, and how many use it. Held is nil if the file could not be
// opened again after a restart.
type descriptor struct {
	*inode.Held

	users atomic.Int32
}

// Retain adds a user.
func (h *descriptor) Retain() { h.users.Add(1) }

// Release removes a user; with the last the file is closed.
func (h *descriptor) Release() {
	if h.users.Add(-1) == 0 && h.Held != nil {
		h.Held.Close()
	}
}

// Close is Release, at the end of a call.
func (h *descriptor) Close() { h.Release() }

// dataFile is the current file open for its data, through what a stateid stands for: an
// open, or for the special stateids nothing. Either way the caller's rights decide as in version 3: they need not
// be those of the user that opened it.
func (c *compound) dataFile(id nfs4.Stateid, access state.Access) (*inode.File, error) {
	sid, err := c.stateidOf(id)
	return c.dataFileOf(&c.cur, sid, err, access)
}

// dataFileOf is dataFile of the current or the saved file. badID is the error of the stateid, which comes after
// those of the file handle.
func (c *compound) dataFileOf(o *object, sid nfs4.Stateid, badID error, access state.Access) (*inode.File, error) {
	switch {
	case !o.isSet():
		return nil, statusError(nfs4.ErrNoFileHandle)
	case o.node != nil:
		return nil, syscall.EISDIR
	}
	key, err := c.server.keyOf(o.bytes())
	if err != nil {
		return nil, err
	}
	if badID != nil {
		return nil, badID
	}
	if sid.IsSpecial() {
		access = cmp.Or(access, readAccess)
		return c.openAnonymous(o, sid, key, access)
	}
	h, status := c.server.state.Check(c.on.client(), sid, key, access)
	if status != nfs4.OK {
		if _, err := c.server.table.Find(key.Volume); err != nil { // the opens of a volume go when it ends
			return nil, err
		}
		return nil, errorOf(status)
	}
	open := h.(*descriptor)
	c.Closes(open)
	if open.Held == nil {
		return nil, syscall.ESTALE
	}
	return c.OpenHeld(open.Held, access == writeAccess)
}

func (c *compound) openAnonymous(o *object, sid nfs4.Stateid, key state.FileKey, access state.Access) (*inode.File, error) {
	use := inode.UseRead
	if access == writeAccess {
		use = inode.UseWrite
	}
	f, err := c.Open(o.bytes(), inode.UseAttr|inode.AtOnce)
	if err != nil {
		return nil, err
	}
	switch {
	case f.Attr.IsDir():
		return nil, syscall.EISDIR
	case f.Attr.IsSymlink():
		return nil, statusError(nfs4.ErrSymlink)
	case !f.Attr.IsRegular():
		return nil, statusError(nfs4.ErrWrongType)
	}
	if status := c.server.state.CheckSpecial(sid, key, access); status != nfs4.OK {
		return nil, errorOf(status)
	}
	if use == inode.UseRead {
		return c.Open(o.bytes(), use|inode.AtOnce)
	}
	return c.Open(o.bytes(), use)
}

// read: RFC 8881 section 18.22.
func (c *compound) read() (result, error) {
	args, res := &c.mem.read, &c.mem.readRes
	if err := c.decode(args); err != nil {
		return nil, err
	}
	f, err := c.dataFile(args.Stateid, readAccess)
	if err != nil {
		return nil, err
	}
	n := min(int(min(args.Count, ioMax)), c.sessionRoom(readHead))
	if n == 0 && args.Count > 0 {
		return nil, statusError(nfs4.ErrRepTooBig)
	}
	p, err := c.space(readHead, n)
	if err != nil {
		return nil, err
	}
	data, err := c.Read(f, p, args.Offset)
	if err != nil {
		return nil, err
	}
	*res = nfs4.ReadRes{Data: data.Bytes, EOF: data.EOF}
	return res, nil
}

// write: section 18.32. Its reply is kept for a client that sends the call again on another
// connection, though Linux does not ask for that: done twice, it would undo what another client
// has written meanwhile.
func (c *compound) write() (result, error) {
	args, res := &c.mem.write, &c.mem.writeRes
	if err := c.decode(args); err != nil {
		return nil, err
	}
	f, err := c.dataFile(args.Stateid, writeAccess)
	if err != nil {
		return nil, err
	}
	w, err := c.Write(f, args.Data, args.Offset)
	if err != nil {
		return nil, err
	}
	c.on.wrote = true
	if c.cur.file == nil && w.After.Known {
		c.cur.file, f.Attr = f, w.After.Attr // a GETATTR that follows need not open it again
	}
	if args.Stable != nfs4.Unstable {
		if err := c.Sync(f, args.Stable == nfs4.DataSync); err != nil {
			return nil, err
		}
	}
	*res = nfs4.WriteRes{Count: uint32(w.Count), Committed: args.Stable, Verf: verifierOf(w.Verifier)}
	return res, nil
}

func verifierOf(v uint64) (verf nfs4.Verifier) {
	binary.BigEndian.PutUint64(verf[:], v)
	return verf
}

// commit: section 18.3. The whole file is synced, whatever the range.
func (c *compound) commit(*nfs4.CommitArgs) (result, error) {
	f, err := c.commitFile()
	if err != nil {
		return nil, err
	}
	if _, err := c.Commit(f); err != nil {
		return nil, err
	}
	return &nfs4.CommitRes{Verf: verifierOf(f.Volume.Durable.WriteVerifier())}, nil // from after the sync
}

// commitFile is the current file open for writing: COMMIT has no stateid.
func (c *compound) commitFile() (*inode.File, error) {
	switch {
	case !c.cur.isSet():
		return nil, statusError(nfs4.ErrNoFileHandle)
	case c.cur.node != nil:
		return nil, syscall.EISDIR
	}
	key, err := c.server.keyOf(c.cur.bytes())
	if err != nil {
		return nil, err
	}
	f, err := c.Open(c.cur.bytes(), inode.UseWrite)
	if errors.Is(err, syscall.ESTALE) {
		if h := c.server.descriptorOf(key); h != nil { // removed, and open
			c.Closes(h)
			f, err = c.OpenHeld(h.Held, true)
		}
	}
	if errors.Is(err, syscall.EINVAL) { // no regular file: which status that has its type says
		_, typeErr := c.regularFile()
		err = cmp.Or(typeErr, err)
	}
	return f, err
}

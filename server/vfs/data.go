package vfs

import (
	"cmp"
	"math"
	"syscall"

	"github.com/podnas/podnas/server/export"
)

// MaxOffset is where a file ends at the latest, off_t's maximum.
const MaxOffset = math.MaxInt64

// Data is what was read.
type Data struct {
	Bytes []byte
	EOF   bool
	Attr  Attrs // after it
}

// Read reads from a file that is open with UseRead into p. On a worker it waits for the disk.
// On another goroutine it does not block, and done is false unless the caller is known to have
// the right and all of the data is in the kernel's cache.
func (t *Task) Read(f *export.File, p []byte, offset uint64) (d Data, done bool, err error) {
	if err := t.denied(f, false); err != nil {
		return d, true, err
	}
	if !t.worker {
		d, done = t.readCached(f, p, offset)
		return d, done, nil
	}
	d, err = t.read(f, p, offset)
	return d, true, err
}

func (t *Task) readCached(f *export.File, p []byte, offset uint64) (d Data, done bool) {
	if len(p) == 0 || offset > MaxOffset-uint64(len(p)) {
		return d, false
	}
	n, err := f.ReadCached(p, int64(offset))
	if err != nil {
		return d, false
	}
	// The data is sent only if the caller is known to have the right.
	end := offset + uint64(n)
	attr, err := f.Recent(int64(end))
	switch {
	case err != nil || !t.knows(&attr) && !f.Granted(&t.id, export.MayRead, &attr):
		return d, false
	case n < len(p) && end < uint64(attr.Size): // only so much was in the cache
		return d, false
	}
	f.WasRead(&attr)
	t.Call.Served.Read = n
	return Data{p[:n], end >= uint64(attr.Size), known(attr)}, true
}

func (t *Task) read(f *export.File, p []byte, offset uint64) (d Data, err error) {
	attr, err := f.Stat()
	if err != nil {
		return d, err
	}
	d.Attr = known(attr)
	if _, err := t.mayUse(f, &attr, export.MayRead); err != nil { // a worker knows
		return d, err
	}
	if offset > MaxOffset {
		return d, syscall.EINVAL
	}
	if room := MaxOffset - offset; uint64(len(p)) > room { // pread(2) refuses what goes past it
		p = p[:room]
	}
	n, err := f.ReadAt(p, int64(offset))
	if err != nil {
		return d, err
	}
	if attr, err = f.Stat(); err != nil {
		return d, err
	}
	f.WasRead(&attr)
	t.Call.Served.Read = n
	return Data{p[:n], offset+uint64(n) >= uint64(attr.Size), known(attr)}, nil
}

// Written is the result of a WRITE.
type Written struct {
	Count         int
	Verifier      uint64 // from before the data was accepted, so that a failed sync of the data changes it
	Before, After Attrs
}

// Write writes to a file that is open with UseWrite. If the goroutine does not act as the
// caller, done is false, unless root may write instead: if the caller owns the file, or is known to have the right, the file
// has no setuid and setgid bits, which a write of root would not clear, and the disk is not
// nearly full, because ext4 reserves its last blocks for root.
//
// If some of p was written before an error, there is no error: the client gets it when it
// writes the rest.
func (t *Task) Write(f *export.File, p []byte, offset uint64) (w Written, done bool, err error) {
	w.Verifier = f.Volume.WriteVerifier()
	attr, err := f.Stat()
	if err != nil {
		return w, t.IsCaller(), err
	}
	isKnown, mayErr := t.mayUse(f, &attr, export.MayWrite)
	if !isKnown || !t.IsCaller() && (attr.Mode&(syscall.S_ISUID|syscall.S_ISGID) != 0 || !f.Volume.HasRoom(len(p))) {
		return w, false, nil
	}
	w.Before = known(attr)
	w.After = w.Before
	if err := cmp.Or(t.denied(f, true), mayErr); err != nil {
		return w, true, err
	}
	if offset > MaxOffset-uint64(len(p)) {
		return w, true, syscall.EFBIG
	}
	n, attr, err := f.WriteAt(p, int64(offset))
	if n == 0 && err != nil {
		w.After = known(attr)
		return w, true, err
	}
	t.Call.Served.Written = n
	w.Count, w.After = n, known(attr)
	return w, true, nil
}

// Commit adds the sync of a file that is open with UseWrite to the task, see Sync; attr is from
// before the sync. done is false if the goroutine does not act as the caller, who does not own
// the file either.
func (t *Task) Commit(f *export.File) (attr Attrs, done bool, err error) {
	a, err := f.Stat()
	if err != nil {
		return attr, t.IsCaller(), err
	}
	switch isKnown, err := t.mayUse(f, &a, export.MayWrite); {
	case !isKnown:
		return attr, false, nil
	case err != nil:
		return known(a), true, err
	}
	t.Sync(f, false)
	return known(a), true, nil
}

package export

import "bytes"

// LockedNames are directories whose names nobody else changes through the server.
type LockedNames struct{ first, second *openFile }

// LockNames keeps others from changing the names in one directory or two, which
// OpenDir has opened. A client that is told the attributes before and after a change
// takes all that differs for its own, and never looks for what another one made in
// between: RFC 1813 section 2.6. ok is false where nobody can be kept out, since the
// directory's descriptor is not kept.
func LockNames(a, b *File) (locked LockedNames, ok bool) {
	if a.kept == nil || b.kept == nil {
		return locked, false
	}
	// The same order for everybody.
	if bytes.Compare(a.ID.Bytes(), b.ID.Bytes()) > 0 {
		a, b = b, a
	}
	locked.first = a.kept
	if b.kept != a.kept {
		locked.second = b.kept
	}
	locked.first.names.Lock()
	if locked.second != nil {
		locked.second.names.Lock()
	}
	return locked, true
}

// Unlock ends it, after a change.
func (l LockedNames) Unlock() {
	for _, f := range []*openFile{l.second, l.first} {
		if f != nil {
			f.changes.Add(1)
			f.names.Unlock()
		}
	}
}

// StatLocked is Stat for who has locked the directory's names: what OpenDir has seen
// will do if nobody has locked them in between.
func (f *File) StatLocked() (Attr, error) {
	if f.kept.changes.Load() == f.changes {
		return f.Attr, nil
	}
	return f.Stat()
}

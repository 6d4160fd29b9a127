package export

import "bytes"

// LockedNames are directories whose names no other call can change.
type LockedNames struct{ first, second *openFile }

// LockNames locks the names in one or two directories opened by OpenDir. A client
// that gets the attributes before and after its change attributes every difference
// to itself, and would miss changes by others in between: RFC 1813 section 2.6. ok
// is false if the names can't be locked, because the directory's descriptor is not
// cached.
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

// Unlock unlocks the names, after a change.
func (l LockedNames) Unlock() {
	for _, f := range []*openFile{l.second, l.first} {
		if f != nil {
			f.changes.Add(1)
			f.names.Unlock()
		}
	}
}

// StatLocked is Stat for callers that have locked the directory's names. It returns
// the attributes from OpenDir if nothing has locked the names in between.
func (f *File) StatLocked() (Attr, error) {
	if f.kept.changes.Load() == f.changes {
		return f.Attr, nil
	}
	return f.Stat()
}

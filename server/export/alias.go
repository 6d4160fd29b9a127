package export

import (
	"sync"

	"golang.org/x/sys/unix"
)

// A file has handles of two forms: by the kernel's handle, and by inode and birth time. Each volume
// has an own form, which all that it gives out have, and by which open files, locks and names in use
// are known. Clients that mounted it while the process had other rights have handles of the other
// form: aliases.

// aliases are the FileIDs of the other form that were used. What they mean never changes.
type aliases struct {
	mu    sync.RWMutex
	own   map[FileID]FileID
	kept  map[FileID]FileID // of files that were removed while they were open
	other map[FileID]FileID // of both, the other way round
}

// aliasesMax bounds the memory, 200 bytes for each.
const aliasesMax = 100_000

func (a *aliases) get(id FileID) (own FileID, ok bool) {
	a.mu.RLock()
	defer a.mu.RUnlock()
	if own, ok = a.own[id]; !ok {
		own, ok = a.kept[id]
	}
	return own, ok
}

func (a *aliases) put(id, own FileID) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.own == nil || len(a.own) >= aliasesMax {
		a.own, a.other = map[FileID]FileID{}, map[FileID]FileID{}
		for id, own := range a.kept {
			a.other[own] = id
		}
	}
	a.own[id], a.other[own] = own, id
}

func (a *aliases) keep(id, own FileID) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.kept == nil {
		a.kept = map[FileID]FileID{}
	}
	if a.other == nil {
		a.other = map[FileID]FileID{}
	}
	a.kept[id], a.other[own] = own, id
}

func (a *aliases) of(own FileID) (id FileID, ok bool) {
	a.mu.RLock()
	defer a.mu.RUnlock()
	id, ok = a.other[own]
	return id, ok
}

// byInode reports whether a FileID is by inode and birth time.
func (f *FileID) byInode() bool { return f.bytes[0] == fileIDByInode }

// isAlias reports whether a FileID does not have the volume's own form.
func (v *Volume) isAlias(id *FileID) bool {
	return !v.rootID.IsZero() && id.byInode() != v.rootID.byInode()
}

// Own returns the FileID of the volume's own form. It may block. The error is ESTALE if there is no
// such file, and EAGAIN if that is not known yet.
func (v *Volume) Own(id FileID) (FileID, error) {
	if !v.isAlias(&id) {
		return id, nil
	}
	x := v.indexOnDemand()
	if own, ok := x.aliases.get(id); ok {
		return own, nil
	}
	if own, ok := v.table.keptAs(v, &id); ok {
		x.aliases.keep(id, own)
		return own, nil
	}
	d, err := x.open(id, UseAttr.flags())
	if err != nil {
		return FileID{}, err
	}
	defer d.close()
	own, err := v.finder.identify(d.fd(), nil)
	if err == nil {
		x.aliases.put(id, own)
	}
	return own, err
}

// keptAs returns the own FileID of a file that was removed while a client has it open, which no walk
// finds.
func (t *Table) keptAs(v *Volume, id *FileID) (own FileID, ok bool) {
	t.mu.RLock()
	o := t.opener
	t.mu.RUnlock()
	if o == nil || o.held.kept.Load() == 0 {
		return own, false
	}
	ino := v.disk.numberIn(id)
	var same []heldKey
	o.held.mu.RLock()
	for key, f := range o.held.files {
		if f.kept && key.volume == v.ID && v.disk.numberIn(&key.id) == ino {
			same = append(same, key)
		}
	}
	o.held.mu.RUnlock()
	for _, key := range same {
		d, err := openEntry(o.held.at(), key.name())
		if err == nil {
			err = v.verify(d.fd(), ino, id)
			d.close()
		}
		if err == nil {
			return key.id, true
		}
	}
	return own, false
}

// Own is Volume.Own by the volume's number.
func (o *Opener) Own(volume uint64, id FileID) (FileID, error) {
	v, ok := o.table.ByID(volume)
	if !ok || !v.isAlias(&id) {
		return id, nil
	}
	if !v.begin() {
		return id, unix.ESTALE
	}
	defer v.calls.Done()
	return v.Own(id)
}

// Forms returns the FileIDs by which clients may know a file: the one that is given, and that of the other
// form, if it is in use.
func (o *Opener) Forms(volume uint64, id FileID) []FileID {
	forms := []FileID{id}
	v, ok := o.table.ByID(volume)
	if !ok {
		return forms
	}
	x := v.index.Load()
	if x == nil {
		return forms
	}
	if other, ok := x.aliases.get(id); ok {
		forms = append(forms, other)
	}
	if other, ok := x.aliases.of(id); ok {
		forms = append(forms, other)
	}
	return forms
}

// indexOnDemand returns the volume's index. Where the kernel's handles are used, the first alias
// makes it.
func (v *Volume) indexOnDemand() *index {
	if x := v.index.Load(); x != nil {
		return x
	}
	x := newIndex(v)
	if !v.index.CompareAndSwap(nil, x) {
		x.names.Close()
		return v.index.Load()
	}
	x.fill()
	return x
}

// known is Own without blocking; ok is false if that is not known. x may be nil.
func (x *index) known(id FileID) (own FileID, ok bool) {
	if x == nil {
		return FileID{}, false
	}
	return x.aliases.get(id)
}

package inodeindex

import (
	"bytes"
	"sync/atomic"
	"unsafe"
)

const (
	wordSize = 4
	nameMax  = 255
	// shardMin is how many words of a shard there may be at least.
	shardMin = 512
)

// record is a name in the arena: flags and the name's length, two words of inode, two of parent,
// and the name, filled up with zeros.
type record []uint32

const recordHead = 5

// The first word. It is read and written atomically by who has the shard locked only for reading.
const (
	lengthMask  = 0xff
	flagDir     = 1 << 8
	flagUsed    = 1 << 9  // since the last eviction
	flagSeen    = 1 << 10 // since Unsee
	flagMore    = 1 << 11 // the file has names that are not remembered
	flagDead    = 1 << 12
	flagSaved   = 1 << 13 // by Save or Append, or it was loaded
	flagSuspect = 1 << 14 // by Suspect, and not added again since
)

func wordsFor(name int) int { return recordHead + (name+wordSize-1)/wordSize }

func (r record) ino() uint64    { return uint64(r[1])<<32 | uint64(r[2]) }
func (r record) parent() uint64 { return uint64(r[3])<<32 | uint64(r[4]) }

func (r record) name() []byte {
	n := int(atomic.LoadUint32(&r[0]) & lengthMask)
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(r[recordHead:]))), n)
}

func (r record) set(flags uint32) {
	if atomic.LoadUint32(&r[0])&flags != flags {
		atomic.OrUint32(&r[0], flags)
	}
}

func (r record) clear(flags uint32) {
	if atomic.LoadUint32(&r[0])&flags != 0 {
		atomic.AndUint32(&r[0], ^flags)
	}
}

func (r record) use() { r.set(flagUsed) }

func (r record) is(ino, parent uint64, name []byte) bool {
	return r.ino() == ino && r.parent() == parent && bytes.Equal(r.name(), name)
}

// at returns the record that begins there, and what follows it.
func (s *shard) at(ref uint32) record {
	r := record(s.arena[ref:])
	return r[:wordsFor(int(atomic.LoadUint32(&r[0])&lengthMask))]
}

// find calls f for each record of an inode, with its place in the table, until f returns false.
func (s *shard) find(h, ino uint64, f func(place int, r record) bool) {
	if len(s.table) == 0 {
		return
	}
	mask := len(s.table) - 1
	for i := int(h) & mask; s.table[i] != 0; i = (i + 1) & mask {
		ref := s.table[i] - 1
		if record(s.arena[ref:ref+recordHead]).ino() == ino && !f(i, s.at(ref)) {
			return
		}
	}
}

func (s *shard) nth(h, ino uint64, nth int) (found record) {
	s.find(h, ino, func(_ int, r record) bool {
		if nth == 0 {
			found = r
		}
		nth--
		return found == nil
	})
	return found
}

// see reports whether a name is known, and notes that it was seen.
func (s *shard) see(h, ino, parent uint64, name []byte) (known bool) {
	s.find(h, ino, func(_ int, r record) bool {
		if known = r.is(ino, parent, name); known {
			r.set(flagSeen)
			r.clear(flagSuspect)
		}
		return !known
	})
	return known
}

// add adds a name with flagDir, flagSaved or none. lost is whether others were forgotten for it.
func (s *shard) add(h, ino, parent uint64, name []byte, flags uint32, limit int) (lost bool) {
	if s.see(h, ino, parent, name) { // added meanwhile
		return false
	}
	flags |= uint32(len(name)) | flagSeen
	if flags&flagDir != 0 {
		s.removeAll(h, ino)
	} else if names := s.count(h, ino); names >= namesMax {
		s.find(h, ino, func(_ int, r record) bool { r[0] |= flagMore; return true })
		s.removeFirst(h, ino)
		flags |= flagMore
	}
	need := wordsFor(len(name))
	if s.size()+need > limit {
		s.evict(s.size() * 3 / 4)
		lost = true
	}
	if len(s.arena)+need > cap(s.arena) {
		s.compact(need)
	}
	if 4*(s.records+1) > 3*len(s.table) {
		s.retable()
	}
	ref := uint32(len(s.arena))
	s.arena = s.arena[:int(ref)+need]
	r := record(s.arena[ref:])
	clear(r)
	r[0], r[1], r[2], r[3], r[4] = flags, uint32(ino>>32), uint32(ino), uint32(parent>>32), uint32(parent)
	copy(r.name(), name)
	s.enter(h, ref)
	s.records++
	return lost
}

// words are those of the records.
func (s *shard) words() int { return len(s.arena) - s.dead }

// size is the words of the records and of the table, while it is neither full nor half empty.
func (s *shard) size() int { return s.words() + s.records*3/2 }

func (s *shard) count(h, ino uint64) (n int) {
	s.find(h, ino, func(int, record) bool { n++; return true })
	return n
}

func (s *shard) enter(h uint64, ref uint32) {
	mask := len(s.table) - 1
	i := int(h) & mask
	for s.table[i] != 0 {
		i = (i + 1) & mask
	}
	s.table[i] = ref + 1
}

// suspect marks a name.
func (s *shard) suspect(h, ino, parent uint64, name []byte) {
	s.find(h, ino, func(_ int, r record) bool {
		is := r.is(ino, parent, name)
		if is {
			r.set(flagSuspect)
		}
		return !is
	})
}

// trusts reports whether a name is known, and not marked.
func (s *shard) trusts(h, ino, parent uint64, name []byte) (trusted bool) {
	s.find(h, ino, func(_ int, r record) bool {
		is := r.is(ino, parent, name)
		trusted = is && r[0]&flagSuspect == 0
		return !is
	})
	return trusted
}

// remove removes a name. lost is whether the file may have others, none of which is known.
func (s *shard) remove(h, ino, parent uint64, name []byte) (lost bool) {
	at := -1
	s.find(h, ino, func(place int, r record) bool {
		if r.is(ino, parent, name) {
			at, lost = place, r[0]&flagMore != 0
		}
		return at < 0
	})
	if at < 0 {
		return false
	}
	s.drop(at)
	return lost && s.count(h, ino) == 0
}

func (s *shard) removeAll(h, ino uint64) {
	for s.removeFirst(h, ino) {
	}
}

func (s *shard) removeFirst(h, ino uint64) bool {
	at := -1
	s.find(h, ino, func(place int, _ record) bool { at = place; return false })
	if at < 0 {
		return false
	}
	s.drop(at)
	return true
}

// drop removes the record in a place of the table. Those that were probed past it move up.
func (s *shard) drop(place int) {
	r := s.at(s.table[place] - 1)
	r[0] |= flagDead
	s.dead += len(r)
	s.records--
	mask := len(s.table) - 1
	for next := (place + 1) & mask; s.table[next] != 0; next = (next + 1) & mask {
		home := int(hashOf(s.at(s.table[next]-1).ino())) & mask
		if (next-home)&mask >= (next-place)&mask {
			s.table[place] = s.table[next]
			place = next
		}
	}
	s.table[place] = 0
	if s.records == 0 {
		s.table, s.arena, s.dead = nil, nil, 0
	}
}

// each calls f for each record, in the order in which they were added.
func (s *shard) each(f func(ref uint32, r record)) {
	for ref := 0; ref < len(s.arena); {
		r := s.at(uint32(ref))
		if atomic.LoadUint32(&r[0])&flagDead == 0 {
			f(uint32(ref), r)
		}
		ref += len(r)
	}
}

// compact makes room for more words: an eighth more than the records have, because the old arena
// and the new one exist at once.
func (s *shard) compact(need int) {
	live := s.words()
	arena := make([]uint32, 0, live+live/8+max(need, 64))
	if s.dead == 0 {
		s.arena = append(arena, s.arena...)
		return
	}
	s.each(func(_ uint32, r record) { arena = append(arena, r...) })
	s.arena, s.dead = arena, 0
	s.reenter()
}

// retable doubles the table.
func (s *shard) retable() {
	s.table = make([]uint32, max(16, 2*len(s.table)))
	s.reenter()
}

func (s *shard) reenter() {
	clear(s.table)
	s.each(func(ref uint32, r record) { s.enter(hashOf(r.ino()), ref) })
}

// rebuild keeps only some records.
func (s *shard) rebuild(keep func(record) bool) {
	s.each(func(_ uint32, r record) {
		if !keep(r) {
			r[0] |= flagDead
			s.dead += len(r)
			s.records--
		}
	})
	if s.records == 0 {
		s.table, s.arena, s.dead = nil, nil, 0
		return
	}
	if s.dead > 0 {
		s.compact(0)
	}
}

// evict forgets records until the rest has only so many words: the oldest first, files that were not
// used since the last eviction before others, and directories last.
func (s *shard) evict(words int) {
	for _, spared := range [...]uint32{flagDir | flagUsed, flagDir, 0} {
		s.rebuild(func(r record) bool {
			return r[0]&spared != 0 || s.size() <= words
		})
	}
	s.each(func(_ uint32, r record) { r[0] &^= flagUsed })
}

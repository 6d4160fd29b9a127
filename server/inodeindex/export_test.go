package inodeindex

// What a file of names has beside them, which tests damage.
const (
	HeaderSize   = headerSize
	LengthSize   = lengthSize
	SavedMagic   = savedMagic
	SavedVersion = savedVersion
	SumSize      = sumSize
)

// NamesMax is how many names of a file are remembered.
const NamesMax = namesMax

// Each calls do for each name: nothing else asks for all.
func (x *Index) Each(do func(ino, parent uint64, name []byte, dir bool)) {
	for i := range x.shards {
		x.shards[i].eachLocked(func(r record) { do(r.ino(), r.parent(), r.name(), r[0]&flagDir != 0) })
	}
}

// LoadNames loads the names of a file whose sum is right: a fuzzer finds none.
func (x *Index) LoadNames(b []byte, names *int) { x.loadNames(b, names) }

// Words returns how much memory is taken of what all indexes share.
func (m *Memory) Words() int64 { return m.words.Load() }

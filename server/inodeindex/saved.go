package inodeindex

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"sync/atomic"
)

// The form in which names are saved: a header, then blocks. Each ends with the checksum of everything
// up to there, so that blocks of two files never make one. There is no end: what a crash has cut off, or
// torn, is missing, and what is before it is right.
//
//	header  "podnas-index", version, volume, root, sum
//	block   length of the names, names, sum
//	name    varints of 2 * length + 1 if it is a directory's, inode, parent; then the name
//
// Other integers are big-endian.
const (
	savedMagic   = "podnas-index"
	savedVersion = 1
	headerSize   = len(savedMagic) + 4 + 8 + 8 + sumSize
	sumSize      = 4
	lengthSize   = 4
	// blockSize is when a block ends, and blockMax the most that it then has.
	blockSize = 64 << 10
	blockMax  = blockSize + 3*binary.MaxVarintLen64 + nameMax
)

// ErrForeign means that what was saved is another volume's, or in the form of another version.
// ErrDamaged means that it is damaged.
var (
	ErrForeign = errors.New("it is of another volume, or of another version of podnas")
	ErrDamaged = errors.New("it is damaged")
)

// Saved describes what was saved, for Append.
type Saved struct {
	Size  int64 // bytes
	Names int   // that were written, including those that were removed since
	sum   uint32
}

// Save writes all names. Volume and root are what Load must be called with. Names may be added and
// removed meanwhile. After an error nothing may be appended.
func (x *Index) Save(w io.Writer, volume, root uint64) (Saved, error) {
	b := make([]byte, 0, headerSize)
	b = append(b, savedMagic...)
	b = binary.BigEndian.AppendUint32(b, savedVersion)
	b = binary.BigEndian.AppendUint64(b, volume)
	b = binary.BigEndian.AppendUint64(b, root)
	s := saver{w: w}
	s.write(b)
	return s.writeNames(x, true)
}

// Append writes the names that were added since a Save, Append or Load of this Index. w continues what
// they have written or read. After an error nothing more may be appended.
func (x *Index) Append(w io.Writer, to Saved) (Saved, error) {
	s := saver{w: w, saved: to}
	return s.writeNames(x, false)
}

// saver writes blocks.
type saver struct {
	w     io.Writer
	saved Saved
	err   error
}

// write writes bytes with their sum.
func (s *saver) write(b []byte) {
	if s.err != nil {
		return
	}
	s.saved.sum = crc32.Update(s.saved.sum, crc32.MakeTable(crc32.Castagnoli), b)
	b = binary.BigEndian.AppendUint32(b, s.saved.sum)
	_, s.err = s.w.Write(b)
	s.saved.Size += int64(len(b))
}

// writeNames writes all names, or those that are not saved. It copies the names of a shard at a time, so
// that no lock is held while it writes.
func (s *saver) writeNames(x *Index, all bool) (Saved, error) {
	names := make([]byte, 0, 2*blockSize)
	var ends []int // of blocks in names
	block := make([]byte, 0, lengthSize+blockMax+sumSize)
	flush := func(b []byte) {
		block = binary.BigEndian.AppendUint32(block[:0], uint32(len(b)))
		s.write(append(block, b...))
	}
	for i := range x.shards {
		begin := 0
		ends = ends[:0]
		x.shards[i].eachLocked(func(r record) {
			if !all && atomic.LoadUint32(&r[0])&flagSaved != 0 {
				return
			}
			r.set(flagSaved)
			names = r.appendTo(names)
			s.saved.Names++
			if len(names)-begin >= blockSize {
				begin = len(names)
				ends = append(ends, begin)
			}
		})
		begin = 0
		for _, end := range ends {
			flush(names[begin:end])
			begin = end
		}
		names = names[:copy(names, names[begin:])]
		if s.err != nil {
			return s.saved, s.err
		}
	}
	if len(names) > 0 {
		flush(names)
	}
	return s.saved, s.err
}

func (s *shard) eachLocked(f func(record)) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	s.each(func(_ uint32, r record) { f(r) })
}

func (r record) appendTo(b []byte) []byte {
	name := r.name()
	head := uint64(len(name)) << 1
	if atomic.LoadUint32(&r[0])&flagDir != 0 {
		head |= 1
	}
	b = binary.AppendUvarint(b, head)
	b = binary.AppendUvarint(b, r.ino())
	b = binary.AppendUvarint(b, r.parent())
	return append(b, name...)
}

// Load adds the names that were saved. Those that the index has already are newer, and stay. With
// ErrForeign nothing was added; with ErrDamaged, or another error of r, it was all that is before the
// damage.
func (x *Index) Load(r io.Reader, volume, root uint64) (Saved, error) {
	var s Saved
	b := make([]byte, lengthSize+blockMax+sumSize)
	head := b[:headerSize]
	if _, err := io.ReadFull(r, head); err != nil {
		return Saved{}, cutOff(err)
	}
	from := len(savedMagic)
	switch {
	case string(head[:from]) != savedMagic:
		return Saved{}, ErrDamaged
	case binary.BigEndian.Uint32(head[from:]) != savedVersion,
		binary.BigEndian.Uint64(head[from+4:]) != volume, binary.BigEndian.Uint64(head[from+4+8:]) != root:
		return Saved{}, ErrForeign
	case !s.add(head):
		return Saved{}, ErrDamaged
	}
	for {
		_, err := io.ReadFull(r, b[:lengthSize])
		if errors.Is(err, io.EOF) {
			return s, nil
		}
		if err != nil {
			return s, cutOff(err)
		}
		n := binary.BigEndian.Uint32(b)
		if n == 0 || n > blockMax {
			return s, ErrDamaged
		}
		block := b[:lengthSize+n+sumSize]
		if _, err := io.ReadFull(r, block[lengthSize:]); err != nil {
			return s, cutOff(err)
		}
		if !s.add(block) || !x.loadNames(block[lengthSize:lengthSize+n], &s.Names) {
			return s, ErrDamaged
		}
	}
}

func cutOff(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return fmt.Errorf("%w: its end is missing", ErrDamaged)
	}
	return err
}

// add adds what ends with its sum, and reports whether that is right.
func (s *Saved) add(b []byte) bool {
	data := b[:len(b)-sumSize]
	s.sum = crc32.Update(s.sum, crc32.MakeTable(crc32.Castagnoli), data)
	s.Size += int64(len(b))
	return binary.BigEndian.Uint32(b[len(data):]) == s.sum
}

// loadNames adds the names of a block. It returns false if these are none.
func (x *Index) loadNames(b []byte, names *int) bool {
	for len(b) > 0 {
		var fields [3]uint64
		for i := range fields {
			field, n := binary.Uvarint(b)
			if n <= 0 {
				return false
			}
			fields[i], b = field, b[n:]
		}
		length, dir := fields[0]>>1, fields[0]&1 != 0
		if length == 0 || length > nameMax || length > uint64(len(b)) {
			return false
		}
		name := b[:length]
		if bytes.IndexByte(name, 0) >= 0 || bytes.IndexByte(name, '/') >= 0 || string(name) == "." || string(name) == ".." {
			return false
		}
		x.load(fields[1], fields[2], name, dir)
		*names++
		b = b[length:]
	}
	return true
}

func (x *Index) load(ino, parent uint64, name []byte, dir bool) {
	h := hashOf(ino)
	s := &x.shards[h>>(64-shardBits)]
	x.change(s, func() {
		if s.load(h, ino, parent, name, dir, x.memory.part()) {
			x.losses.Add(1)
		}
	})
}

// load is add of a name that was saved.
func (s *shard) load(h, ino, parent uint64, name []byte, dir bool, limit int) (lost bool) {
	newer := false
	s.find(h, ino, func(_ int, r record) bool {
		newer = r[0]&flagSaved == 0 && (dir || r[0]&flagDir != 0)
		return !newer
	})
	if newer {
		return false
	}
	flags := uint32(flagSaved)
	if dir {
		flags |= flagDir
	}
	return s.add(h, ino, parent, name, flags, limit)
}

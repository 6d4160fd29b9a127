package snapshot

import (
	"bufio"
	"cmp"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/podnas/podnas/internal/tree"
)

// A catalogue says of which files of the volume the files of a snapshot were made. The next snapshot reads it, to find what
// has not changed since. Without it, or if it is damaged, all files are cloned again.
//
//	header   magic, the moment of the snapshot, checksum
//	block    one for each directory: its fixed part, its name, a checksum of both; its entries
//	index    inode and place of each block, by the inode
//	trailer  place of the index, number of blocks, checksum of the index and of these
//
// Numbers are in big endian. Checksums are CRC-32C.

// record is what a catalogue has of a name.
type record struct {
	inode uint64
	kind  byte
	// changed is the ctime of the file, in Unix nanoseconds. With unknownChange it may have changed since.
	changed int64
	size    int64
	name    string
}

// unknownChange is no file's ctime.
const unknownChange = math.MinInt64

// settled is how old a change must be before its time tells it from the next one. Most kernels have a ctime of the last tick
// of their clock, up to 10 ms ago.
const settled = 2 * time.Second

// sees remembers that a file was in a state when it was captured, at a time. A later change has another ctime, unless the clock
// has stood still between, or went back.
func (r *record) sees(st *tree.Statx, at time.Time) {
	changed := changeOf(st)
	r.changed, r.size = unknownChange, int64(st.Size)
	if age := at.UnixNano() - changed; age > int64(settled) {
		r.changed = changed
	}
}

// is reports whether a file has not changed since it was captured.
func (r *record) is(st *tree.Statx) bool {
	return r.changed != unknownChange && r.changed == changeOf(st) && r.size == int64(st.Size) && r.inode == st.Ino
}

func changeOf(st *tree.Statx) int64 { return st.Ctime.Sec*1e9 + int64(st.Ctime.Nsec) }

// block is what a catalogue has of a directory.
type block struct {
	inode, above uint64 // above is 0 for the root
	name         string
	records      []record // by the inode; none if they take more than recordsMost
	takes        int      // what all records take in memory that were to be kept
}

const (
	// recordsMost is how much the records of a directory take in memory: 246,000 of names with 20 bytes. A client makes names
	// until a volume is full, and a hard link takes nothing else. Files of a directory with more are cloned in each snapshot.
	recordsMost = 16 << 20
	recordSize  = 48 // without the name
)

// keep adds a record, unless there are too many.
func (b *block) keep(r record) {
	b.takes += recordSize + len(r.name)
	if b.takes > recordsMost {
		b.records = nil
		return
	}
	b.records = append(b.records, r)
}

// find returns the first record of a file.
func (b *block) find(inode uint64) (*record, bool) {
	at, ok := slices.BinarySearchFunc(b.records, inode, func(r record, inode uint64) int { return cmp.Compare(r.inode, inode) })
	if !ok {
		return nil, false
	}
	return &b.records[at], true
}

const (
	catalogueMagic = "podnas catalogue 1\n"
	headerSize     = len(catalogueMagic) + 8 + 4
	blockSize      = 8 + 8 + 4 + 4 + 4 + 1 // inode, above, number and size of the entries, their checksum, size of the name
	indexSize      = 8 + 8
	trailerSize    = 8 + 8 + 4
	nameMax        = 255
)

// errCatalogue means that a catalogue is damaged.
var errCatalogue = errors.New("the catalogue is damaged")

// checksum is a CRC-32C.
func checksum(b []byte) uint32 { return crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli)) }

// catalogueWriter writes a catalogue.
type catalogueWriter struct {
	mu sync.Mutex // held over writes, for which only the walkers of the snapshot wait
	// +checklocks:mu
	to *bufio.Writer
	// +checklocks:mu
	at int64
	// +checklocks:mu
	index []indexed
}

// indexed is where the block of a directory is.
type indexed struct {
	inode uint64
	at    int64
}

func newCatalogueWriter(to io.Writer, cut int64) (*catalogueWriter, error) {
	w := &catalogueWriter{to: bufio.NewWriterSize(to, 64<<10)}
	w.mu.Lock()
	defer w.mu.Unlock()
	b := binary.BigEndian.AppendUint64([]byte(catalogueMagic), uint64(cut))
	err := w.writeLocked(summed(b))
	return w, err
}

// summed appends a checksum.
func summed(b []byte) []byte { return binary.BigEndian.AppendUint32(b, checksum(b)) }

// writeLocked writes bytes, and counts them.
//
// +checklocks:w.mu
func (w *catalogueWriter) writeLocked(b []byte) error {
	n, err := w.to.Write(b)
	w.at += int64(n)
	return err
}

// add writes a directory. It sorts its records.
func (w *catalogueWriter) add(d *block) error {
	slices.SortFunc(d.records, func(a, b record) int {
		return cmp.Or(cmp.Compare(a.inode, b.inode), strings.Compare(a.name, b.name))
	})
	entries := encodeRecords(d.records)
	var b [blockSize + nameMax + 4]byte
	binary.BigEndian.PutUint64(b[0:], d.inode)
	binary.BigEndian.PutUint64(b[8:], d.above)
	binary.BigEndian.PutUint32(b[16:], uint32(len(d.records)))
	binary.BigEndian.PutUint32(b[20:], uint32(len(entries)))
	binary.BigEndian.PutUint32(b[24:], checksum(entries))
	b[28] = byte(len(d.name))
	w.mu.Lock()
	defer w.mu.Unlock()
	w.index = append(w.index, indexed{d.inode, w.at})
	if err := w.writeLocked(summed(append(b[:blockSize], d.name...))); err != nil {
		return err
	}
	return w.writeLocked(entries)
}

// encodeRecords encodes the entries of a block, which take less than the records do.
func encodeRecords(records []record) []byte {
	most := 0
	for i := range records {
		most += recordSize + len(records[i].name)
	}
	entries := make([]byte, 0, most)
	var last record
	for i := range records {
		r := &records[i]
		entries = binary.AppendUvarint(entries, r.inode-last.inode)
		entries = append(entries, r.kind)
		entries = binary.AppendVarint(entries, r.changed-last.changed)
		entries = binary.AppendUvarint(entries, uint64(r.size))
		entries = append(append(entries, byte(len(r.name))), r.name...)
		last = *r
	}
	return entries
}

// end completes the catalogue.
func (w *catalogueWriter) end() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	at := w.at
	slices.SortFunc(w.index, func(a, b indexed) int { return cmp.Compare(a.inode, b.inode) })
	sum := crc32.New(crc32.MakeTable(crc32.Castagnoli))
	var b []byte
	for _, i := range w.index {
		b = binary.BigEndian.AppendUint64(b[:0], i.inode)
		b = binary.BigEndian.AppendUint64(b, uint64(i.at))
		_, _ = sum.Write(b) // which never fails
		if err := w.writeLocked(b); err != nil {
			return err
		}
	}
	b = binary.BigEndian.AppendUint64(b[:0], uint64(at))
	b = binary.BigEndian.AppendUint64(b, uint64(len(w.index)))
	_, _ = sum.Write(b)
	if err := w.writeLocked(binary.BigEndian.AppendUint32(b, sum.Sum32())); err != nil {
		return err
	}
	return w.to.Flush()
}

// catalogue reads one.
type catalogue struct {
	from  io.ReaderAt
	end   int64  // of the blocks
	index []byte // as in the file
}

// openCatalogue checks a catalogue of some size, and that it is that of the snapshot of a moment. A block is checked when it is
// read.
func openCatalogue(from io.ReaderAt, size, cut int64) (*catalogue, error) {
	var b [headerSize]byte
	if size < int64(headerSize+trailerSize) {
		return nil, errCatalogue
	}
	if _, err := from.ReadAt(b[:], 0); err != nil {
		return nil, err
	}
	moment := len(catalogueMagic)
	if !isSummed(b[:]) || string(b[:moment]) != catalogueMagic || int64(binary.BigEndian.Uint64(b[moment:])) != cut {
		return nil, errCatalogue
	}
	var t [trailerSize]byte
	if _, err := from.ReadAt(t[:], size-trailerSize); err != nil {
		return nil, err
	}
	c := &catalogue{from: from, end: int64(binary.BigEndian.Uint64(t[:]))}
	length := size - trailerSize - c.end
	if c.end < int64(headerSize) || length < 0 || length%indexSize != 0 || binary.BigEndian.Uint64(t[8:]) != uint64(length/indexSize) {
		return nil, errCatalogue
	}
	all := make([]byte, length+trailerSize)
	if _, err := from.ReadAt(all, c.end); err != nil {
		return nil, err
	}
	if !isSummed(all) {
		return nil, errCatalogue
	}
	c.index = all[:length]
	return c, nil
}

// isSummed reports whether what ends in a checksum has that one.
func isSummed(b []byte) bool {
	n := len(b) - 4
	return n >= 0 && binary.BigEndian.Uint32(b[n:]) == checksum(b[:n])
}

// place returns where the block of a directory is.
func (c *catalogue) place(inode uint64) (at int64, ok bool) {
	low, high := 0, len(c.index)/indexSize
	for low < high {
		mid := int(uint(low+high) / 2)
		i := c.index[mid*indexSize:]
		switch found := binary.BigEndian.Uint64(i); {
		case found == inode:
			return int64(binary.BigEndian.Uint64(i[8:])), true
		case found < inode:
			low = mid + 1
		default:
			high = mid
		}
	}
	return 0, false
}

// head is a block without its entries.
type head struct {
	block

	at          int64 // of the entries
	size, count int
	sum         uint32
}

// head reads the beginning of a directory's block.
func (c *catalogue) head(inode uint64) (h head, err error) {
	at, ok := c.place(inode)
	if !ok {
		return h, errNoBlock
	}
	var b [blockSize + nameMax + 4]byte
	n, err := c.from.ReadAt(b[:min(int64(len(b)), max(0, c.end-at))], at)
	if err != nil {
		return h, err
	}
	all := blockSize + int(b[blockSize-1]) + 4
	if n < all || !isSummed(b[:all]) {
		return h, errCatalogue
	}
	h.inode, h.above, h.name = binary.BigEndian.Uint64(b[0:]), binary.BigEndian.Uint64(b[8:]), string(b[blockSize:all-4])
	h.count, h.size = int(binary.BigEndian.Uint32(b[16:])), int(binary.BigEndian.Uint32(b[20:]))
	h.sum, h.at = binary.BigEndian.Uint32(b[24:]), at+int64(all)
	if h.inode != inode || int64(h.size) > c.end-h.at || h.count > h.size/entryMin {
		return h, errCatalogue
	}
	return h, nil
}

// errNoBlock means that a catalogue does not have a directory.
var errNoBlock = errors.New("the catalogue does not have the directory")

// entryMin is the least that an entry takes.
const entryMin = 5

// directory reads the block of a directory, without records that take more than recordsMost.
func (c *catalogue) directory(inode uint64) (*block, error) {
	h, err := c.head(inode)
	if err != nil {
		return nil, err
	}
	if h.size > recordsMost || h.count > recordsMost/recordSize {
		return &h.block, nil
	}
	b := make([]byte, h.size)
	if _, err := c.from.ReadAt(b, h.at); err != nil {
		return nil, err
	}
	if checksum(b) != h.sum {
		return nil, errCatalogue
	}
	h.records, err = decodeRecords(b, h.count)
	return &h.block, err
}

// decodeRecords decodes the entries of a block.
func decodeRecords(b []byte, count int) ([]record, error) {
	all := string(b) // of which names are a part
	records := make([]record, 0, count)
	var last record
	for range count {
		r, n := last, 0
		number := func() uint64 {
			v, size := binary.Uvarint(b[n:])
			n += max(size, 0)
			if size <= 0 {
				n = len(b) + 1
			}
			return v
		}
		r.inode += number()
		if n >= len(b) {
			return nil, errCatalogue
		}
		r.kind = b[n]
		n++
		zigzag := number()
		r.changed += int64(zigzag>>1) ^ -int64(zigzag&1)
		if n >= len(b) {
			return nil, errCatalogue
		}
		r.size = int64(number())
		if n >= len(b) || r.inode < last.inode || r.size < 0 {
			return nil, errCatalogue
		}
		end := n + 1 + int(b[n])
		if end > len(b) {
			return nil, errCatalogue
		}
		from := len(all) - len(b)
		r.name = all[from+n+1 : from+end]
		b = b[end:]
		records = append(records, r)
		last = r
	}
	if len(b) > 0 {
		return nil, errCatalogue
	}
	return records, nil
}

// depthMax bounds how deep a directory is whose path is asked for. Each level is a read, so a chain of directories would take
// time by the square of its length.
const depthMax = 100

// errDeep is the error of path for a deeper one.
var errDeep = errors.New("the directory is too deep")

// path returns the path of a directory in the snapshot: "." for the root.
func (c *catalogue) path(inode uint64) (string, error) {
	var names []string
	for range depthMax {
		d, err := c.head(inode)
		if err != nil {
			return "", err
		}
		if d.above == 0 {
			slices.Reverse(names)
			return strings.Join(append([]string{"."}, names...), "/"), nil
		}
		names = append(names, d.name)
		inode = d.above
	}
	return "", errDeep
}

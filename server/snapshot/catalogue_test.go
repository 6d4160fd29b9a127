package snapshot

import (
	"bytes"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/podnas/podnas/internal/tree"
)

// written returns a catalogue of these directories.
func written(t testing.TB, cut int64, blocks ...block) []byte {
	t.Helper()
	var b bytes.Buffer
	w, err := newCatalogueWriter(&b, cut)
	if err != nil {
		t.Fatal(err)
	}
	for i := range blocks {
		if err := w.add(&blocks[i]); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.end(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// tree128 is a root with a directory, and a file in each.
func tree128() []block {
	return []block{
		{inode: 128, records: []record{
			{inode: 131, kind: 4, changed: unknownChange, name: "dir"},
			{inode: 130, kind: 8, changed: -5, size: 1 << 40, name: "file"},
			{inode: 130, kind: 8, changed: unknownChange, name: "another name"},
		}},
		{inode: 131, above: 128, name: "dir", records: []record{{inode: 5, kind: 8, changed: 1 << 60, name: strings.Repeat("n", 255)}}},
		{inode: 7, above: 131, name: "empty"},
	}
}

func TestCatalogue(t *testing.T) {
	b := written(t, 42, tree128()...)
	c, err := openCatalogue(bytes.NewReader(b), int64(len(b)), 42)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range tree128() {
		got, err := c.directory(want.inode)
		if err != nil {
			t.Fatal(err)
		}
		if got.inode != want.inode || got.above != want.above || got.name != want.name || len(got.records) != len(want.records) {
			t.Errorf("directory %d: %+v, want %+v", want.inode, got, want)
		}
		for _, r := range want.records {
			found, ok := got.find(r.inode)
			if !ok || found.inode != r.inode {
				t.Errorf("directory %d lacks %+v", want.inode, r)
			}
		}
		if _, ok := got.find(1); ok {
			t.Error("it has a file that it does not have")
		}
	}
	if root, _ := c.directory(128); !reflect.DeepEqual(root.records[1], record{inode: 130, kind: 8, changed: -5, size: 1 << 40, name: "file"}) {
		t.Errorf("the file is %+v", root.records)
	}
	if at, err := c.path(7); at != "./dir/empty" || err != nil {
		t.Errorf("the path is %q, %v", at, err)
	}
	if _, err := c.directory(9); !errors.Is(err, errNoBlock) {
		t.Errorf("a directory that it does not have: %v", err)
	}
	if _, err := openCatalogue(bytes.NewReader(b), int64(len(b)), 43); !errors.Is(err, errCatalogue) {
		t.Errorf("for another moment: %v", err)
	}
}

// A directory with very many names has no records, neither in memory nor on the disk, and those in it have their paths.
func TestCatalogueOfManyNames(t *testing.T) {
	for _, c := range []struct {
		name string
		size int // of a name
		kept int
	}{
		{"short names", 1, recordsMost / (recordSize + 1)},
		{"the longest names", nameMax, recordsMost / (recordSize + nameMax)},
	} {
		t.Run(c.name, func(t *testing.T) {
			name := strings.Repeat("n", c.size)
			for _, names := range []int{c.kept, c.kept + 1, 2 * c.kept} {
				wide := block{inode: 128}
				for i := range names {
					wide.keep(record{inode: 1000 + uint64(i), kind: 8, changed: int64(i) * -1e15, size: int64(i), name: name})
				}
				kept := names
				if names > c.kept {
					kept = 0
				}
				if len(wide.records) != kept {
					t.Fatalf("of %d names it keeps %d, want %d", names, len(wide.records), kept)
				}
				b := written(t, 42, wide, block{inode: 7, above: 128, name: "in it"})
				read, err := openCatalogue(bytes.NewReader(b), int64(len(b)), 42)
				if err != nil {
					t.Fatal(err)
				}
				got, err := read.directory(128)
				if err != nil || len(got.records) != kept {
					t.Errorf("of %d names it has %d, %v, want %d", names, len(got.records), err, kept)
				}
				if at, err := read.path(7); at != "./in it" || err != nil {
					t.Errorf("the path is %q, %v", at, err)
				}
			}
		})
	}
}

// A catalogue with more names than are kept, as nobody writes any more, is read without them.
func TestCatalogueWithTooManyNames(t *testing.T) {
	wide := block{inode: 128}
	for i := range recordsMost/recordSize + 1 {
		wide.records = append(wide.records, record{inode: uint64(i), name: "n"})
	}
	b := written(t, 42, wide)
	read, err := openCatalogue(bytes.NewReader(b), int64(len(b)), 42)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := read.directory(128); err != nil || len(got.records) != 0 {
		t.Errorf("it has %d names, %v", len(got.records), err)
	}
}

// With any bit changed, what is read is as it was written, or there is an error.
func TestCatalogueIsDamaged(t *testing.T) {
	whole := written(t, 42, tree128()...)
	read := func(b []byte) (all string, err error) {
		c, err := openCatalogue(bytes.NewReader(b), int64(len(b)), 42)
		if err != nil {
			return "", err
		}
		for _, inode := range []uint64{128, 131, 7} {
			d, err := c.directory(inode)
			if err != nil {
				return "", err
			}
			all += fmt.Sprintf("%+v", *d)
		}
		return all, nil
	}
	want, err := read(whole)
	if err != nil {
		t.Fatal(err)
	}
	for at := range len(whole) * 8 {
		b := bytes.Clone(whole)
		b[at/8] ^= 1 << (at % 8)
		if got, err := read(b); err == nil && got != want {
			t.Errorf("with bit %d changed: %s", at, got)
		}
	}
	for length := range len(whole) {
		if _, err := read(whole[:length]); err == nil {
			t.Errorf("%d of %d bytes are a catalogue", length, len(whole))
		}
	}
}

func FuzzCatalogue(f *testing.F) {
	f.Add(written(f, 42, tree128()...), uint64(131))
	f.Add(written(f, 42), uint64(1))
	f.Fuzz(func(_ *testing.T, b []byte, inode uint64) {
		c, err := openCatalogue(bytes.NewReader(b), int64(len(b)), 42)
		if err != nil {
			return
		}
		_, _ = c.directory(inode)
		_, _ = c.path(inode)
	})
}

func FuzzDecodeRecords(f *testing.F) {
	f.Add([]byte("\x05\x08\x02\x07\x01a"), 1)
	f.Fuzz(func(t *testing.T, b []byte, count int) {
		records, err := decodeRecords(b, max(0, min(count, len(b))))
		for _, r := range records {
			if err == nil && (r.size < 0 || len(r.name) > nameMax) {
				t.Errorf("%+v", r)
			}
		}
	})
}

// counting counts reads.
type counting struct {
	*bytes.Reader
	reads int
}

func (c *counting) ReadAt(b []byte, at int64) (int, error) {
	c.reads++
	return c.Reader.ReadAt(b, at)
}

// The path of a directory takes few reads, however deep it is.
func TestPathOfDeepDirectories(t *testing.T) {
	const levels = 10 * depthMax
	blocks := []block{{inode: 1}}
	for i := range uint64(levels) {
		blocks = append(blocks, block{inode: i + 2, above: i + 1, name: "d"})
	}
	b := written(t, 42, blocks...)
	from := &counting{Reader: bytes.NewReader(b)}
	c, err := openCatalogue(from, int64(len(b)), 42)
	if err != nil {
		t.Fatal(err)
	}
	for inode, want := range map[uint64]error{1: nil, depthMax: nil, depthMax + 1: errDeep, levels + 1: errDeep} {
		from.reads = 0
		at, err := c.path(inode)
		if !errors.Is(err, want) || err == nil && strings.Count(at, "/") != int(inode)-1 {
			t.Errorf("directory %d: %q, %v, want %v", inode, at, err, want)
		}
		if from.reads > depthMax {
			t.Errorf("directory %d took %d reads", inode, from.reads)
		}
	}
}

// A change that is too near to the capture may be followed by another one at the same time.
func TestSettled(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	for _, c := range []struct {
		name string
		age  time.Duration
		is   bool
	}{
		{"long ago", time.Hour, true},
		{"three seconds ago", 3 * time.Second, true},
		{"a second ago", time.Second, false},
		{"in the same tick", 0, false},
		{"in the future: the clock went back", -time.Hour, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			st := tree.Statx{}
			at := now.Add(-c.age)
			st.Ino, st.Size = 5, 7
			st.Ctime.Sec, st.Ctime.Nsec = at.Unix(), uint32(at.Nanosecond())
			r := record{inode: 5}
			r.sees(&st, now)
			if r.is(&st) != c.is {
				t.Errorf("it is the same: %v, want %v", !c.is, c.is)
			}
			st.Ctime.Nsec++
			if r.is(&st) {
				t.Error("it is the same after a change")
			}
		})
	}
}

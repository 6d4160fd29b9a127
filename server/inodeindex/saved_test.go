package inodeindex_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/podnas/podnas/server/inodeindex"
)

// filled is an index with directories 1 to 100, of which 1 is the root, and files in them.
func filled(files int) *inodeindex.Index {
	x := inodeindex.New(inodeindex.NewMemory(1 << 30))
	for d := range uint64(99) {
		x.Add(d+2, d/10+1, fmt.Appendf(nil, "directory %d", d+2), true)
	}
	for i := range uint64(files) {
		x.Add(1000+i, 1+i%100, fmt.Appendf(nil, "file %d", i), false)
	}
	return x
}

func contents(x *inodeindex.Index) []string {
	var all []string
	x.Each(func(ino, parent uint64, name []byte, dir bool) {
		all = append(all, fmt.Sprintln(ino, parent, string(name), dir))
	})
	slices.Sort(all)
	return all
}

func same(t *testing.T, got, want *inodeindex.Index) {
	t.Helper()
	a, b := contents(got), contents(want)
	if !slices.Equal(a, b) {
		t.Errorf("%d names were loaded, want %d", len(a), len(b))
	}
}

// TestSaved: what is saved and appended is what is loaded.
func TestSaved(t *testing.T) {
	x := filled(20_000)
	var file bytes.Buffer
	saved, err := x.Save(&file, 7, 1)
	if err != nil || saved.Size != int64(file.Len()) || saved.Names != 20_099 {
		t.Fatalf("%+v, %v; the file has %d bytes", saved, err, file.Len())
	}
	for i := range uint64(5000) {
		x.Add(100_000+i, 1, fmt.Appendf(nil, "new %d", i), false)
	}
	x.Add(50, 2, []byte("moved"), true)
	before := file.Len()
	appended, err := x.Append(&file, saved)
	if err != nil || appended.Size != int64(file.Len()) || appended.Names != saved.Names+5001 {
		t.Fatalf("%+v, %v; the file has %d bytes", appended, err, file.Len())
	}
	if perName := (file.Len() - before) / 5001; perName > 40 {
		t.Errorf("%d bytes were appended for a name", perName)
	}
	if again, err := x.Append(io.Discard, appended); again != appended || err != nil {
		t.Errorf("nothing is new, but the file would become %+v, %v", again, err)
	}
	y := inodeindex.New(inodeindex.NewMemory(1 << 30))
	loaded, err := y.Load(bytes.NewReader(file.Bytes()), 7, 1)
	if err != nil || loaded != appended {
		t.Errorf("loaded %+v, %v; want %+v", loaded, err, appended)
	}
	same(t, y, x)
	// It goes on where the other has ended.
	y.Add(200_000, 1, []byte("next"), false)
	if _, err := y.Append(&file, loaded); err != nil {
		t.Fatal(err)
	}
	z := inodeindex.New(inodeindex.NewMemory(1 << 30))
	if _, err := z.Load(&file, 7, 1); err != nil {
		t.Error(err)
	}
	same(t, z, y)
}

// TestLoadedIsOlder: what the index knows already is newer than what is loaded.
func TestLoadedIsOlder(t *testing.T) {
	x := inodeindex.New(inodeindex.NewMemory(1 << 30))
	x.Add(2, 1, []byte("was here"), true)
	x.Add(3, 2, []byte("was a file"), false)
	x.Add(4, 2, []byte("was a directory"), true)
	x.Add(5, 2, []byte("other name"), false)
	var file bytes.Buffer
	if _, err := x.Save(&file, 7, 1); err != nil {
		t.Fatal(err)
	}
	y := inodeindex.New(inodeindex.NewMemory(1 << 30))
	y.Add(2, 1, []byte("is there"), true)
	y.Add(3, 1, []byte("is a directory"), true)
	y.Add(4, 1, []byte("is a file"), false)
	y.Add(5, 1, []byte("name"), false)
	if _, err := y.Load(&file, 7, 1); err != nil {
		t.Fatal(err)
	}
	for ino, want := range map[uint64][]place{2: {{1, "is there"}}, 3: {{1, "is a directory"}}, 4: {{1, "is a file"}}, 5: {{1, "name"}, {2, "other name"}}} {
		if got := places(y, ino); !slices.Equal(got, want) {
			t.Errorf("inode %d has the names %v, want %v", ino, got, want)
		}
	}
	// What only was loaded goes with the next walk.
	y.Unsee()
	y.Add(2, 1, []byte("is there"), true)
	y.Add(5, 1, []byte("name"), false)
	if removed := y.RemoveUnseen(); removed != 3 {
		t.Errorf("%d names were removed", removed)
	}
}

// TestSavedDamaged: every damage is seen, and what comes before it is right.
func TestSavedDamaged(t *testing.T) {
	x := filled(5000)
	var file bytes.Buffer
	saved, err := x.Save(&file, 7, 1)
	if err != nil {
		t.Fatal(err)
	}
	want := contents(x)
	load := func(b []byte, volume, root uint64) (*inodeindex.Index, inodeindex.Saved, error) {
		y := inodeindex.New(inodeindex.NewMemory(1 << 30))
		s, err := y.Load(bytes.NewReader(b), volume, root)
		for _, name := range contents(y) {
			if _, found := slices.BinarySearch(want, name); !found {
				t.Fatalf("%q was loaded", name)
			}
		}
		return y, s, err
	}
	for at := 0; at < file.Len(); at += 1999 {
		b := bytes.Clone(file.Bytes())
		b[at] ^= 4
		if _, _, err := load(b, 7, 1); !errors.Is(err, inodeindex.ErrDamaged) && (at >= inodeindex.HeaderSize || !errors.Is(err, inodeindex.ErrForeign)) {
			t.Errorf("byte %d is wrong: %v", at, err)
		}
		_, s, err := load(b[:at], 7, 1)
		if err == nil && s.Size != int64(at) || err != nil && !errors.Is(err, inodeindex.ErrDamaged) {
			t.Errorf("cut off at %d: %v", at, err)
		}
	}
	later := bytes.Clone(file.Bytes())
	binary.BigEndian.PutUint32(later[len(inodeindex.SavedMagic):], inodeindex.SavedVersion+1)
	for what, err := range map[string]error{
		"another volume": third(load(file.Bytes(), 8, 1)),
		"another root":   third(load(file.Bytes(), 7, 2)),
		"a version":      third(load(later, 7, 1)),
	} {
		if !errors.Is(err, inodeindex.ErrForeign) {
			t.Errorf("%s: %v", what, err)
		}
	}
	// A block twice, with its sum.
	b := file.Bytes()
	first := inodeindex.HeaderSize + inodeindex.LengthSize + int(binary.BigEndian.Uint32(b[inodeindex.HeaderSize:])) + inodeindex.SumSize
	if _, _, err := load(slices.Concat(b[:first], b[inodeindex.HeaderSize:]), 7, 1); !errors.Is(err, inodeindex.ErrDamaged) {
		t.Errorf("a block came twice: %v", err)
	}
	if y, s, err := load(b, 7, 1); err != nil || s != saved || len(contents(y)) != len(want) {
		t.Errorf("undamaged: %+v, %v", s, err)
	}
}

func third(_ *inodeindex.Index, _ inodeindex.Saved, err error) error { return err }

// FuzzLoad: whatever a file has, loading it ends, with names that may be names.
func FuzzLoad(f *testing.F) {
	var file bytes.Buffer
	_, _ = filled(10).Save(&file, 7, 1)
	f.Add(file.Bytes())
	f.Add(file.Bytes()[inodeindex.HeaderSize+inodeindex.LengthSize : file.Len()-inodeindex.SumSize])
	f.Fuzz(func(t *testing.T, b []byte) {
		check := func(x *inodeindex.Index) {
			x.Each(func(_, _ uint64, name []byte, _ bool) {
				if len(name) == 0 || bytes.ContainsAny(name, "/\x00") {
					t.Fatalf("the name %q was loaded", name)
				}
			})
		}
		x := inodeindex.New(inodeindex.NewMemory(1 << 20))
		_, _ = x.Load(bytes.NewReader(b), 7, 1)
		check(x)
		// The names alone, which a right sum would lead to.
		names := 0
		x = inodeindex.New(inodeindex.NewMemory(1 << 20))
		x.LoadNames(b, &names)
		check(x)
		if n, _ := x.Size(); n > names {
			t.Fatalf("%d names of %d", n, names)
		}
	})
}

// TestLoadLimit: an index that may have less memory than the one that was saved keeps to it.
func TestLoadLimit(t *testing.T) {
	var file bytes.Buffer
	if _, err := filled(300_000).Save(&file, 7, 1); err != nil {
		t.Fatal(err)
	}
	const limit = 4 << 20
	x := inodeindex.New(inodeindex.NewMemory(limit))
	if _, err := x.Load(&file, 7, 1); err != nil {
		t.Fatal(err)
	}
	if names, bytes := x.Size(); bytes > limit*3/2 || names < 10_000 || x.Losses() == 0 {
		t.Errorf("%d names take %d bytes, with a limit of %d; %d losses", names, bytes, limit, x.Losses())
	}
}

// failing is a full disk.
type failing struct{ left int }

func (f *failing) Write(b []byte) (int, error) {
	if f.left -= len(b); f.left < 0 {
		return 0, io.ErrShortWrite
	}
	return len(b), nil
}

// TestSaveFails: an error ends it at once, and all can be saved again.
func TestSaveFails(t *testing.T) {
	x := filled(20_000)
	for _, room := range []int{0, inodeindex.HeaderSize, 100_000} {
		if _, err := x.Save(&failing{left: room}, 7, 1); !errors.Is(err, io.ErrShortWrite) {
			t.Errorf("with room for %d bytes: %v", room, err)
		}
	}
	var file bytes.Buffer
	y := inodeindex.New(inodeindex.NewMemory(1 << 30))
	if _, err := x.Save(&file, 7, 1); err != nil {
		t.Error(err)
	}
	if _, err := y.Load(&file, 7, 1); err != nil {
		t.Error(err)
	}
	same(t, y, x)
}

// TestSaveConcurrently: names come and go while they are saved; those that stay are saved once.
func TestSaveConcurrently(t *testing.T) {
	x := filled(20_000)
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for g := range uint64(2) {
		wg.Go(func() {
			for i := uint64(0); ; i++ {
				select {
				case <-stop:
					return
				default:
				}
				name := fmt.Appendf(nil, "new %d", i)
				x.Add(1_000_000*(g+1)+i%50_000, 1, name, false)
				if i%3 > 0 {
					x.Remove(1_000_000*(g+1)+i%50_000, 1, name)
				}
			}
		})
	}
	var file bytes.Buffer
	saved, err := x.Save(&file, 7, 1)
	for range 5 {
		if err != nil {
			break
		}
		time.Sleep(time.Millisecond)
		saved, err = x.Append(&file, saved)
	}
	close(stop)
	wg.Wait()
	if err == nil {
		_, err = x.Append(&file, saved)
	}
	if err != nil {
		t.Fatal(err)
	}
	y := inodeindex.New(inodeindex.NewMemory(1 << 30))
	if _, err := y.Load(&file, 7, 1); err != nil {
		t.Fatal(err)
	}
	loaded := contents(y)
	for _, name := range contents(x) {
		if _, found := slices.BinarySearch(loaded, name); !found {
			t.Fatalf("%q is missing", name)
		}
	}
}

// million is an index of a million files in 1,000 directories.
func million() *inodeindex.Index {
	x := inodeindex.New(inodeindex.NewMemory(1 << 30))
	for i := range uint64(1_000_000) {
		if i%1000 == 0 {
			x.Add(2+i/1000, 1, fmt.Appendf(nil, "directory %d", i/1000), true)
		}
		x.Add(10_000_000+i, 2+i/1000, fmt.Appendf(nil, "file-%06d.data", i), false)
	}
	return x
}

// BenchmarkSave and BenchmarkLoad have a million files.
func BenchmarkSave(b *testing.B) {
	x := million()
	for b.Loop() {
		saved, _ := x.Save(io.Discard, 7, 1)
		b.ReportMetric(float64(saved.Size), "bytes")
	}
}

func BenchmarkLoad(b *testing.B) {
	var file bytes.Buffer
	_, _ = million().Save(&file, 7, 1)
	b.ReportAllocs()
	for b.Loop() {
		x := inodeindex.New(inodeindex.NewMemory(1 << 30))
		if _, err := x.Load(bytes.NewReader(file.Bytes()), 7, 1); err != nil {
			b.Fatal(err)
		}
	}
}

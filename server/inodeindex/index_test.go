package inodeindex_test

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/podnas/podnas/server/inodeindex"
)

type place struct {
	parent uint64
	name   string
}

// model is what an Index without a limit must have.
type model map[uint64][]place

func (m model) add(ino uint64, p place, dir bool) {
	if slices.Contains(m[ino], p) {
		return
	}
	if dir {
		m[ino] = nil
	}
	m[ino] = append(m[ino], p)
}

func (m model) remove(ino uint64, p place) {
	m[ino] = slices.DeleteFunc(m[ino], func(q place) bool { return q == p })
	if len(m[ino]) == 0 {
		delete(m, ino)
	}
}

func places(x *inodeindex.Index, ino uint64) (all []place) {
	var buf [256]byte
	for n := 0; ; n++ {
		parent, name, ok := x.Name(ino, n, &buf)
		if !ok {
			return all
		}
		all = append(all, place{parent, string(name)})
	}
}

func compare(t *testing.T, x *inodeindex.Index, m model) {
	t.Helper()
	names := 0
	for ino, want := range m {
		names += len(want)
		got := places(x, ino)
		if len(got) != len(want) {
			t.Fatalf("inode %d has the names %v, want %v", ino, got, want)
		}
		for _, p := range want {
			if !slices.Contains(got, p) {
				t.Fatalf("inode %d has the names %v, want %v", ino, got, want)
			}
		}
	}
	if n, _ := x.Size(); n != names {
		t.Fatalf("%d names, want %d", n, names)
	}
}

// steps does to an index and to its model what the bytes say.
func steps(t *testing.T, program []byte) {
	x, m := inodeindex.New(inodeindex.NewMemory(1<<30)), model{}
	for ; len(program) >= 4; program = program[4:] {
		// Directories have odd numbers. Few numbers and names, so that they meet again; the
		// numbers with the same lower bits come into the same shard often.
		ino := uint64(program[1] % 64)
		p := place{uint64(program[2]%8)*2 + 1, strings.Repeat("n", int(program[3]%7)) + fmt.Sprint(program[3]%11)}
		switch program[0] % 8 {
		case 0, 1, 2, 3:
			if len(m[ino]) < inodeindex.NamesMax || slices.Contains(m[ino], p) {
				m.add(ino, p, ino%2 == 1)
				x.Add(ino, p.parent, []byte(p.name), ino%2 == 1)
			}
		case 4, 5:
			m.remove(ino, p)
			x.Remove(ino, p.parent, []byte(p.name))
		case 6: // a removal of what is there
			if all := m[ino]; len(all) > 0 {
				p := all[int(program[2])%len(all)]
				m.remove(ino, p)
				x.Remove(ino, p.parent, []byte(p.name))
			}
		case 7:
			if program[1] == 0 { // only what is added again stays
				x.Unsee()
				for ino := range m {
					if ino%4 == 0 {
						for _, p := range m[ino] {
							x.Add(ino, p.parent, []byte(p.name), false)
						}
					} else {
						delete(m, ino)
					}
				}
				x.RemoveUnseen()
			}
		}
	}
	compare(t, x, m)
}

// TestModel: an index has what a map would have.
func TestModel(t *testing.T) {
	for seed := range uint64(50) {
		random := rand.New(rand.NewPCG(seed, 1))
		program := make([]byte, 4*2000)
		for i := range program {
			program[i] = byte(random.Uint32())
		}
		steps(t, program)
	}
}

func FuzzModel(f *testing.F) {
	f.Add([]byte("\x00\x01\x02\x03\x04\x01\x02\x03"))
	f.Fuzz(steps)
}

// TestManyNames: of a file with more names than are remembered, others are found only by a walk,
// and the index says so when none of the remembered is left.
func TestManyNames(t *testing.T) {
	x := inodeindex.New(inodeindex.NewMemory(1 << 30))
	for i := range inodeindex.NamesMax + 5 {
		x.Add(2, 1, fmt.Appendf(nil, "name %d", i), false)
	}
	all := places(x, 2)
	if len(all) != inodeindex.NamesMax || x.Losses() != 0 {
		t.Fatalf("%d names are remembered, %d losses", len(all), x.Losses())
	}
	for _, p := range all {
		x.Remove(2, p.parent, []byte(p.name))
	}
	if x.Losses() != 1 {
		t.Error("the last name was removed, and nothing says that there are others")
	}
}

// TestAddIf: a name that was removed after it was seen is not added.
func TestAddIf(t *testing.T) {
	x := inodeindex.New(inodeindex.NewMemory(1 << 30))
	seen := x.Removals()
	x.Remove(5, 1, []byte("a"))
	if x.AddIf(seen, 5, 1, []byte("a"), false) || len(places(x, 5)) != 0 {
		t.Error("a name that was removed meanwhile was added")
	}
	if !x.AddIf(x.Removals(), 5, 1, []byte("a"), false) || len(places(x, 5)) != 1 {
		t.Error("the name was not added")
	}
}

// TestRemoveSuspect: a name that may be wrong stays if it was added again since it was suspected.
func TestRemoveSuspect(t *testing.T) {
	for _, again := range []bool{false, true} {
		x := inodeindex.New(inodeindex.NewMemory(1 << 30))
		x.Add(5, 1, []byte("a"), false)
		x.Add(5, 1, []byte("b"), false)
		x.Suspect(5, 1, []byte("a"))
		if again {
			x.Add(5, 1, []byte("a"), false)
		}
		names := 1
		if again {
			names = 2
		}
		if trusted, n := x.RemoveSuspect(5, 1, []byte("a")), len(places(x, 5)); trusted != again || n != names {
			t.Errorf("added again %v: trusted %v, %d names", again, trusted, n)
		}
		if x.RemoveSuspect(5, 1, []byte("c")) {
			t.Error("a name that is not known is trusted")
		}
	}
}

// TestLimit: past its limit an index forgets files that were not used, and says so; the
// directories stay.
func TestLimit(t *testing.T) {
	const limit = 4 << 20
	x := inodeindex.New(inodeindex.NewMemory(limit))
	for i := range uint64(1000) {
		x.Add(1_000_000+i, 1, fmt.Appendf(nil, "directory %d", i), true)
	}
	for i := range uint64(300_000) {
		x.Add(2_000_000+i, 1_000_000+i%1000, fmt.Appendf(nil, "file %d", i), false)
		if i%1000 == 0 && len(places(x, 2_000_000)) != 1 {
			t.Fatal("a file that is used often was forgotten")
		}
	}
	names, bytes := x.Size()
	if bytes > limit*3/2 || names < 10_000 {
		t.Errorf("%d names take %d bytes, with a limit of %d", names, bytes, limit)
	}
	if x.Losses() == 0 {
		t.Error("nothing says that files were forgotten")
	}
	for i := range uint64(1000) {
		if len(places(x, 1_000_000+i)) != 1 {
			t.Fatalf("directory %d was forgotten", i)
		}
	}
}

// TestMemoryIsShared: of indexes with one Memory the one with most names forgets; when it is closed,
// there is room again.
func TestMemoryIsShared(t *testing.T) {
	const limit = 4 << 20
	m := inodeindex.NewMemory(limit)
	large, small := inodeindex.New(m), inodeindex.New(m)
	fill := func(x *inodeindex.Index, files uint64) {
		for i := range files {
			x.Add(1000+i, 1, fmt.Appendf(nil, "file %d", i), false)
		}
	}
	fill(large, 300_000)
	fill(small, 20_000)
	if large.Losses() == 0 || small.Losses() != 0 {
		t.Errorf("%d times the large one forgot some, %d times the small one", large.Losses(), small.Losses())
	}
	_, a := large.Size()
	_, b := small.Size()
	if a+b > 2*limit {
		t.Errorf("the two take %d bytes, with a limit of %d", a+b, limit)
	}
	large.Close()
	fill(small, 50_000)
	if names, _ := small.Size(); names != 50_000 || small.Losses() != 0 {
		t.Errorf("alone it has %d names, want 50000", names)
	}
	small.Close()
	if words := m.Words(); words != 0 {
		t.Errorf("%d words are not given back", words)
	}
}

// TestConcurrently: names are found while others come and go.
func TestConcurrently(t *testing.T) {
	x := inodeindex.New(inodeindex.NewMemory(1 << 30))
	for ino := range uint64(1000) {
		x.Add(ino, 1, fmt.Appendf(nil, "stays %d", ino), false)
	}
	var wg sync.WaitGroup
	for g := range uint64(4) {
		wg.Go(func() {
			for n := range uint64(5000) {
				ino := n % 1000
				name := fmt.Appendf(nil, "other %d", g)
				x.Add(ino, 1, name, false)
				if !slices.Contains(places(x, ino), place{1, fmt.Sprintf("stays %d", ino)}) {
					// names move while others are removed: a second look must find it
					x.Add(ino, 1, fmt.Appendf(nil, "stays %d", ino), false)
				}
				x.Remove(ino, 1, name)
			}
		})
	}
	wg.Wait()
	for ino := range uint64(1000) {
		if got := places(x, ino); len(got) != 1 {
			t.Fatalf("inode %d has the names %v", ino, got)
		}
	}
}

// TestMemory: a file takes at most 64 bytes.
func TestMemory(t *testing.T) {
	const files = 300_000
	heap := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before := heap()
	x := inodeindex.New(inodeindex.NewMemory(1 << 30))
	name := make([]byte, 0, 64)
	for i := range uint64(files) {
		name = fmt.Appendf(name[:0], "file-%06d.data", i) // 16 bytes
		x.Add(100+i, 1+i/1000, name, false)
	}
	each := float64(heap()-before) / files
	_, bytes := x.Size()
	t.Logf("%.1f bytes of heap for a file with a name of 16 bytes, %.1f by its own account", each, float64(bytes)/files)
	if each > 64 {
		t.Errorf("%.1f bytes for a file", each)
	}
	runtime.KeepAlive(x)
}

func BenchmarkName(b *testing.B) {
	x := inodeindex.New(inodeindex.NewMemory(1 << 30))
	for i := range uint64(1_000_000) {
		x.Add(100+i, 1, fmt.Appendf(nil, "file-%06d.data", i), false)
	}
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		var buf [256]byte
		for i := rand.Uint64(); pb.Next(); i += 7919 {
			x.Name(100+i%1_000_000, 0, &buf)
		}
	})
}

func BenchmarkAddKnown(b *testing.B) {
	x := inodeindex.New(inodeindex.NewMemory(1 << 30))
	for i := range uint64(1_000_000) {
		x.Add(100+i, 1, fmt.Appendf(nil, "file-%06d.data", i), false)
	}
	name := []byte("file-000000.data")
	b.ReportAllocs()
	for b.Loop() {
		x.Add(100, 1, name, false)
	}
}

package nfsbench

import (
	"slices"
	"testing"
)

// oneFile answers for a server with one file.
type oneFile struct {
	calls
	data []byte
}

func (o *oneFile) touch(_, _ []byte) ([]byte, error)     { return []byte("own"), nil }
func (o *oneFile) open(_, _ []byte) (file, error)        { return file{fh: []byte("own")}, nil }
func (o *oneFile) close(*file) error                     { return nil }
func (o *oneFile) remove(_, _ []byte) error              { return nil }
func (o *oneFile) commit([]byte) (v verifier, err error) { return v, nil }

func (o *oneFile) write(p *filler, _ *file, seed, offset uint64, n int, _ bool) (written, error) {
	o.data = slices.Grow(o.data, mebibyte)[:mebibyte]
	copy(o.data[offset:], p.append(nil, seed, offset, n))
	return written{count: n}, nil
}

func (o *oneFile) read(_ *file, offset uint64, n int) (data []byte, eof bool, err error) {
	return o.data[offset:][:n], false, nil
}

// A timer may end a phase a little early. The rest of the turn is a phase then, in which a worker may write nothing.
func TestOwnDataAfterAPhase(t *testing.T) {
	for _, phases := range []int{1, 2} {
		s := &benchmark{filler: newFiller(), seed: 7, rtmax: mebibyte, wtmax: mebibyte}
		w := &worker{benchmark: s, calls: &oneFile{}}
		for phase := range phases {
			if err := makeOwnData(w); err != nil {
				t.Fatal(err)
			}
			if phase == 0 {
				if _, err := opWriteOwn(w); err != nil {
					t.Fatal(err)
				}
			}
		}
		if err := checkOwn(w); err != nil {
			t.Errorf("%d phases: %v", phases, err)
		}
	}
}

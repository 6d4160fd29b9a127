package history

import (
	"bytes"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// op is a call from one second to another.
func op(client int, kind Kind, value int64, from, until int) Op {
	return Op{Kind: kind, Client: client, Node: client, Key: "k", Value: value, Call: time.Duration(from) * time.Second, Return: time.Duration(until) * time.Second}
}

func locked(o Op) Op { o.Holder = true; return o }

func failed(o Op) Op { o.Err = "input/output error"; return o }

func fault(from, until int, f Fault) []Fault {
	f.From, f.Until = time.Duration(from)*time.Second, time.Duration(until)*time.Second
	return []Fault{f}
}

// What is linearizable, or what NFS does, passes, and the same with a mistake does not.
func TestCheck(t *testing.T) {
	tests := []struct {
		name   string
		ops    []Op
		faults []Fault
		wrong  string // part of what is said; empty: nothing is wrong
	}{
		{"in turn", []Op{op(0, Write, 1, 0, 1), op(1, Read, 1, 2, 3), op(1, Write, 2, 4, 5), op(0, Read, 2, 6, 7)}, nil, ""},
		{"at the same time", []Op{op(0, Write, 1, 0, 5), op(1, Read, 0, 1, 2), op(1, Read, 1, 3, 4)}, nil, ""},
		{"a lost update", []Op{op(0, Write, 1, 0, 1), op(1, Write, 2, 2, 3), op(0, Read, 1, 4, 5)}, nil, "not linearizable"},
		{"an empty register that was written", []Op{op(0, Write, 1, 0, 1), op(1, Read, 0, 2, 3)}, nil, "not linearizable"},
		{"back and forth", []Op{op(0, Write, 1, 0, 9), op(1, Read, 1, 1, 2), op(1, Read, 0, 3, 4)}, nil, "not linearizable"},
		{"what nobody wrote", []Op{op(0, Read, 7, 0, 1)}, nil, "not linearizable"},
		{
			"carried out twice around a kill",
			[]Op{op(0, Write, 1, 0, 9), op(1, Read, 1, 1, 2), op(1, Write, 2, 3, 4), op(1, Read, 2, 5, 6), op(1, Read, 1, 10, 11)},
			fault(2, 8, Fault{Repeats: true}), "",
		},
		{
			"carried out twice, and nobody was killed",
			[]Op{op(0, Write, 1, 0, 9), op(1, Read, 1, 1, 2), op(1, Write, 2, 3, 4), op(1, Read, 2, 5, 6), op(1, Read, 1, 10, 11)},
			nil, "not linearizable",
		},
		{
			"lost in a kill",
			[]Op{op(0, Write, 1, 0, 1), op(0, Write, 2, 2, 5), op(1, Read, 1, 10, 11)},
			fault(2, 8, Fault{Repeats: true}), "not linearizable",
		},
		{
			"a failed write is there or not",
			[]Op{op(0, Write, 1, 0, 1), failed(op(0, Write, 2, 2, 3)), op(1, Read, 2, 4, 5), op(1, Read, 1, 6, 7), op(1, Write, 3, 8, 9), op(1, Read, 3, 10, 11)},
			fault(2, 4, Fault{DiskFails: true}), "",
		},
		{
			"a failed write comes back",
			[]Op{op(0, Write, 1, 0, 1), failed(op(0, Write, 2, 2, 3)), op(1, Write, 3, 8, 9), op(1, Read, 2, 10, 11)},
			fault(2, 4, Fault{DiskFails: true}), "not linearizable",
		},
		{
			"lost when the disk failed",
			[]Op{op(0, Write, 1, 0, 1), op(0, Write, 2, 2, 3), op(1, Read, 1, 10, 11)},
			fault(2, 4, Fault{DiskFails: true}), "not linearizable",
		},
		{"a failure without a reason", []Op{failed(op(0, Write, 2, 2, 3))}, fault(5, 6, Fault{DiskFails: true}), "without a reason"},
		{"another node's failure", []Op{failed(locked(op(0, Write, 2, 2, 3)))}, fault(1, 6, Fault{LosesLocks: []int{1}}), "without a reason"},

		{"one after the other", []Op{op(0, Lock, 0, 0, 1), op(1, Busy, 0, 2, 3), op(1, Lock, 0, 2, 6), op(0, Unlock, 0, 4, 5), op(1, Unlock, 0, 7, 8)}, nil, ""},
		{"two holders", []Op{op(0, Lock, 0, 0, 1), op(1, Lock, 0, 2, 3), op(0, Unlock, 0, 4, 5), op(1, Unlock, 0, 4, 5)}, nil, "not linearizable"},
		{
			"free, and kept for who has waited",
			[]Op{op(0, Lock, 0, 0, 1), op(1, Lock, 0, 2, 12), op(0, Unlock, 0, 3, 4), op(2, Busy, 0, 5, 6), op(2, Lock, 0, 7, 8), op(2, Unlock, 0, 9, 10), op(1, Unlock, 0, 13, 14)},
			nil, "",
		},
		{"nobody has it", []Op{op(0, Lock, 0, 0, 1), op(0, Unlock, 0, 2, 3), op(1, Busy, 0, 4, 5)}, nil, "not linearizable"},
		{
			"two holders around a kill",
			[]Op{op(0, Lock, 0, 0, 1), op(1, Lock, 0, 2, 3), op(0, Unlock, 0, 4, 5), op(1, Unlock, 0, 4, 5)},
			fault(0, 9, Fault{Repeats: true}), "not linearizable",
		},
		{
			"a lost lock",
			[]Op{op(0, Lock, 0, 0, 1), op(1, Lock, 0, 2, 3), locked(op(1, Write, 5, 4, 5)), failed(locked(op(0, Write, 6, 4, 5))), op(0, Unlock, 0, 6, 7), locked(op(1, Read, 5, 8, 9)), op(1, Unlock, 0, 10, 11)},
			fault(1, 6, Fault{LosesLocks: []int{0}}), "",
		},
		{
			"a lost lock, and a write by it",
			[]Op{op(0, Lock, 0, 0, 1), op(1, Lock, 0, 2, 3), locked(op(0, Write, 6, 4, 5)), op(0, Unlock, 0, 6, 7), op(1, Unlock, 0, 6, 7)},
			fault(1, 6, Fault{LosesLocks: []int{0}}), "not linearizable",
		},
		{
			"a lost lock, and a failed write by it that is there",
			[]Op{op(0, Lock, 0, 0, 1), op(1, Lock, 0, 2, 3), failed(locked(op(0, Write, 6, 4, 5))), op(0, Unlock, 0, 6, 7), locked(op(1, Read, 6, 8, 9)), op(1, Unlock, 0, 10, 11)},
			fault(1, 6, Fault{LosesLocks: []int{0}}), "not linearizable",
		},
		{
			"the lock of a node that can't lose it",
			[]Op{op(0, Lock, 0, 0, 1), op(1, Lock, 0, 2, 3), op(0, Unlock, 0, 4, 5), op(1, Unlock, 0, 6, 7)},
			fault(1, 6, Fault{LosesLocks: []int{1}}), "not linearizable",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			found := Check(tt.ops, tt.faults, time.Minute)
			if tt.wrong == "" && len(found) > 0 {
				t.Errorf("%v", found)
			}
			if tt.wrong != "" && (len(found) != 1 || !strings.Contains(found[0].String(), tt.wrong)) {
				t.Errorf("%v, want %q", found, tt.wrong)
			}
		})
	}
}

func TestDraw(t *testing.T) {
	found := Check([]Op{op(0, Write, 1, 0, 1), op(1, Read, 0, 2, 3)}, nil, time.Minute)
	if len(found) != 1 || len(found[0].Near) != 2 {
		t.Fatalf("%v", found)
	}
	path := filepath.Join(t.TempDir(), "picture.html")
	if err := found[0].Draw(path); err != nil {
		t.Fatal(err)
	}
	if b, err := os.ReadFile(path); err != nil || !bytes.Contains(b, []byte("client 1 of node 1: read k")) {
		t.Errorf("the picture lacks the call: %v", err)
	}
}

// run is a history of clients that take a lock, read, write, and let go, one after the other.
func run(calls int) (ops []Op) {
	now, value := time.Duration(0), int64(0)
	call := func(o Op) {
		o.Key, o.Node, o.Call = "k", o.Client, now
		now += time.Millisecond
		o.Return = now
		now += time.Millisecond
		ops = append(ops, o)
	}
	for i := range calls {
		client := i % 3
		call(Op{Client: client, Kind: Lock})
		call(Op{Client: client, Kind: Read, Holder: true, Value: value})
		value++
		call(Op{Client: client, Kind: Write, Holder: true, Value: value})
		call(Op{Client: client, Kind: Unlock})
	}
	return ops
}

// Any one update that is lost from a long history is found.
func TestLostUpdate(t *testing.T) {
	ops := run(500)
	if found := Check(slices.Clone(ops), nil, time.Minute); len(found) > 0 {
		t.Fatalf("%v", found)
	}
	for range 20 {
		lost := 4*rand.IntN(499) + 2 // a write that another reads
		found := Check(slices.Delete(slices.Clone(ops), lost, lost+1), nil, time.Minute)
		if len(found) != 1 {
			t.Errorf("without %v: %d violations", ops[lost], len(found))
		}
	}
}

func TestCheckLines(t *testing.T) {
	a, b, c := op(0, Append, 1, 0, 1), op(1, Append, 2, 2, 3), op(0, Append, 3, 4, 5)
	one, two, three := string(Line(1)), string(Line(2)), string(Line(3))
	for _, tt := range []struct {
		name, content string
		ops           []Op
		wrong         string
	}{
		{"all", one + two + three, []Op{a, b, c}, ""},
		{"one is lost", one + three, []Op{a, b, c}, "line 2 was appended"},
		{"the last is lost", one + two, []Op{a, b, c}, "line 3 was appended"},
		{"one twice", one + two + two + three, []Op{a, b, c}, "line 2 is there at"},
		{"another order", two + one + three, []Op{a, b, c}, "not in the order"},
		{"a hole", one + two + "\x00\x00" + three, []Op{a, b, c}, "is no line"},
		{"a strange line", one + two + three + string(Line(9)), []Op{a, b, c}, "nobody has appended"},
		{"a failed one is there", one + two + three, []Op{a, failed(b), c}, ""},
		{"a failed one is not there", one + three, []Op{a, failed(b), c}, ""},
		{"a failed one is there in part", one + two[:9] + three, []Op{a, failed(b), c}, ""},
		{"a failed one is there twice", one + two + two + three, []Op{a, failed(b), c}, "line 2 is there at"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			found := CheckLines([]byte(tt.content), tt.ops)
			if tt.wrong == "" && len(found) > 0 || tt.wrong != "" && (len(found) == 0 || !strings.Contains(found[0].String(), tt.wrong)) {
				t.Errorf("%v, want %q", found, tt.wrong)
			}
		})
	}
}

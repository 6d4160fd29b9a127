package nfsbench

import (
	"encoding/binary"
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/podnas/podnas/nfs/rpc"
	"github.com/podnas/podnas/test/conformance/nfstest"
)

// atOnce is a server that answers every call with the same results, and those
// that have come together in one write.
func atOnce(t testing.TB, results []byte) net.Listener {
	t.Helper()
	l := nfstest.Listen(t)
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go answerAtOnce(conn, results)
		}
	}()
	return l
}

func answerAtOnce(conn net.Conn, results []byte) {
	defer conn.Close()
	in, out := make([]byte, 0, 256<<10), []byte(nil)
	for {
		n, err := conn.Read(in[len(in):cap(in)])
		if err != nil {
			return
		}
		in = in[:len(in)+n]
		out = out[:0]
		for len(in) >= 8 {
			size := 4 + int(binary.BigEndian.Uint32(in)&^(1<<31))
			if len(in) < size {
				break
			}
			var at int
			out, at = rpc.BeginRecord(out)
			h := rpc.ReplyHeader{XID: binary.BigEndian.Uint32(in[4:])}
			out = append(h.Append(out), results...)
			rpc.EndRecord(out, at)
			in = append(in[:0], in[size:]...)
		}
		if _, err := conn.Write(out); err != nil {
			return
		}
	}
}

// connected is a benchmark without a server's export: enough for calls.
func connected(t testing.TB, l net.Listener, connections, depth int) *benchmark {
	t.Helper()
	target := Target{Host: "127.0.0.1", Port: uint16(l.Addr().(*net.TCPAddr).Port)}
	s := &benchmark{cfg: &Config{Connections: connections, Depth: depth, Patience: 10 * time.Second}, target: target, filler: newFiller()}
	s.proto = newProtocol(s.cfg, target)
	if err := s.connect(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.disconnect)
	return s
}

// A call costs no memory once the buffers have their sizes.
func TestCallsAllocateNothing(t *testing.T) {
	attr := make([]byte, 4+84)
	attr[7] = 1 // a regular file
	s := connected(t, atOnce(t, attr), 1, 1)
	w := s.workers[0]
	w.files = make([][]byte, smallFiles)
	allocs := testing.AllocsPerRun(1000, func() {
		if _, err := opGetattr(w); err != nil {
			t.Fatal(err)
		}
	})
	// The server of this test is counted too.
	if allocs >= 1 {
		t.Errorf("%v allocations for a GETATTR", allocs)
	}
}

// The rate of this is what the client can do at most, with a server in the same
// process that does next to nothing; a server's own rate must stay well below it.
func BenchmarkNull(b *testing.B) {
	for _, depth := range []int{1, 8, 64} {
		b.Run(fmt.Sprintf("2x%d", depth), func(b *testing.B) {
			s := connected(b, atOnce(b, nil), 2, depth)
			b.ReportAllocs()
			b.ResetTimer()
			if err := s.share(b.Context(), b.N, func(w *worker, _ int) error { return w.null() }); err != nil {
				b.Fatal(err)
			}
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "calls/s")
		})
	}
}

// What a megabyte costs the client to read, and to look at.
func BenchmarkCheck(b *testing.B) {
	f := newFiller()
	data := f.append(nil, 1, 0, mebibyte)
	b.SetBytes(mebibyte)
	for b.Loop() {
		if err := f.check(data, 1, 0); err != nil {
			b.Fatal(err)
		}
	}
}

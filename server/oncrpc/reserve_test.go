package oncrpc_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/podnas/podnas/nfs/rpc"
	"github.com/podnas/podnas/nfs/xdr"
	"github.com/podnas/podnas/server/oncrpc"
)

// A handler that has begun gets room for more results as long as the connection may have the memory, never waits for it, and keeps what
// it has appended. All memory is given back in the end.
func TestTryReserve(t *testing.T) {
	for name, c := range map[string]struct {
		total int64
		want  int // chunks of 64 KiB
	}{
		"enough":   {64 << 20, 16},
		"scarce":   {4 << 20, 16}, // a first large call is for every address
		"too few":  {512 << 10, 4},
		"none":     {1, 0},
		"a little": {80 << 10, 1},
	} {
		t.Run(name, func(t *testing.T) {
			s := startServer(t, oncrpc.Limits{TotalBytes: c.total, ConnBytes: c.total})
			conn := s.dial()
			for range 2 {
				got, err := conn.Do(t.Context(), rpc.CallHeader{RPCVersion: rpc.Version, Prog: testProg, Vers: testVers, Proc: procMore}, nil)
				if err != nil {
					t.Fatal(err)
				}
				if len(got) != c.want*chunk {
					t.Errorf("%d bytes, want %d chunks", len(got), c.want)
				}
				for i := range len(got) / chunk {
					if want := bytes.Repeat([]byte{byte(i)}, chunk); !bytes.Equal(got[i*chunk:][:chunk], want) {
						t.Errorf("chunk %d has changed", i)
					}
				}
			}
			eventually(t, "memory is given back", func() bool { return s.server.Held() == "0 0" })
		})
	}
}

// Calls that hold the memory of large arguments, and want that of large results, do not wait for each other.
func TestReserveHoldsNothing(t *testing.T) {
	const clients = 4
	taken := oncrpc.Taken(1 << 20)
	for name, c := range map[string]struct {
		total int64
		want  rpc.AcceptStat
	}{
		"of the arguments alone": {clients * taken, rpc.SystemErr},
		"of both":                {8 * clients * taken, rpc.Success},
	} {
		t.Run(name, func(t *testing.T) {
			s := startServer(t, oncrpc.Limits{TotalBytes: c.total, ConnBytes: c.total})
			call := slices.Concat(record(1, procLarge), make([]byte, 1<<20-44))
			binary.BigEndian.PutUint32(call, 1<<31|uint32(len(call)-4))
			var conns []net.Conn
			for n := range clients {
				conn := s.connectFrom(net.IPv4(127, 0, 6, byte(n)))
				if _, err := conn.Write(call[:len(call)-1]); err != nil {
					t.Fatal(err)
				}
				eventually(t, "it is charged", func() bool { return strings.HasPrefix(s.server.Held(), fmt.Sprint(int64(n+1)*taken, " ")) })
				conns = append(conns, conn)
			}
			for _, conn := range conns {
				if _, err := conn.Write(call[len(call)-1:]); err != nil {
					t.Fatal(err)
				}
			}
			for _, conn := range conns {
				if err := conn.SetReadDeadline(time.Now().Add(10 * time.Second)); err != nil {
					t.Fatal(err)
				}
				b, err := rpc.ReadRecord(conn, nil, 2<<20)
				if err != nil {
					t.Fatal(err)
				}
				d := xdr.NewDecoder(b)
				var h rpc.ReplyHeader
				if h.Decode(&d); h.Accept != c.want && h.Accept != rpc.Success { // when others have ended there is room
					t.Errorf("answered with %v", h.Accept)
				}
			}
			eventually(t, "memory is given back", func() bool { return s.server.Held() == "0 0" })
			if n := s.stats.MemoryWaits.Load(); n != 0 {
				t.Errorf("%d have waited", n)
			}
		})
	}
}

// chunk is what moreChunks appends at a time, and chunks how often at most.
const chunk, chunks = 64 << 10, 16

// moreChunks appends as much as it gets room for. It never has a reply in memory that is nobody's.
func moreChunks(t testing.TB, c *oncrpc.Call) {
	for i := range chunks {
		if !c.TryReserve(chunk) {
			return
		}
		before := cap(c.Reply)
		c.Reply = append(c.Reply, bytes.Repeat([]byte{byte(i)}, chunk)...)
		if cap(c.Reply) != before {
			t.Error("there was no room after all")
		}
	}
	if !c.TryReserve(1 << 30) {
		t.Error("the largest reply has no more, and that is there")
	}
}

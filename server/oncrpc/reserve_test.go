package oncrpc_test

import (
	"bytes"
	"testing"

	"github.com/podnas/podnas/nfs/rpc"
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

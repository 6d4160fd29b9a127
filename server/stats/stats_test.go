package stats_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/podnas/podnas/server/stats"
)

func address(n int) netip.Addr { return netip.AddrFrom4([4]byte{192, 0, byte(n >> 8), byte(n)}) }

func client(n int) netip.AddrPort { return netip.AddrPortFrom(address(n), 1000) }

func serve(c *stats.Conn, v *stats.Volume, status stats.Status, took time.Duration, read, written int) {
	var call stats.Call
	c.Begin(&call, 1)
	time.Sleep(took)
	call.Volume, call.Read, call.Written = v, read, written
	c.End(&call, status, 7)
}

func TestWhatIsCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := stats.New([]string{"NULL", "READ"}, nil)
		var v, other stats.Volume
		a, b := s.Connect(client(1)), s.Connect(client(2))
		serve(a, &v, 0, 20*time.Microsecond, 4096, 0)
		serve(a, &v, 70, 3*time.Second, 0, 0)
		serve(b, &v, 0, 20*time.Second, 0, 100)
		serve(b, &other, 10001, 0, 0, 0)
		serve(b, nil, stats.RPCError+4, 0, 0, 0)
		serve(b, nil, 4711, 0, 0, 0)
		var open stats.Call
		a.Begin(&open, 0)
		b.Close()

		snap := s.Snapshot()
		if c := snap.Connections; c.Open != 1 || c.Accepted != 2 || snap.InFlight != 1 {
			t.Errorf("connections %+v, %d calls in flight", c, snap.InFlight)
		}
		read := snap.Procedures[1]
		if read.Name != "READ" || fmt.Sprint(read.Statuses) != fmt.Sprint([]stats.StatusCount{{0, 2}, {70, 1}, {10001, 1}, {stats.RPCError + 4, 1}, {stats.Other, 1}}) {
			t.Errorf("%s: %v", read.Name, read.Statuses)
		}
		d := read.Durations
		if d.Count != 6 || d.Sum != 23*time.Second+20*time.Microsecond || d.Buckets[0] != 3 || d.Buckets[3] != 1 || d.Buckets[19] != 1 || d.Buckets[stats.Buckets-1] != 1 {
			t.Errorf("durations %+v", d)
		}
		if null := snap.Procedures[0]; len(null.Statuses) != 0 || null.Durations.Count != 0 {
			t.Errorf("a call that has not ended is counted: %+v", null)
		}
		if got := v.Traffic(); got != (stats.Traffic{3, 4096, 100}) {
			t.Errorf("volume: %+v", got)
		}
		if got := other.Traffic(); got != (stats.Traffic{1, 0, 0}) {
			t.Errorf("other volume: %+v", got)
		}
		var clients []string
		for _, c := range snap.Clients {
			clients = append(clients, fmt.Sprint(c.Address, c.Connections, c.Traffic, c.Seen.IsZero()))
		}
		want := []string{"invalid IP0 {0 0 0} true", "192.0.0.1 1 {2 4096 0} false", "192.0.0.2 0 {4 0 100} false"}
		if len(clients) != 3 || strings.ReplaceAll(fmt.Sprint(clients), " ", "") != strings.ReplaceAll(fmt.Sprint(want), " ", "") {
			t.Errorf("clients %q, want %q", clients, want)
		}
		seen := s.ClientsOf(&v)
		if len(seen) != 2 || seen[0].Address != address(2) || time.Since(seen[0].Last) > stats.SeenEvery {
			t.Errorf("clients of the volume: %v", seen)
		}
		if seen := s.ClientsOf(&other); len(seen) != 1 || seen[0].Address != address(2) {
			t.Errorf("clients of the other: %v", seen)
		}

		a.End(&open, 0, 7)
		a.Close()
		serve(s.Connect(client(3)), &v, 0, 0, 0, 0)
		s.Read(&snap)
		if fresh := s.Snapshot(); !reflect.DeepEqual(snap, fresh) {
			t.Errorf("read into an older one: %+v\nand into a new one: %+v", snap, fresh)
		}
	})
}

// However many clients there are, the numbers of those remembered are bounded, and
// nothing is lost of the sum.
func TestClientsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := stats.New([]string{"NULL", "READ"}, nil)
		var v stats.Volume
		total := func() (calls uint64, named int) {
			for _, c := range s.Snapshot().Clients {
				calls += c.Calls
				if c.Address.IsValid() {
					named++
				}
			}
			return calls, named
		}
		const many = 3 * stats.ClientsMax
		var open []*stats.Conn
		for n := range many {
			c := s.Connect(client(n))
			serve(c, &v, 0, time.Millisecond, 0, 0)
			open = append(open, c)
		}
		if calls, named := total(); calls != many || named != stats.ClientsMax {
			t.Errorf("all connected: %d calls, %d clients", calls, named)
		}
		for _, c := range open {
			c.Close()
		}
		time.Sleep(time.Minute)
		latecomer := s.Connect(client(many))
		serve(latecomer, &v, 0, 0, 0, 0)
		if calls, named := total(); calls != many+1 || named != stats.ClientsMax {
			t.Errorf("one more: %d calls, %d clients", calls, named)
		}
		if seen := s.ClientsOf(&v); seen[0].Address != address(many) {
			t.Errorf("the latest in the volume is %v", seen[0])
		}
		time.Sleep(stats.ClientForget)
		if calls, named := total(); calls != many+1 || named != 1 {
			t.Errorf("an hour later: %d calls, %d clients", calls, named)
		}
		// A client that replaces a forgotten one does not get its volumes.
		var places int
		for n := range stats.ClientsMax - 1 {
			s.Connect(client(1000 + n))
			places++
		}
		for _, seen := range s.ClientsOf(&v) {
			if seen.Address.IsValid() && seen.Address != address(many) {
				t.Errorf("%v was never in the volume", seen.Address)
			}
		}
	})
}

func TestManyAtOnce(t *testing.T) {
	s := stats.New([]string{"NULL", "READ"}, nil)
	var v stats.Volume
	const conns, calls = 16, 1000
	var wg sync.WaitGroup
	for n := range conns {
		wg.Go(func() {
			c := s.Connect(client(n % 4))
			defer c.Close()
			for range calls {
				serve(c, &v, 0, 0, 1, 2)
			}
		})
	}
	for range 10 {
		if snap := s.Snapshot(); snap.InFlight > conns {
			t.Errorf("%d calls in flight", snap.InFlight)
		}
	}
	wg.Wait()
	if got := v.Traffic(); got != (stats.Traffic{conns * calls, conns * calls, 2 * conns * calls}) {
		t.Errorf("volume: %+v", got)
	}
	if snap := s.Snapshot(); snap.InFlight != 0 || snap.Connections.Open != 0 || snap.Procedures[1].Durations.Count != conns*calls {
		t.Errorf("%+v", snap)
	}
}

func TestSlowLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		names := func(s stats.Status) string { return fmt.Sprint("status-", uint32(s)) }
		s := stats.New([]string{"NULL", "READ"}, stats.NewSlowLog(time.Second, names, slog.New(slog.NewTextHandler(&out, nil))))
		v := stats.Volume{Name: "/volume"}
		c := s.Connect(client(1))
		serve(c, &v, 5, time.Second-1, 0, 0)
		if out.Len() > 0 {
			t.Errorf("of a fast call: %s", &out)
		}
		serve(c, &v, 5, time.Second, 0, 0)
		for _, want := range []string{"level=WARN", "procedure=READ", "volume=/volume", "client=192.0.0.1", "xid=7", "duration=1s", "status=status-5"} {
			if !strings.Contains(out.String(), want) {
				t.Errorf("no %s in %s", want, &out)
			}
		}
		out.Reset()
		var wg sync.WaitGroup
		for range 1000 {
			wg.Go(func() { serve(c, &v, 5, time.Minute, 0, 0) })
		}
		wg.Wait()
		if n := strings.Count(out.String(), "\n"); n != stats.SlowBurst {
			t.Errorf("%d lines of 1000 slow calls", n)
		}
		time.Sleep(time.Minute)
		serve(c, &v, 5, time.Minute, 0, 0)
		withheld := 0 // some may stand in a line of the burst
		for _, line := range strings.Split(out.String(), "\n") {
			var n int
			if _, after, ok := strings.Cut(line, "withheld="); ok {
				_, _ = fmt.Sscan(after, &n)
			}
			withheld += n
		}
		if withheld != 1000-stats.SlowBurst {
			t.Errorf("the lines tell of %d that were withheld: %s", withheld, &out)
		}
	})
	if stats.NewSlowLog(0, nil, nil) != nil {
		t.Error("a limit of 0 tells of calls")
	}
}

func TestQuantile(t *testing.T) {
	var d stats.Durations
	for range 90 {
		d.Add(20 * time.Microsecond)
	}
	for range 9 {
		d.Add(2 * time.Millisecond)
	}
	d.Add(time.Minute)
	s := d.Snapshot()
	for _, tt := range []struct {
		part     float64
		min, max time.Duration
	}{
		{0, 0, 25 * time.Microsecond},
		{0.5, 10 * time.Microsecond, 25 * time.Microsecond},
		{0.95, time.Millisecond, 2500 * time.Microsecond},
		{0.999, 10 * time.Second, 10 * time.Second},
	} {
		if q := s.Quantile(tt.part); q < tt.min || q > tt.max {
			t.Errorf("quantile %g is %v", tt.part, q)
		}
	}
	later := s
	later.Sub(&s)
	if q := later.Quantile(0.99); q != 0 || later.Count != 0 || later.Sum != 0 {
		t.Errorf("nothing since: %v, %+v", q, later)
	}
}

// Every status is counted in a slot of its own, or with the others.
func TestStatusSlots(t *testing.T) {
	for slot := range stats.Slots {
		if got := stats.SlotOf(stats.StatusOf(slot)); got != slot {
			t.Errorf("slot %d is of status %d, which is at %d", slot, stats.StatusOf(slot), got)
		}
	}
}

func BenchmarkCall(b *testing.B) {
	s := stats.New([]string{"NULL", "READ"}, nil)
	c := s.Connect(client(1))
	var v stats.Volume
	b.ReportAllocs()
	for b.Loop() {
		call := stats.Call{Volume: &v, Read: 4096}
		c.Begin(&call, 1)
		c.End(&call, 0, 1)
	}
}

// The server's own probes are in no number, and only who has bound an address beforehand
// is taken for one.
func TestOwnProbes(t *testing.T) {
	s := stats.New([]string{"NULL", "READ"}, stats.NewSlowLog(time.Millisecond, func(stats.Status) string { return "" }, slog.New(slog.DiscardHandler)))
	forget := s.Own(client(1))
	probe := s.Connect(client(1))
	forget()
	serve(probe, nil, 0, 0, 0, 0)
	probe.Reject()
	var open stats.Call
	probe.Begin(&open, 0)
	snap := s.Snapshot()
	if c := snap.Connections; c.Open != 0 || c.Accepted != 0 || snap.InFlight != 0 || snap.Rejected != 0 || len(snap.Clients) != 1 {
		t.Errorf("%+v", snap)
	}
	for _, p := range snap.Procedures {
		if p.Durations.Count != 0 || len(p.Statuses) != 0 {
			t.Errorf("%+v", p)
		}
	}
	probe.End(&open, 0, 1)
	probe.Close()
	if snap := s.Snapshot(); snap.Connections.Open != 0 || snap.Procedures[0].Durations.Count != 0 {
		t.Errorf("%+v", snap)
	}
	// The address is anybody's from now on, and its neighbor has always been.
	defer s.Own(client(2))()
	for _, from := range []netip.AddrPort{client(1), netip.AddrPortFrom(address(2), 1001)} {
		c := s.Connect(from)
		serve(c, nil, 0, 0, 0, 0)
	}
	if snap := s.Snapshot(); snap.Connections.Open != 2 || len(snap.Clients) != 3 {
		t.Errorf("%+v", snap)
	}
}

// A probe of the port, which makes no call, is no client. Whoever holds a connection is,
// and so is who makes calls that are not understood.
func TestConnectionWithoutCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := stats.New([]string{"NULL", "READ"}, nil)
		listed := func() (n int) { return len(s.Snapshot().Clients) - 1 }
		probe := s.Connect(client(1))
		if listed() != 0 {
			t.Error("a probe is listed while it is there")
		}
		time.Sleep(stats.ClientShown / 2)
		probe.Close()
		if listed() != 0 {
			t.Error("a probe is listed when it has gone")
		}
		idle := s.Connect(client(2))
		time.Sleep(stats.ClientShown)
		if listed() != 1 {
			t.Error("an idle connection's client is not listed")
		}
		idle.Close()
		garbage := s.Connect(client(3))
		garbage.Reject()
		garbage.Close()
		if listed() != 1 || s.Snapshot().Clients[1].Calls != 1 {
			t.Error("who makes calls that are not understood is not listed")
		}
	})
}

// Who uses version 3 is told from who uses version 4, and from who only looks whether a server is there.
func TestVersion3(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		procedures := []string{"NULL", "READ", "MNT", "NULL4", "COMPOUND", "EXPORT"}
		s := stats.New(procedures, nil)
		call := func(c *stats.Conn, procedure string) {
			var call stats.Call
			c.Begin(&call, slices.Index(procedures, procedure))
			c.End(&call, 0, 1)
		}
		mounts, reads, node4, looks := s.Connect(client(1)), s.Connect(client(2)), s.Connect(client(3)), s.Connect(client(4))
		time.Sleep(time.Minute)
		call(mounts, "MNT")
		call(reads, "READ")
		for _, name := range []string{"NULL", "NULL4", "EXPORT"} {
			call(looks, name)
		}
		time.Sleep(time.Minute)
		call(reads, "READ")
		call(node4, "COMPOUND")
		since := map[string]time.Duration{}
		for _, c := range s.Snapshot().Clients {
			if !c.Seen3.IsZero() {
				since[c.Address.String()] = time.Since(c.Seen3)
			}
		}
		if want := map[string]time.Duration{address(1).String(): time.Minute, address(2).String(): 0}; !maps.Equal(since, want) {
			t.Errorf("calls by version 3 were so long ago: %v, want %v", since, want)
		}
	})
}

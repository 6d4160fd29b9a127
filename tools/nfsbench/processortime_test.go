package nfsbench

import (
	"errors"
	"math"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"testing"
	"time"
)

// What a process has worked counts, also on threads that have ended, and what it has slept does not.
func TestProcessorTime(t *testing.T) {
	before, err := readProcessorTime([]int{os.Getpid()})
	if err != nil {
		t.Fatal(err)
	}
	work := make(chan struct{})
	go func() {
		defer close(work)
		runtime.LockOSThread() // and its end is the thread's
		for start := time.Now(); time.Since(start) < 300*time.Millisecond; {
			var usage syscall.Rusage
			if syscall.Getrusage(1, &usage) == nil && time.Duration(usage.Utime.Nano()+usage.Stime.Nano()) > 100*time.Millisecond { // RUSAGE_THREAD
				return
			}
		}
	}()
	<-work
	after, err := readProcessorTime([]int{os.Getpid()})
	if err != nil {
		t.Fatal(err)
	}
	used := after.since(before)
	if used.exact <= 0 || used.exact > time.Minute || used.userShare() < 0 || used.userShare() > 1 {
		t.Errorf("%+v, of it user %v", used, used.userShare())
	}

	sleep := exec.Command("sleep", "60")
	if err := sleep.Start(); err != nil {
		t.Fatal(err)
	}
	one, err := readProcessorTime([]int{sleep.Process.Pid})
	if err != nil || one.exact > 10*time.Second {
		t.Errorf("sleep has used %v, %v", one.exact, err)
	}
	if two, err := readProcessorTime([]int{sleep.Process.Pid, os.Getpid()}); err != nil || two.exact < after.exact {
		t.Errorf("two processes used %v, less than the %v of one; %v", two.exact, after.exact, err)
	}
	_ = sleep.Process.Kill()
	_ = sleep.Wait()
	if _, err := readProcessorTime([]int{sleep.Process.Pid}); !errors.Is(err, syscall.EINVAL) && !errors.Is(err, syscall.ESRCH) {
		t.Errorf("a process that has ended: %v", err)
	}
}

// The process at the other end is found by both families, and no other.
func TestPeerProcess(t *testing.T) {
	for _, tt := range []struct{ listen, dial string }{
		{"127.0.0.1:0", "127.0.0.1"},
		{"[::1]:0", "::1"},
		{":0", "127.0.0.1"}, // IPv4 in a socket of IPv6
	} {
		l, err := net.Listen("tcp", tt.listen)
		if err != nil {
			t.Logf("%s: %v", tt.listen, err) // no IPv6
			continue
		}
		_, port, _ := net.SplitHostPort(l.Addr().String())
		conn, err := net.Dial("tcp", net.JoinHostPort(tt.dial, port))
		if err != nil {
			t.Fatal(err)
		}
		peer, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		if pid, ok := peerProcess(conn.LocalAddr(), conn.RemoteAddr()); !ok || pid != os.Getpid() {
			t.Errorf("%s: process %d, %v; want %d", tt.listen, pid, ok, os.Getpid())
		}
		for _, end := range []interface{ Close() error }{peer, conn, l} {
			if err := end.Close(); err != nil {
				t.Error(err)
			}
		}
	}
	elsewhere := net.TCPAddrFromAddrPort(netip.MustParseAddrPort("192.0.2.1:2049"))
	if pid, ok := peerProcess(elsewhere, elsewhere); ok {
		t.Errorf("another machine's connection is that of process %d", pid)
	}
}

// cost is a turn in which an operation took the server and the bench so many microseconds.
func cost(units, server, client int) *turnResult {
	r := turn(units)
	r.cost.server = processorTime{exact: time.Duration(units*server) * time.Microsecond, ticks: 4, userTicks: 1}
	r.cost.client = processorTime{exact: time.Duration(units*client) * time.Microsecond, ticks: 2, userTicks: 1}
	return r
}

func TestCosts(t *testing.T) {
	r := newReport(&Config{Targets: make([]Target, 2), Rounds: 3})
	r.add(&Load{Name: "null"}, [][]*turnResult{
		{cost(100, 10, 2), cost(200, 12, 4), cost(5, 90, 50)},
		{cost(10, 30, 2), cost(10, 48, 2), cost(10, 90, 2)},
	})
	ended := cost(10, 1, 1)
	ended.unknown = true
	r.add(&Load{Name: "getattr"}, [][]*turnResult{{ended}, {cost(10, 5, 1)}})
	r.add(&Load{Name: "lookup"}, [][]*turnResult{{turn(10)}, {turn(0)}})

	first := r.Loads[0]
	if got := first.Results[0].ServerCost; got.total() != 12 || got.User != 3 || got.System != 9 {
		t.Errorf("the median round's cost is %+v, want 3 of user and 9 of system", got)
	}
	if got := first.Results[0].ClientCost; got.total() != 4 || got.User != 2 {
		t.Errorf("client: %+v", got)
	}
	if got := first.CostRatio; got.Median != 3 || got.Min != 1 || got.Max != 4 {
		t.Errorf("%+v", got)
	}
	for _, l := range r.Loads[1:] {
		if l.Results[0].ServerCost != nil || l.CostRatio != nil {
			t.Errorf("%s has a cost: %+v, %+v", l.Load, l.Results[0].ServerCost, l.CostRatio)
		}
	}
	if math.Abs(r.CostGeometricMean-3) > 1e-9 {
		t.Errorf("geometric mean %v", r.CostGeometricMean)
	}
}

//go:build attack

package attack_test

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/podnas/podnas/nfs/nfs3"
	"github.com/podnas/podnas/nfs/nfs4"
	"github.com/podnas/podnas/nfs/rpc"
	"github.com/podnas/podnas/test/conformance/nfstest"
)

// The victims are a process of their own, so that what is measured is the server and
// not the attacker's own scheduler. They have another volume and other addresses.
//
//   - A node that has its volume mounted: GETATTR, a stable WRITE of 4 KiB, CREATE and
//     REMOVE of a file.
//   - One that comes anew: connect, MNT, GETATTR.
//   - kubelet: /readyz.
//   - A node with version 4.1: OPEN, LOCK, LOCKU and CLOSE, each of which takes the lock that guards what
//     clients of 4.1 have.
//
// Beside them a process only sleeps, and measures how late it wakes up: what the machine itself delays.

const (
	victimVolume  = "victim"
	mountedClient = "10.77.200.1"
	newClient     = "10.77.200.2"
	openingClient = "10.77.200.3"
	// victimTimeout is when a victim gives up, and counts as refused.
	victimTimeout = 20 * time.Second
)

// latency is of one kind of call.
type latency struct {
	N       int           `json:"n"`
	P50     time.Duration `json:"p50"`
	P99     time.Duration `json:"p99"`
	Max     time.Duration `json:"max"`
	Refused int           `json:"refused"`
	Why     string        `json:"why,omitempty"` // the first refusal
}

type latencies map[string]*latency

// victimOps are what is measured, in the order of the summary.
var victimOps = []string{"getattr", "write", "create", "connect", "ready", "open4"}

// measured collects times until they are asked for.
type measured struct {
	mu    sync.Mutex
	times map[string][]time.Duration
	said  map[string][]string
	begun map[string]time.Time // of the calls that are under way
}

// time makes a call and notes how long it took.
func (m *measured) time(op string, call func() error) {
	begin := time.Now()
	m.mu.Lock()
	m.begun[op] = begin
	m.mu.Unlock()
	err := call()
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.begun, op)
	m.times[op] = append(m.times[op], time.Since(begin))
	if err != nil {
		m.said[op] = append(m.said[op], err.Error())
	}
}

// report tells what there is and begins anew. A call that is under way counts with the
// time it has taken so far.
func (m *measured) report() latencies {
	m.mu.Lock()
	defer m.mu.Unlock()
	all := latencies{}
	for op, begin := range m.begun {
		if took := time.Since(begin); took > 100*time.Millisecond {
			m.times[op] = append(m.times[op], took)
		}
	}
	for op, times := range m.times {
		slices.Sort(times)
		l := &latency{N: len(times), P50: times[len(times)/2], P99: times[len(times)*99/100], Max: times[len(times)-1], Refused: len(m.said[op])}
		if l.Refused > 0 {
			l.Why = m.said[op][0]
		}
		all[op] = l
	}
	m.times, m.said = map[string][]time.Duration{}, map[string][]string{}
	return all
}

// victimMain is the process: it reports for each line that it reads, and ends with its
// input.
func victimMain() int {
	m := &measured{begun: map[string]time.Time{}}
	m.report()
	ctx := context.Background()
	node, root, err := mountFrom(ctx, mountedClient, victimVolume)
	if err != nil {
		fmt.Fprintln(os.Stderr, "victim:", err)
		return 1
	}
	go forEver(5*time.Millisecond, mountedVictim(ctx, m, node, root))
	go forEver(50*time.Millisecond, func(int) {
		m.time("connect", func() error {
			ctx, cancel := context.WithTimeout(ctx, victimTimeout)
			defer cancel()
			c, root, err := mountFrom(ctx, newClient, victimVolume)
			if err != nil {
				return err
			}
			defer c.Close()
			res, err := c.Getattr(ctx, root)
			return said(res.Status, err)
		})
	})
	go forEver(200*time.Millisecond, func(int) {
		m.time("ready", func() error { return ready(victimTimeout) })
	})
	if opening := openingVictim(ctx, m); opening != nil {
		go forEver(time.Millisecond, opening)
	}
	return m.reports()
}

// machineMain is the process that sleeps.
func machineMain() int {
	m := &measured{begun: map[string]time.Time{}}
	m.report()
	go forEver(0, func(int) {
		const pause = time.Millisecond
		begin := time.Now()
		time.Sleep(pause)
		m.add("machine", max(0, time.Since(begin)-pause))
	})
	return m.reports()
}

// reports reports for each line of the input.
func (m *measured) reports() int {
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		if err := json.NewEncoder(os.Stdout).Encode(m.report()); err != nil {
			return 1
		}
	}
	return 0
}

func (m *measured) add(op string, took time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.times[op] = append(m.times[op], took)
}

// openingVictim is what a node with version 4.1 does. It is nil where the server has none.
func openingVictim(ctx context.Context, m *measured) func(int) {
	conn, err := dialFrom(ctx, openingClient, nfsAddress)
	if err != nil {
		return nil
	}
	c := &client4{ctx: ctx, conn: rpc.NewClient(conn), cred: caller(0, 0), verifier: 1}
	if !c.introduce("an honest node") || !c.createSession() {
		return nil
	}
	if _, status := c.open(victimVolume, "opened", "first"); status != nfs4.OK {
		return nil
	}
	c.exists = true // what it waits for is not the disk
	timed := func(op func() nfs4.Status) {
		m.time("open4", func() error {
			c.err = nil
			if status := op(); status != nfs4.OK {
				return cmp.Or(c.err, errors.New(status.String()))
			}
			return nil
		})
	}
	return func(int) {
		var id, lock nfs4.Stateid
		n, ops := at(victimVolume, "opened")
		timed(func() (status nfs4.Status) {
			id, status = c.open(victimVolume, "opened", "x")
			return status
		})
		timed(func() (status nfs4.Status) {
			lock, status = c.lock(victimVolume, "opened", nfs4.LockArgs{
				Type: nfs4.LockWrite, Length: 1, NewOwner: true, OpenStateid: id, Owner: nfs4.StateOwner{ClientID: c.id, Owner: []byte("l")},
			})
			return status
		})
		timed(func() nfs4.Status {
			status, _ := c.sequenced(n+1, (&nfs4.LockuArgs{Type: nfs4.LockWrite, Stateid: lock, Length: 1}).Append(nfs4.OpLocku.Append(slices.Clone(ops))))
			return status
		})
		timed(func() nfs4.Status {
			status, _ := c.sequenced(n+1, (&nfs4.CloseArgs{Stateid: id}).Append(nfs4.OpClose.Append(slices.Clone(ops))))
			return status
		})
	}
}

// mountedVictim is what a node with a mount does.
func mountedVictim(ctx context.Context, m *measured, c *nfstest.Client, root nfs3.FH) func(int) {
	var file nfs3.FH
	data := make([]byte, 4<<10)
	timed := func(op string, call func(context.Context) (nfs3.Status, error)) {
		m.time(op, func() error {
			ctx, cancel := context.WithTimeout(ctx, victimTimeout)
			defer cancel()
			return said(call(ctx))
		})
	}
	return func(i int) {
		name := fmt.Sprint("v-", i)
		timed("create", func(ctx context.Context) (nfs3.Status, error) {
			res, err := c.Create(ctx, nfs3.CreateArgs{Where: where(root, name), Mode: nfs3.Guarded})
			if res.Object != nil {
				file = res.Object
			}
			return res.Status, err
		})
		timed("write", func(ctx context.Context) (nfs3.Status, error) {
			res, err := c.Write(ctx, file, 0, nfs3.FileSync, data)
			return res.Status, err
		})
		timed("getattr", func(ctx context.Context) (nfs3.Status, error) {
			res, err := c.Getattr(ctx, root)
			return res.Status, err
		})
		timed("create", func(ctx context.Context) (nfs3.Status, error) {
			res, err := c.Remove(ctx, root, name)
			return res.Status, err
		})
	}
}

func forEver(pause time.Duration, do func(i int)) {
	for i := 0; ; i++ {
		do(i)
		time.Sleep(pause)
	}
}

func said(status nfs3.Status, err error) error {
	if err == nil && status != nfs3.OK {
		err = errors.New(status.String())
	}
	return err
}

// victims is that process, seen from the attacker's, or the one that sleeps.
type victims struct {
	t   *testing.T
	cmd *exec.Cmd
	in  io.WriteCloser
	out *json.Decoder
}

func newVictims(t *testing.T, role string) *victims {
	t.Helper()
	v := &victims{t: t, cmd: exec.Command(os.Args[0], role)}
	v.cmd.Stderr = os.Stderr
	v.cmd.Env = append(os.Environ(), "GOMAXPROCS=2")
	in, err := v.cmd.StdinPipe()
	must(t, err)
	out, err := v.cmd.StdoutPipe()
	must(t, err)
	v.in, v.out = in, json.NewDecoder(out)
	must(t, v.cmd.Start())
	_ = setPriority(v.cmd.Process.Pid)
	return v
}

// report is what was measured since the last.
func (v *victims) report() latencies {
	v.t.Helper()
	var l latencies
	_, err := io.WriteString(v.in, "\n")
	if err == nil {
		err = v.out.Decode(&l)
	}
	must(v.t, err)
	return l
}

func (v *victims) stop() {
	v.in.Close()
	_ = v.cmd.Process.Kill()
	_ = v.cmd.Wait() // it was killed
}

// String is what a person reads of one phase.
func (l latencies) String() string {
	var b strings.Builder
	for _, op := range append(slices.Clone(victimOps), "machine") {
		if x := l[op]; x != nil {
			fmt.Fprintf(&b, "%s %d: p50 %v p99 %v max %v", op, x.N, short(x.P50), short(x.P99), short(x.Max))
			if x.Refused > 0 {
				fmt.Fprintf(&b, ", %d REFUSED (%s)", x.Refused, x.Why)
			}
			b.WriteString("; ")
		}
	}
	return strings.TrimSuffix(b.String(), "; ")
}

func short(d time.Duration) string {
	switch {
	case d >= time.Second:
		return fmt.Sprintf("%.1fs", d.Seconds())
	case d >= 10*time.Millisecond:
		return fmt.Sprintf("%dms", d.Milliseconds())
	default:
		return fmt.Sprintf("%.1fms", float64(d.Microseconds())/1000)
	}
}

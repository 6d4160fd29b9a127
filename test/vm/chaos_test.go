//go:build vm

package vm_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/podnas/podnas/test/vm/history"
)

// TestChaos: two nodes read and write registers, take locks, and append to a file under a lock,
// and a third mount reads by version 3, while the server, its disk and the nodes' links fail in
// turns that are drawn from SEED. What clients saw is checked by package history, and what they
// were told is on the disk is there after a power cut. CHAOS is for how long; make chaos does an
// hour.
func TestChaos(t *testing.T) {
	c := newChaos(t)
	c.disk = newMappedDisk(t, 1<<30)
	s := settings{listen: ":20490", root: c.disk.dir}
	if c.rand.IntN(2) == 0 {
		s.stateLog = t.TempDir()
	}
	t.Logf("with a log of the clients' state: %t", s.stateLog != "")
	a := newAppliance(t, s)
	a.start()
	pv := a.volume("chaos", "512Mi")
	c.server = chaosServer{stop: a.stop, kill: a.kill, start: a.start, signal: func(s syscall.Signal) {
		if err := a.cmd.Process.Signal(s); err != nil {
			t.Error(err)
		}
	}, wait: func() { _ = a.wait() }}
	c.lease = lease
	c.nodes = []*node{newNode(t, 1, pv), newNode(t, 2, pv)}
	c.begin(mountWith(t, pv, append(version3Options(), "noac")))
	c.run()
	c.end(a.dir(pv))
}

// TestKnfsdChaos is the same, as far as it can be, with the server of the guest's own kernel: what
// is checked is what NFS can do. It is run by hand: make vm ENGINE=knfsd RUN=TestKnfsdChaos.
func TestKnfsdChaos(t *testing.T) {
	c := newChaos(t)
	c.disk = newMappedDisk(t, 1<<30)
	const export = "/a/volume"
	command(t, "bash", "-euc", `source ../bench/peers.sh; register; knfsd4 "$1" "$2" /a/hidden; share_knfsd4 "$2" 10.77.0.0/16`, "knfsd", c.disk.dir, export)
	t.Cleanup(func() {
		command(t, "bash", "-euc", "source ../bench/peers.sh; end_knfsd4")
		eventually(t, "the server has let go of its disk", func() bool { return unix.Unmount(c.disk.dir, 0) == nil })
	})
	c.lease = 10 * time.Second
	var pv persistentVolume
	pv.Metadata.Name, pv.Spec.NFS.Path, pv.Spec.MountOptions = "knfsd", export, []string{"nfsvers=4.1"}
	c.nodes = []*node{newNode(t, 1, pv), newNode(t, 2, pv)}
	c.begin("")
	c.run()
	c.end(filepath.Join(c.disk.dir, export))
}

// chaosServer is what can be done to a server.
type chaosServer struct {
	stop, kill, start, wait func()
	signal                  func(syscall.Signal)
}

// chaos is a run of TestChaos.
type chaos struct {
	t     *testing.T
	rand  *rand.Rand // of the plan
	seed  uint64
	limit time.Duration
	lease time.Duration
	disk  *mappedDisk
	// reflink: files of the disk can share blocks.
	reflink bool
	server  chaosServer // without functions if its process is left alone
	nodes   []*node
	faults  []history.Fault
	began   time.Duration
	ends    []func() // of the clients

	mu      sync.Mutex
	ops     []history.Op
	lastOK  map[int]time.Duration // by client: the begin of its last call that went well
	clients int
	mayFail map[int]bool // the clients that need not go on
}

func newChaos(t *testing.T) *chaos {
	t.Helper()
	c := &chaos{t: t, seed: seedOf(t), limit: 75 * time.Second, reflink: true, lastOK: map[int]time.Duration{}, mayFail: map[int]bool{}}
	if s := os.Getenv("CHAOS"); s != "" {
		var err error
		if c.limit, err = time.ParseDuration(s); err != nil {
			t.Fatalf("CHAOS: %v", err)
		}
	}
	c.rand = rand.New(rand.NewPCG(c.seed, 0))
	return c
}

// seedOf is SEED of the environment, or one that is drawn and logged.
func seedOf(t *testing.T) uint64 {
	t.Helper()
	seed := rand.Uint64()
	if s := os.Getenv("SEED"); s != "" {
		var err error
		if seed, err = strconv.ParseUint(s, 10, 64); err != nil {
			t.Fatalf("SEED: %v", err)
		}
	}
	t.Logf("SEED=%d", seed)
	return seed
}

// begin starts the clients, of which some read on the mount with version 3, if there is one.
func (c *chaos) begin(version3 string) {
	c.t.Helper()
	c.startOnNodes()
	if version3 != "" {
		c.start(chaosClients{Dir: version3, Node: len(c.nodes), Readers: 1})
	}
	c.settle("the begin", c.began)
}

// startOnNodes starts the clients on the nodes.
func (c *chaos) startOnNodes() {
	c.t.Helper()
	c.began = now()
	for i, v := range c.nodes {
		clones := c.reflink && strings.Contains(mountedAs(c.t, v.mnt), ",vers=4.2,")
		c.start(chaosClients{Dir: v.mnt, Node: i, Registers: 2, Lockers: 2, Appenders: 1, Clones: clones})
	}
}

func (c *chaos) start(clients chaosClients) {
	c.t.Helper()
	clients.Seed, clients.First = c.seed, c.clients
	c.mayFail[c.clients] = clients.MayFail
	c.clients += clients.Registers + clients.Readers + clients.Lockers + clients.Appenders
	text, err := json.Marshal(clients)
	if err != nil {
		c.t.Fatal(err)
	}
	cmd := exec.CommandContext(c.t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), "CHAOS_CLIENTS="+string(text))
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		c.t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		c.t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		c.t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() {
		for all := json.NewDecoder(out); ; {
			var o history.Op
			if err := all.Decode(&o); err != nil {
				if errors.Is(err, io.EOF) {
					err = nil
				}
				ended <- errors.Join(err, cmd.Wait())
				return
			}
			c.mu.Lock()
			c.ops = append(c.ops, o)
			if o.Err == "" {
				c.lastOK[o.Client] = o.Call
			}
			c.mu.Unlock()
		}
	}()
	c.ends = append(c.ends, func() {
		in.Close()
		within(c.t, 2*time.Minute, "the end of clients", func() error { return <-ended })
	})
}

// settle waits until every client has made a call since then that went well.
func (c *chaos) settle(after string, since time.Duration) {
	c.t.Helper()
	eventually(c.t, "all clients go on after "+after, func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		for client := range c.clients {
			if c.lastOK[client] <= since && !c.mayFail[client] {
				return false
			}
		}
		return true
	})
}

// kindOfFault does something, and undoes it.
type kindOfFault struct {
	name string
	do   func(c *chaos, f *history.Fault)
	kill bool // it is about the process of the server
	long bool // it takes longer than a lease, and has its place in long runs
}

func chaosFaults() []kindOfFault {
	return []kindOfFault{
		{name: "restart", kill: true, do: func(c *chaos, _ *history.Fault) {
			c.server.stop()
			c.sleep(0, time.Second)
			c.server.start()
		}},
		{name: "kill", kill: true, do: func(c *chaos, f *history.Fault) {
			f.Repeats = true
			c.server.kill()
			c.sleep(0, 2*time.Second)
			c.server.start()
		}},
		{name: "kill, twice", kill: true, do: func(c *chaos, f *history.Fault) {
			f.Repeats = true
			c.server.kill()
			c.server.start()
			c.sleep(0, 3*time.Second)
			c.server.kill()
			c.server.start()
		}},
		{name: "stop the process", kill: true, do: func(c *chaos, _ *history.Fault) {
			c.server.signal(syscall.SIGSTOP)
			c.sleep(0, 5*time.Second)
			c.server.signal(syscall.SIGCONT)
		}},
		{name: "stop the process for longer than a lease", kill: true, long: true, do: func(c *chaos, f *history.Fault) {
			f.Repeats, f.LosesLocks = true, []int{0, 1}
			c.server.signal(syscall.SIGSTOP)
			c.sleep(c.lease, c.lease+10*time.Second)
			c.server.signal(syscall.SIGCONT)
		}},
		{name: "cut off a node", do: func(c *chaos, _ *history.Fault) {
			n := c.node()
			n.cut()
			c.sleep(0, 6*time.Second)
			n.up()
		}},
		{name: "cut off a node for longer than a lease", do: func(c *chaos, f *history.Fault) {
			n := c.rand.IntN(len(c.nodes))
			f.Repeats, f.LosesLocks = true, []int{n}
			c.nodes[n].cut()
			c.sleep(c.lease+2*time.Second, c.lease+10*time.Second)
			c.nodes[n].up()
		}},
		{name: "kill, with a node cut off", kill: true, do: func(c *chaos, f *history.Fault) {
			f.Repeats = true
			n := c.node()
			n.cut()
			c.sleep(0, time.Second)
			c.server.kill()
			c.server.start()
			c.sleep(0, 3*time.Second)
			n.up()
		}},
		{name: "restart, with a node cut off", kill: true, do: func(c *chaos, _ *history.Fault) {
			n := c.node()
			n.cut()
			c.sleep(0, time.Second)
			c.server.stop()
			c.server.start()
			c.sleep(0, 3*time.Second)
			n.up()
		}},
		{name: "stall the disk", do: func(c *chaos, _ *history.Fault) {
			c.disk.stall()
			c.sleep(0, 6*time.Second)
			c.disk.resume()
		}},
		{name: "stall the disk for longer than a lease", long: true, do: func(c *chaos, _ *history.Fault) {
			c.disk.stall()
			c.sleep(c.lease, c.lease+10*time.Second)
			c.disk.resume()
		}},
		{name: "stall the disk, then kill", kill: true, do: func(c *chaos, f *history.Fault) {
			f.Repeats = true
			c.disk.stall()
			c.sleep(0, 2*time.Second)
			c.server.signal(syscall.SIGKILL)
			c.sleep(0, time.Second)
			c.disk.resume() // what waits for the disk ends then
			c.server.wait()
			c.server.start()
		}},
		{name: "fail the disk", kill: true, do: func(c *chaos, f *history.Fault) {
			c.failDisk(f, false)
		}},
		{name: "fail the disk, then kill", kill: true, do: func(c *chaos, f *history.Fault) {
			c.failDisk(f, true)
		}},
	}
}

// failDisk fails the disk for a while. An XFS that has ended by that is mounted again.
func (c *chaos) failDisk(f *history.Fault, kill bool) {
	f.DiskFails, f.Repeats = true, true
	c.disk.fail()
	if c.rand.IntN(2) == 0 { // so that what is read is read from the disk
		if err := os.WriteFile("/proc/sys/vm/drop_caches", []byte("1"), 0); err != nil {
			c.t.Error(err)
		}
	}
	c.sleep(0, 4*time.Second)
	if kill {
		c.server.kill()
	}
	c.disk.mend()
	if alive := c.disk.alive(); !alive || kill {
		if !kill {
			c.server.kill()
		}
		if !alive {
			f.Name += ", which ended the file system"
			c.disk.remount()
		}
		c.server.start()
	}
}

// sleep takes a time that is drawn.
func (c *chaos) sleep(least, most time.Duration) {
	time.Sleep(least + time.Duration(c.rand.Int64N(int64(most-least))))
}

func (c *chaos) node() *node { return c.nodes[c.rand.IntN(len(c.nodes))] }

// run has faults, of each kind one before there is a second, until the time is over.
func (c *chaos) run() {
	c.t.Helper()
	var deck []kindOfFault
	for end := now() + c.limit; now() < end; {
		if len(deck) == 0 {
			deck = slices.DeleteFunc(chaosFaults(), func(k kindOfFault) bool {
				return k.kill && c.server.kill == nil || k.long && c.limit < 10*time.Minute
			})
			c.rand.Shuffle(len(deck), func(i, j int) { deck[i], deck[j] = deck[j], deck[i] })
		}
		kind := deck[0]
		deck = deck[1:]
		c.sleep(0, 3*time.Second)
		f := history.Fault{Name: kind.name, From: now()}
		kind.do(c, &f)
		over := now()
		c.settle(f.Name, over)
		f.Until = now()
		if f.Until-f.From > c.lease*2/3 && len(f.LosesLocks) == 0 {
			f.Name += ", which took so long that locks may be lost"
			f.Repeats, f.LosesLocks = true, []int{0, 1}
		}
		c.faults = append(c.faults, f)
		c.t.Logf("%7.3f s: %s for %.3f s; all go on after %.3f s more", (f.From - c.began).Seconds(), f.Name, (over - f.From).Seconds(), (f.Until - over).Seconds())
	}
}

// end ends the clients, and checks what they saw and what is in the volume's directory.
func (c *chaos) end(dir string) {
	c.t.Helper()
	for _, end := range c.ends {
		end()
	}
	counts := map[history.Kind]int{}
	failed := 0
	for i := range c.ops {
		counts[c.ops[i].Kind]++
		if c.ops[i].Err != "" {
			failed++
		}
	}
	c.t.Logf("%d faults; calls: %v, of which %d failed", len(c.faults), counts, failed)
	if c.server.kill != nil {
		c.server.kill()
		c.disk.cut()
		defer c.server.start() // for the mounts
	}
	c.onDisk(dir)
	content, err := os.ReadFile(filepath.Join(dir, "lines"))
	if err != nil {
		c.t.Error(err)
	}
	violations := append(history.CheckLines(content, c.ops), history.Check(c.ops, c.faults, 5*time.Minute)...)
	if len(violations) == 0 {
		return
	}
	for i, v := range violations[:min(len(violations), 10)] {
		c.t.Error(v)
		if path := filepath.Join(os.Getenv("FOUND"), fmt.Sprintf("chaos-%d.html", i)); v.Draw != nil {
			c.t.Logf("its picture is %s: %v", path, v.Draw(path))
		}
	}
	all, err := json.MarshalIndent(struct {
		Faults []history.Fault
		Ops    []history.Op
	}{c.faults, c.ops}, "", " ")
	if err == nil {
		err = os.WriteFile(filepath.Join(os.Getenv("FOUND"), "chaos.json"), all, 0o644)
	}
	c.t.Logf("%d violations; the whole history is beside the pictures (%v); the same faults again: SEED=%d CHAOS=%v make chaos", len(violations), err, c.seed, c.limit)
}

// onDisk reads all registers, as a last call.
func (c *chaos) onDisk(dir string) {
	c.t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		c.t.Fatal(err)
	}
	block := make([]byte, chaosBlock)
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), "register-") && !strings.HasPrefix(e.Name(), "lock-") {
			continue
		}
		o := history.Op{Kind: history.Read, Client: c.clients, Node: len(c.nodes) + 1, Key: e.Name(), Call: now()}
		b, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			c.t.Error(err)
			continue
		}
		clear(block)
		copy(block, b)
		o.Value, o.Return = blockValue(block), now()
		c.ops = append(c.ops, o)
	}
}

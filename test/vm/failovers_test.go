//go:build vm

package vm_test

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/podnas/podnas/test/vm/history"
)

// TestFailovers: the clients of TestChaos, while podnas goes from one place to another and back, as between two nodes that have
// one disk: the one before is dead, or was stopped and goes on later, or is alive and has lost the disk. Another client
// reads from each place directly, and looks for answers of the one that has lost the disk. What all of them saw is checked by package history.
// Failovers, and whether the disk is XFS or ext4, are drawn from SEED. CHAOS is for how long; make chaos RUN=TestFailovers does an hour.
func TestFailovers(t *testing.T) {
	c := newChaos(t)
	f := &failovers{chaos: c}
	fs := []fileSystem{asXFS, asExt4}[c.rand.IntN(2)]
	t.Logf("on %s", fs.name)
	c.reflink = fs.name == asXFS.name
	image := newImage(t, fs, 1<<30)
	command(t, "modprobe", "dm-flakey")
	for i := range f.places {
		f.places[i] = newPlace(t, 11+i, image)
	}
	command(t, "sysctl", "-q", "-w", "net.ipv4.ip_forward=1")
	f.active = f.places[0]
	f.active.mount()
	f.active.start()
	f.lead()
	pv := f.active.volume("failovers")
	unix.Sync() // the claims, too, which are on the disk
	c.lease = lease
	c.nodes = []*node{f.newNode(1, pv), f.newNode(2, pv)}
	c.startOnNodes()
	f.readDirectly(pv)
	c.settle("the begin", c.began)
	f.run(pv)
	c.server = chaosServer{kill: f.active.end, start: f.active.start}
	c.disk = &mappedDisk{t: t, dir: f.active.dir, name: f.active.name, fs: fs.name}
	c.end(f.active.appliance().dir(pv))
}

// failovers is a run of TestFailovers.
type failovers struct {
	*chaos
	places [2]*place
	active *place
}

// kindOfFailover is what happens to the podnas that has the disk, and what it sees of the disk then.
type kindOfFailover struct {
	name string
	lose func(p *place) // before another has the disk
	loss loss
	back bool // the one before goes on when another has served
}

func kindsOfFailover() []kindOfFailover {
	stop := func(p *place) { p.signal(syscall.SIGSTOP) }
	return []kindOfFailover{
		{name: "killed", lose: (*place).end, loss: fails},
		{name: "stopped, and its writes fail later", lose: stop, loss: writesFail, back: true},
		{name: "stopped, and its disk fails later", lose: stop, loss: fails, back: true},
		{name: "stopped, and its disk hangs later", lose: stop, loss: hangs, back: true},
		{name: "alive, and its writes fail", loss: writesFail},
		{name: "alive, and its disk fails", loss: fails},
		{name: "alive, and its disk hangs", loss: hangs},
	}
}

// run has failovers, of each kind one before there is a second, until the time is over.
func (f *failovers) run(pv persistentVolume) {
	f.t.Helper()
	var deck []kindOfFailover
	for end := now() + f.limit; now() < end; {
		if len(deck) == 0 {
			deck = kindsOfFailover()
			f.rand.Shuffle(len(deck), func(i, j int) { deck[i], deck[j] = deck[j], deck[i] })
		}
		kind := deck[0]
		deck = deck[1:]
		f.sleep(0, 3*time.Second)
		f.failover(kind)
		f.readDirectly(pv)
	}
}

func (f *failovers) failover(kind kindOfFailover) {
	f.t.Helper()
	fault := history.Fault{Name: kind.name, From: now(), Repeats: true}
	before := f.active
	f.active = f.places[1-slices.Index(f.places[:], before)]
	if kind.lose != nil {
		kind.lose(before)
	}
	before.lose(kind.loss)
	lost := now()
	f.sleep(0, 2*time.Second)
	f.active.mount()
	f.active.launch()
	f.lead()
	f.active.waitReady()
	ready := now()
	f.settle(kind.name, ready)
	if kind.back {
		before.signal(syscall.SIGCONT)
		f.sleep(2*time.Second, 5*time.Second)
	}
	fault.Until = now()
	f.faults = append(f.faults, fault)
	f.t.Logf("%7.3f s: %s; ready %.3f s after the loss, all go on %.3f s after it", (fault.From - f.began).Seconds(), kind.name, (ready - lost).Seconds(), (fault.Until - lost).Seconds())
	before.end()
	before.giveBack()
}

// lead has the service's address lead to the active place.
func (f *failovers) lead() {
	command(f.t, "ip", "route", "replace", movableIP, "via", f.active.inside())
}

// newNode is a node that has the volume mounted by the service's address.
func (f *failovers) newNode(n int, pv persistentVolume) *node {
	v := newMachine(f.t, n, fmt.Sprint("node", n))
	pv.Spec.NFS.Server = movableIP
	v.must(func() error {
		v.ip("route add " + movableIP + " via " + v.addr)
		v.mnt = mount(f.t, pv)
		return nil
	})
	return v
}

// readDirectly has a client read from the active place, from now on, whether it has the disk or not. What can't be read soon fails.
func (f *failovers) readDirectly(pv persistentVolume) {
	f.t.Helper()
	if f.active.read {
		return
	}
	f.active.read = true
	pv.Spec.NFS.Server = f.active.inside()
	at := mountWith(f.t, pv, append(version3Options(), "noac", "soft", "timeo=10", "retrans=1"))
	f.start(chaosClients{Dir: at, Node: len(f.nodes), Readers: 1, MayFail: true})
}

// place is one where podnas can run: a namespace of the network, and a device of its own that leads to the disk.
type place struct {
	*node
	number int
	dir    string // where it mounts the disk
	name   string // of the device
	image  *diskImage
	log    string
	read   bool      // a client reads from here directly
	cmd    *exec.Cmd // nil: podnas does not run here
}

func newPlace(t *testing.T, n int, image *diskImage) *place {
	t.Helper()
	p := &place{node: newMachine(t, n, fmt.Sprint("place", n)), number: n, dir: t.TempDir(), name: fmt.Sprintf("podnas-%d-%d", os.Getpid(), n), image: image}
	p.log = filepath.Join(t.TempDir(), "podnas.log")
	p.must(func() error {
		p.ip("addr add " + movableIP + "/32 dev lo")
		p.ip("route add default via " + p.addr)
		return nil
	})
	mapDevice(t, p.name, p.table("linear"))
	t.Cleanup(func() {
		p.end()
		if err := unix.Unmount(p.dir, 0); err != nil && !errors.Is(err, unix.EINVAL) {
			t.Error(err)
		}
		if t.Failed() {
			said, _ := os.ReadFile(p.log)
			t.Logf("podnas in place %d said:\n%s", n, said)
		}
	})
	return p
}

// inside is the place's own address.
func (p *place) inside() string { return fmt.Sprintf("10.77.%d.2", p.number) }

// loss is what a place sees of a disk that another has.
type loss int

const (
	writesFail loss = iota // what can be read is what was there: as with a reservation of the other
	fails
	hangs
)

func (p *place) table(target string) string {
	sectors := p.image.size / 512
	switch target {
	case "error":
		return fmt.Sprintf("0 %d error", sectors)
	case "flakey":
		return fmt.Sprintf("0 %d flakey %s 0 0 3600 1 error_writes", sectors, p.image.device)
	default:
		return fmt.Sprintf("0 %d linear %s 0", sectors, p.image.device)
	}
}

// lose takes the disk from the place. What it has not written by then, it never writes.
func (p *place) lose(how loss) {
	p.t.Helper()
	switch how {
	case writesFail:
		p.load("flakey")
	case fails:
		p.load("error")
	case hangs:
		stallDevice(p.t, p.name)
	}
}

// load has the device lead elsewhere. It may be suspended.
func (p *place) load(target string) {
	p.t.Helper()
	mapAnew(p.t, p.name, p.table(target))
}

// giveBack has the place, where podnas has ended, be one that can have the disk again.
func (p *place) giveBack() {
	p.t.Helper()
	p.load("error") // ends what hangs
	eventually(p.t, "the lost disk is unmounted", func() bool { return unix.Unmount(p.dir, 0) == nil })
	p.load("linear")
}

// mount mounts the disk, which to this kernel is mounted twice while the other place has lost it.
func (p *place) mount() {
	p.t.Helper()
	mountDisk(p.t, "/dev/mapper/"+p.name, p.dir, p.image.fileSystem.name, "prjquota"+p.image.also)
	for _, dir := range []string{"root", "claims"} {
		if err := os.MkdirAll(filepath.Join(p.dir, dir), 0o755); err != nil {
			p.t.Fatal(err)
		}
	}
}

func (p *place) start() {
	p.t.Helper()
	p.launch()
	p.waitReady()
}

// launch starts podnas and does not wait for anything.
func (p *place) launch() {
	p.t.Helper()
	log, err := os.OpenFile(p.log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		p.t.Fatal(err)
	}
	defer log.Close()
	cmd := exec.Command(os.Getenv("PODNAS"), "serve", "--standalone", "--root", filepath.Join(p.dir, "root"),
		"--claims", filepath.Join(p.dir, "claims"), "--claim-grace", "0s", "--listen", movablePort, "--http", movableHTTP,
		"--server-address", movableIP, "--handles", cmp.Or(os.Getenv("FINDER"), "auto"))
	cmd.Stdout, cmd.Stderr, cmd.Dir = log, log, "/"
	p.must(cmd.Start)
	p.cmd = cmd
}

func (p *place) waitReady() {
	p.t.Helper()
	eventually(p.t, "podnas is ready in "+p.name, func() bool { return readyAt(p.inside() + movableHTTP) })
}

func (p *place) signal(s syscall.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		p.t.Error(err)
	}
}

// end kills podnas, if it runs here. What waits for a disk that hangs ends with that.
func (p *place) end() {
	if p.cmd == nil {
		return
	}
	_ = p.cmd.Process.Kill() // it may have ended by itself
	ended := make(chan struct{})
	go func() {
		_ = p.cmd.Wait() // its error is the signal
		close(ended)
	}()
	select {
	case <-ended:
	case <-time.After(time.Second):
		p.load("error")
		<-ended
	}
	p.cmd = nil
}

// volume makes a claim, and returns its volume.
func (p *place) volume(name string) persistentVolume {
	p.t.Helper()
	return p.appliance().volume(name, "512Mi")
}

// appliance is podnas here for what is about its folders alone.
func (p *place) appliance() *appliance {
	return &appliance{t: p.t, root: filepath.Join(p.dir, "root"), claims: filepath.Join(p.dir, "claims")}
}

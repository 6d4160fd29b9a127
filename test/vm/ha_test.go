//go:build vm

package vm_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/podnas/podnas/nfs/mount3"
	"github.com/podnas/podnas/nfs/nfs3"
	"github.com/podnas/podnas/nfs/rpc"
	"github.com/podnas/podnas/nfs/xdr"
)

// pair are two nodes with a podnas each, of which one has the disk that a SAN exports to both. The service's address leads
// to the one that has taken the disk last.
type pair struct {
	t     *testing.T
	san   *san
	nodes [2]*movableNode

	mu sync.Mutex
	// The last thing that each node has said of itself.
	// +checklocks:mu
	states map[*movableNode]string
	// +checklocks:mu
	active *movableNode
}

// What a podnas of a pair says of itself.
const (
	isStandby = "standby"
	isActive  = "active"
	takenOver = "another podnas has taken the disk over"
)

func newPair(t *testing.T, storage *san) *pair {
	p := &pair{t: t, san: storage, states: map[*movableNode]string{}}
	claims := t.TempDir()
	for i, n := range []int{nodeA, nodeB} {
		v := newMovableNode(t, n, iscsiDisk{}, "-s", claims)
		v.claims, v.flags = claims, "--shared-disk /run/disk --root "+diskAt
		p.nodes[i] = v
	}
	return p
}

// follow has the service follow the active podnas, as the label of its pod does.
func (p *pair) follow() {
	quit := make(chan struct{})
	p.t.Cleanup(func() { close(quit) })
	for _, v := range p.nodes {
		go func() {
			for {
				p.look(v)
				select {
				case <-quit:
					return
				case <-time.After(100 * time.Millisecond):
				}
			}
		}()
	}
}

func (p *pair) look(v *movableNode) {
	state := v.state()
	p.mu.Lock()
	defer p.mu.Unlock()
	if state == "" || p.states[v] == state { // it may be dead, or stopped
		return
	}
	p.states[v] = state
	if state == isActive {
		p.active = v
		leads(p.t, v)
	}
}

// state is what podnas on a node says of itself, empty if it says nothing.
func (v *movableNode) state() string {
	client := http.Client{Timeout: time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Get("http://" + v.addr() + movableHTTP + "/readyz")
	if err != nil {
		return ""
	}
	defer resp.Body.Close()
	said, err := io.ReadAll(resp.Body)
	switch {
	case err != nil:
		return ""
	case strings.Contains(string(said), "is a standby"):
		return isStandby
	}
	return isActive
}

// roles returns the active node and the other one, after some time at which there is an active one again that is not a
// given one, and which answers.
func (p *pair) roles(not *movableNode) (active, standby *movableNode) {
	p.t.Helper()
	eventually(p.t, "one podnas is active, and ready", func() bool {
		p.mu.Lock()
		active = p.active
		p.mu.Unlock()
		return active != nil && active != not && active.ready()
	})
	for _, v := range p.nodes {
		if v != active {
			standby = v
		}
	}
	return active, standby
}

// standby is the node that is not active.
func (p *pair) standby() *movableNode {
	p.t.Helper()
	_, standby := p.roles(nil)
	return standby
}

// begin starts podnas on a node, which is a standby then.
func (p *pair) begin(v *movableNode) {
	p.t.Helper()
	v.serve()
	eventually(p.t, "podnas is a standby on "+v.name, func() bool { return v.state() == isStandby && v.ready() })
}

// attachBoth gives both nodes the disk.
func (p *pair) attachBoth() {
	p.t.Helper()
	for _, v := range p.nodes {
		v.disk.attach(v)
	}
}

// reboot boots a node where no podnas runs anew, and starts one, which is a standby. Its kernel must not remember connections
// that podnas has closed: moved says why.
func (p *pair) reboot(v *movableNode) {
	p.t.Helper()
	if v.cmd != nil {
		v.kill()
	}
	v.bootAgain()
	p.mu.Lock()
	delete(p.states, v)
	p.mu.Unlock()
	v.disk.attach(v)
	p.begin(v)
}

// signal sends podnas on a node a signal.
func (v *movableNode) signal(which string) {
	v.t.Helper()
	v.mustSh("kill -$1 $(cat /run/podnas.pid)", which)
}

// waitEnded waits until podnas on a node ends by itself, and says why.
func (v *movableNode) waitEnded(within time.Duration, why string) {
	v.t.Helper()
	began := time.Now()
	eventually(v.t, "podnas on "+v.name+" ends by itself", func() bool {
		_, err := v.sh("[ ! -e /proc/$(cat /run/podnas.pid) ]")
		return err == nil
	})
	v.t.Logf("podnas on %s has ended after %.1f s", v.name, time.Since(began).Seconds())
	if time.Since(began) > within {
		v.t.Errorf("podnas on %s has ended after %v", v.name, time.Since(began))
	}
	if said := v.said(); !strings.Contains(said, why) {
		v.t.Errorf("podnas on %s does not say why it has ended", v.name)
	}
}

// TestHA has a podnas each on two nodes with one disk of a SAN: one is active, the other takes over. The times that it logs
// are those of docs/internals/failovers.md. With SHORT=1 it has the first step alone.
func TestHA(t *testing.T) {
	storage := &san{newGuest(t, storageGuest)}
	storage.args = []string{"-x", "1G"}
	p := newPair(t, storage)
	client := newGuest(t, clientGuest)
	for _, g := range []*guest{storage.guest, p.nodes[0].guest, p.nodes[1].guest, client} {
		if err := g.boot(); err != nil {
			t.Fatal(err)
		}
	}
	storage.export()
	for _, v := range p.nodes {
		v.prepare()
	}
	p.attachBoth()
	p.follow()
	if os.Getenv("SHORT") == "" {
		step(t, "MakerKilled", p.makerKilled)
	} else {
		p.nodes[0].serve()
		p.nodes[1].serve()
	}
	active, standby := p.roles(nil)
	if state := standby.state(); state != isStandby {
		t.Fatalf("podnas is active on %s, and on %s it is %q", active.name, standby.name, state)
	}
	load := startClients(t, active, client, storage.guest)
	step(t, "Stopped", func(t *testing.T) { p.stopped(t, load) })
	if os.Getenv("SHORT") != "" {
		return
	}
	p.reboot(p.standby())
	step(t, "NodeKilled", func(t *testing.T) { p.nodeKilled(t, load) })
	step(t, "ToldToEnd", func(t *testing.T) { p.toldToEnd(t, load) })
	step(t, "ShutDown", func(t *testing.T) { p.shutDown(t, load) })
	step(t, "ProcessKilled", func(t *testing.T) { p.processKilled(t, load) })
	step(t, "StandbyStopped", func(t *testing.T) { p.standbyStopped(t, load) })
	step(t, "StorageCutForTheActive", func(t *testing.T) { p.storageCut(t, load) })
	step(t, "AllCutForTheActive", func(t *testing.T) { p.allCut(t, load) })
	step(t, "ClientsCutFor20s", func(t *testing.T) { p.clientsCut(t, load) })
	step(t, "TargetAwayFor15s", func(t *testing.T) { p.targetAway(t, load) })
	step(t, "BothKilled", func(t *testing.T) { p.bothKilled(t, load) })
	step(t, "DevicesRemoved", func(t *testing.T) { p.devicesRemoved(t, load) })
	step(t, "Damaged", func(t *testing.T) { p.damaged(t, load) })
	step(t, "Larger", func(t *testing.T) { p.larger(t, load) })
}

// makerKilled kills the first podnas, which makes the file system, with its node. The other one begins anew.
func (p *pair) makerKilled(t *testing.T) {
	maker, other := p.nodes[0], p.nodes[1]
	maker.serve()
	eventually(t, "the disk is being formatted", func() bool { return strings.Contains(maker.said(), "making a file system") })
	maker.kill()
	if strings.Contains(maker.said(), "mounted") {
		t.Log("the file system was made before its maker was killed")
	}
	other.serve()
	p.roles(nil)
	if !strings.Contains(other.said(), "from="+maker.name) {
		t.Errorf("the disk was not taken from %s", maker.name)
	}
	p.reboot(maker)
}

// nodeKilled kills the active's node. When it comes back its nexus is no more registered, and what it had reserved another's.
func (p *pair) nodeKilled(t *testing.T, load *moveLoad) {
	active, _ := p.roles(nil)
	died := active.kill9()
	p.roles(active)
	load.tell(t, died, map[string]time.Time{"the death": died})
	load.check(t, died)
	p.reboot(active)
}

// bothKilled kills both nodes. The one that stood by comes back first, and finds the key of the dead one.
func (p *pair) bothKilled(t *testing.T, load *moveLoad) {
	active, standby := p.roles(nil)
	active.kill9()
	standby.kill()
	standby.bootAgain()
	standby.disk.attach(standby)
	began := time.Now()
	standby.serve()
	p.roles(active)
	load.tell(t, began, map[string]time.Time{"the start": began})
	load.check(t, began)
	p.reboot(active)
}

// toldToEnd ends the active podnas, as a drain does.
func (p *pair) toldToEnd(t *testing.T, load *moveLoad) {
	active, _ := p.roles(nil)
	told := time.Now()
	active.end()
	ended := time.Now()
	p.roles(active)
	t.Logf("it has ended after %.1f s", ended.Sub(told).Seconds())
	load.tell(t, ended, map[string]time.Time{"the order to end": told})
	load.check(t, ended)
	p.reboot(active)
}

// shutDown has the active one's file system shut down, as after an error of its log, while the disk works: only a new mount helps.
func (p *pair) shutDown(t *testing.T, load *moveLoad) {
	active, _ := p.roles(nil)
	failed := time.Now()
	active.mustSh("xfs_io -x -c 'shutdown -f' $1", diskAt)
	p.roles(active)
	load.tell(t, failed, map[string]time.Time{"the file system's end": failed})
	load.check(t, failed)
	if said := active.said(); !strings.Contains(said, "so that it is mounted anew") {
		t.Errorf("podnas does not say why it has ended:\n%s", said)
	}
	p.reboot(active)
}

// processKilled kills the active podnas alone, and kubelet starts it again at once. Here nobody unmounts the disk then, as
// the end of a container does, so the standby takes over.
func (p *pair) processKilled(t *testing.T, load *moveLoad) {
	active, _ := p.roles(nil)
	died := time.Now()
	active.mustSh("pid=$(cat /run/podnas.pid); kill -KILL $pid; while [ -e /proc/$pid ]; do sleep 0.05; done")
	ended := time.Now()
	active.serve()
	p.roles(active)
	load.tell(t, ended, map[string]time.Time{"the death": died})
	load.check(t, ended)
	eventually(t, "the new one is a standby", func() bool { return active.state() == isStandby })
	active.end()
	p.reboot(active)
}

// stopped stops the active podnas, and lets it go on when the other has served for a while. A reader on connections of its
// own looks for answers of the old one.
func (p *pair) stopped(t *testing.T, load *moveLoad) {
	active, _ := p.roles(nil)
	reader := newReader(t, active, load.pvs["3"])
	active.signal("STOP")
	stopped := time.Now()
	p.roles(active)
	load.tell(t, stopped, map[string]time.Time{"the stop": stopped})
	load.check(t, stopped)
	reader.none(true)
	active.signal("CONT")
	active.waitEnded(10*time.Second, takenOver)
	if n := reader.count(); n > 0 {
		t.Errorf("%d answers from a podnas that has lost its disk", n)
	}
	reader.none(false)
}

// staleReader asks a node, on connections of its own, as long as the test runs.
type staleReader struct {
	v    *movableNode
	root []byte // the handle of a volume's root

	mu sync.Mutex
	// +checklocks:mu
	unwanted bool
	// +checklocks:mu
	found int // answers to calls that were made while they were unwanted
}

func newReader(t *testing.T, v *movableNode, pv persistentVolume) *staleReader {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	t.Cleanup(stop)
	client, err := rpc.Dial(ctx, v.addr()+movablePort)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	answer, err := client.Call(ctx, mount3.Program, mount3.Version, mount3.ProcMnt, &mount3.PathArgs{Path: []byte(pv.Spec.NFS.Path)})
	if err != nil {
		t.Fatal(err)
	}
	var res mount3.MntRes
	d := xdr.NewDecoder(answer)
	res.Decode(&d)
	r := &staleReader{v: v, root: bytes.Clone(res.Handle)}
	for range 4 {
		go func() {
			for ctx.Err() == nil {
				r.ask(ctx)
				time.Sleep(20 * time.Millisecond)
			}
		}()
	}
	r.none(true)
	eventually(t, "the reader gets answers", func() bool { return r.count() > 0 })
	r.none(false)
	return r
}

// ask asks on one connection until it ends, or a call has had no answer for long.
func (r *staleReader) ask(ctx context.Context) {
	client, err := rpc.Dial(ctx, r.v.addr()+movablePort)
	if err != nil {
		return
	}
	defer client.Close()
	for {
		r.mu.Lock()
		unwanted := r.unwanted
		r.mu.Unlock()
		ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
		_, err := client.Do(ctx, rpc.CallHeader{
			RPCVersion: rpc.Version, Prog: nfs3.Program, Vers: nfs3.Version, Proc: nfs3.ProcGetattr, Cred: (&rpc.SysCred{}).Auth(),
		}, &nfs3.GetattrArgs{Object: r.root})
		cancel()
		if refused := new(rpc.RPCError); err != nil && !errors.As(err, &refused) { // which would be an answer, too
			return
		}
		r.mu.Lock()
		if unwanted {
			r.found++
		}
		r.mu.Unlock()
		time.Sleep(10 * time.Millisecond)
	}
}

// none sets whether answers are unwanted from now on.
func (r *staleReader) none(unwanted bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.unwanted = unwanted
	if unwanted {
		r.found = 0
	}
}

func (r *staleReader) count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.found
}

// standbyStopped stops the standby for a while, after which it must not believe that the active one is gone.
func (p *pair) standbyStopped(t *testing.T, load *moveLoad) {
	active, standby := p.roles(nil)
	standby.signal("STOP")
	time.Sleep(12 * time.Second)
	standby.signal("CONT")
	time.Sleep(10 * time.Second)
	p.unchanged(t, load, active)
}

// unchanged wants the active podnas to be that on a node.
func (p *pair) unchanged(t *testing.T, load *moveLoad, active *movableNode) {
	t.Helper()
	now, standby := p.roles(nil)
	if now != active || standby.state() != isStandby {
		t.Errorf("podnas was active on %s, and is now on %s, beside one that is %q", active.name, now.name, standby.state())
	}
	load.check(t, time.Now())
}

// storageCut cuts the active node off from the storage alone.
func (p *pair) storageCut(t *testing.T, load *moveLoad) {
	active, _ := p.roles(nil)
	reader := newReader(t, active, load.pvs["3"])
	p.san.mustSh("ip route add blackhole $1", active.addr())
	cut := time.Now()
	time.Sleep(6 * time.Second) // until then it answers
	silent := time.Now()
	p.roles(active)
	reader.none(true)
	load.tell(t, silent, map[string]time.Time{"the cut": cut})
	load.check(t, silent)
	p.san.mustSh("ip route del blackhole $1", active.addr())
	p.endsSilently(t, active, reader)
}

// endsSilently waits until a podnas that has lost the disk ends, without an answer to the reader since those are unwanted, and boots its
// node anew.
func (p *pair) endsSilently(t *testing.T, lost *movableNode, reader *staleReader) {
	t.Helper()
	lost.waitEnded(100*time.Second, takenOver)
	if n := reader.count(); n > 0 {
		t.Errorf("%d answers from a podnas that has lost its disk", n)
	}
	reader.none(false)
	p.reboot(lost)
}

// allCut cuts the active node off from all others, storage and clients, and lets it come back when the other has served for a
// while.
func (p *pair) allCut(t *testing.T, load *moveLoad) {
	active, _ := p.roles(nil)
	reader := newReader(t, active, load.pvs["3"])
	active.cut()
	cut := time.Now()
	p.roles(active)
	load.tell(t, cut, map[string]time.Time{"the cut": cut})
	load.check(t, cut)
	reader.none(true)
	active.up()
	p.endsSilently(t, active, reader)
}

// clientsCut cuts the clients off from the service for longer than their lease. The two podnas know nothing of it, so nobody
// takes over, and the clients keep what they have locked.
func (p *pair) clientsCut(t *testing.T, load *moveLoad) {
	active, _ := p.roles(nil)
	leads(t, nil)
	cut := time.Now()
	time.Sleep(20 * time.Second)
	leads(t, active)
	back := time.Now()
	load.tell(t, back, map[string]time.Time{"the cut": cut, "its end": back})
	p.unchanged(t, load, active)
}

// targetAway stops the target for both: nobody can know anything of the other, so nobody takes over.
func (p *pair) targetAway(t *testing.T, load *moveLoad) {
	active, _ := p.roles(nil)
	stopped := time.Now()
	p.san.stop()
	time.Sleep(15 * time.Second)
	p.san.start()
	back := time.Now()
	load.tell(t, back, map[string]time.Time{"the target's end": stopped, "its return": back})
	time.Sleep(10 * time.Second)
	p.unchanged(t, load, active)
}

// devicesRemoved has both kernels remove the disk, as they do when a fabric is away for long. Both podnas end, as the disk is another
// device when it is back.
func (p *pair) devicesRemoved(t *testing.T, load *moveLoad) {
	p.roles(nil)
	for _, v := range p.nodes {
		v.mustSh("echo 1 >/sys/block/$(basename $(readlink /run/disk))/device/delete")
	}
	removed := time.Now()
	for _, v := range p.nodes {
		v.waitEnded(20*time.Second, "this machine has lost the disk")
		v.disk.detach(v)
	}
	p.attachBoth()
	began := time.Now()
	p.serveBoth()
	load.tell(t, began, map[string]time.Time{"the removal": removed, "the start": began})
	load.check(t, began)
}

// serveBoth starts both podnas, of which none runs.
func (p *pair) serveBoth() {
	p.mu.Lock()
	clear(p.states)
	p.mu.Unlock()
	for _, v := range p.nodes {
		v.serve()
	}
}

// larger ends both, makes the disk larger on a storage that has forgotten all reservations, and starts both.
func (p *pair) larger(t *testing.T, load *moveLoad) {
	active, standby := p.roles(nil)
	standby.end()
	active.end()
	for _, v := range p.nodes {
		v.disk.detach(v)
	}
	p.san.resize(900)
	p.attachBoth()
	began := time.Now()
	p.serveBoth()
	load.tell(t, began, map[string]time.Time{"the start": began})
	load.check(t, began)
	now, _ := p.roles(nil)
	// By this a standby finds the beat: 899 MiB in blocks of 4 KiB.
	superblock := now.mustSh("dd if=/run/disk bs=4096 count=1 iflag=direct 2>/dev/null | od -An -tx1 -j8 -N8")
	if want := "00 00 00 00 00 03 83 00"; strings.TrimSpace(superblock) != want {
		t.Errorf("the superblock on the disk has %s blocks, not %s", superblock, want)
	}
	if !strings.Contains(now.said(), "the file system is larger") {
		t.Errorf("the file system has not grown")
	}
}

// resize makes the disk anew, with a size in MiB and what it has, and without reservations.
func (s *san) resize(mib int) {
	s.t.Helper()
	s.mustSh(`
		target=/sys/kernel/config/target/iscsi/$1/tpgt_1
		core=/sys/kernel/config/target/core/fileio_0
		echo 0 >$target/enable
		rm $target/lun/lun_0/disk
		rmdir $target/lun/lun_0 $core/disk
		rm -rf /var/target/pr/*
		mkdir $core/disk
		truncate -s $2M /xfs/disk
		echo fd_dev_name=/xfs/disk,fd_dev_size=$(($2 << 20)) >$core/disk/control
		echo 1 >$core/disk/enable
		mkdir $target/lun/lun_0
		ln -s $core/disk $target/lun/lun_0/disk
		echo 1 >$target/enable`, sanIQN, fmt.Sprint(mib))
}

package shareddisk

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// world is some machines with a disk that is a model.
type world struct {
	disk  *model
	aptpl bool
	nodes []*node

	mu sync.Mutex
	r  *rand.Rand // +checklocks:mu
	// +checklocks:mu
	calm bool // nothing happens to processes any more
	// The last process that has answered a client, by when it took the disk.
	// +checklocks:mu
	answered time.Time
	// +checklocks:mu
	answers int
}

// node is a machine, with at most one process.
type node struct {
	w    *world
	name string
	boot int

	mu sync.Mutex
	// +checklocks:mu
	stopped chan struct{} // closed when the process goes on; nil: it runs
	// +checklocks:mu
	silent time.Duration // how long the active process is silent elsewhere
	p      *process
}

func (n *node) setSilent(silent time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.silent = silent
}

func (n *node) isSilent() time.Duration {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.silent
}

// process is one podnas.
type process struct {
	n      *node
	c      *contender
	target *nexus
	stop   context.CancelFunc
	clean  chan struct{} // closed to tell it to end
	ended  chan struct{} // closed when it has, or was killed and does nothing more
	killed chan struct{} // closed when it was killed

	mu sync.Mutex
	// +checklocks:mu
	active bool
}

// pause is between two steps of a process. It returns when the process goes on, which now and then stops here for a while,
// or is killed.
func (p *process) pause() {
	p.n.mu.Lock()
	stopped := p.n.stopped
	p.n.mu.Unlock()
	if stopped != nil {
		<-stopped
	}
	switch long, what := p.n.w.chance(); {
	case what < 2:
		select {
		case <-time.After(long):
		case <-p.killed:
		}
	case what == 2:
		p.die(long)
	}
}

// chance returns what happens between two steps, and for how long.
func (w *world) chance() (long time.Duration, what int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.calm {
		return 0, -1
	}
	return time.Duration(w.r.IntN(12000)) * time.Millisecond, w.r.IntN(200)
}

func (n *node) stop() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.stopped == nil {
		n.stopped = make(chan struct{})
	}
}

func (n *node) cont() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.stopped != nil {
		close(n.stopped)
		n.stopped = nil
	}
}

// start starts a process, as kubelet does when the one before is gone.
func (n *node) start() {
	ctx, cancel := context.WithCancel(context.Background())
	p := &process{n: n, stop: cancel, clean: make(chan struct{}), ended: make(chan struct{}), killed: make(chan struct{})}
	p.target = &nexus{model: n.w.disk, name: n.name, pause: p.pause, killed: p.isKilled}
	p.c = newContender(p.target, newBeat(n.name, fmt.Sprint(n.name, n.boot)), n.isSilent, func(seen) {})
	n.p = p
	go p.live(ctx)
}

// live is what a podnas does: it takes the disk, mounts it, and answers while its own heartbeat works, until it is told to
// end or has lost the disk.
func (p *process) live(ctx context.Context) {
	defer close(p.ended)
	waiting, stopWaiting := context.WithCancel(ctx)
	defer stopWaiting()
	go func() {
		select {
		case <-p.clean:
			stopWaiting()
		case <-waiting.Done():
		}
	}()
	if p.c.take(waiting) != nil {
		return
	}
	taken := time.Now()
	running, stop := context.WithCancel(ctx)
	defer stop()
	lost := make(chan error, 1)
	go func() { lost <- p.c.run(running) }()
	over, err := p.target.mount()
	if err == nil {
		err = p.c.holds()
	}
	if err == nil {
		p.setActive(true)
		err = p.serve(ctx, taken, over, lost)
		p.setActive(false)
	}
	if err == nil {
		err = p.target.heartbeat(true)
	}
	stop()
	if last := <-lost; err == nil {
		err = last
	}
	if p.target.killed() {
		return // the kernel unmounts
	}
	p.target.unmount()
	if err == nil {
		_ = p.c.end()
	}
}

func (p *process) setActive(active bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.active = active
}

func (p *process) isActive() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.active && !p.isKilled()
}

// serve answers clients as internal/heartbeat lets it: for 5 s from the beginning of a beat on the file system that
// worked, and 6 s after the disk was taken, unless the one before has ended by itself.
func (p *process) serve(ctx context.Context, taken time.Time, over bool, lost chan error) error {
	from := taken.Add(6 * time.Second)
	if over {
		from = taken
	}
	var until time.Time
	for beat := 0; ; beat++ {
		select {
		case err := <-lost:
			lost <- err
			return err
		case <-p.clean:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(100 * time.Millisecond):
		}
		p.pause()
		if beat%10 == 0 {
			began := time.Now()
			if p.c.holds() == nil && p.target.heartbeat(false) == nil {
				until = began.Add(5 * time.Second)
			}
		}
		if now := time.Now(); now.Before(until) && !now.Before(from) && !p.target.killed() {
			p.n.w.answer(p.n.name, taken)
		}
	}
}

// answer is called for an answer to a client of a process that has taken the disk at a time.
func (w *world) answer(name string, taken time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if taken.Before(w.answered) {
		w.disk.mu.Lock()
		w.disk.bad = append(w.disk.bad, name+" answers after one that took the disk later has answered")
		w.disk.mu.Unlock()
	}
	w.answered = taken
	w.answers++
}

func (p *process) isKilled() bool {
	select {
	case <-p.killed:
		return true
	default:
		return false
	}
}

// die kills the process. Its kernel unmounts the disk a while later.
func (p *process) die(after time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.isKilled() {
		close(p.killed)
		p.stop()
		time.AfterFunc(after, p.target.unmount)
	}
}

// reset resets the machine.
func (n *node) reset() {
	n.p.die(0)
	n.cont()
	<-n.p.ended
	n.boot++
}

// step does one thing to the world.
func (w *world) step(r *rand.Rand) string {
	n := w.nodes[r.IntN(len(w.nodes))]
	select {
	case <-n.p.ended: // kubelet starts it again
		n.start()
		return "start " + n.name
	default:
	}
	switch what := r.IntN(20); {
	case what < 5:
		n.stop()
		return "stop " + n.name
	case what < 11:
		n.cont()
		return "continue " + n.name
	case what < 13:
		n.p.die(time.Duration(r.IntN(20000)) * time.Millisecond)
		n.cont()
		return "kill " + n.name
	case what < 14:
		n.reset()
		return "reset " + n.name
	case what < 15:
		n.cont()
		select {
		case <-n.p.clean:
		default:
			close(n.p.clean)
		}
		return "end " + n.name
	case what < 16:
		w.disk.restart(w.aptpl)
		return "restart the storage"
	case what < 18:
		w.disk.mu.Lock()
		defer w.disk.mu.Unlock()
		w.disk.cut[n.name] = !w.disk.cut[n.name]
		return fmt.Sprint("cut ", n.name, ": ", w.disk.cut[n.name])
	default:
		w.disk.mu.Lock()
		defer w.disk.mu.Unlock()
		w.disk.away = !w.disk.away
		return fmt.Sprint("storage away: ", w.disk.away)
	}
}

// settle ends all faults, and wants one that is active, and answers.
func (w *world) settle() error {
	w.disk.mu.Lock()
	w.disk.away = false
	clear(w.disk.cut)
	w.disk.mu.Unlock()
	w.mu.Lock()
	w.calm = true
	w.mu.Unlock()
	// One machine may be dead for good.
	alive := w.nodes
	if w.r.IntN(2) == 0 {
		alive[0].reset()
		alive = alive[1:]
	}
	for range 40 {
		for _, n := range alive {
			n.cont()
			select {
			case <-n.p.ended:
				n.start()
			default:
			}
		}
		time.Sleep(time.Second)
	}
	w.mu.Lock()
	before := w.answers
	w.mu.Unlock()
	time.Sleep(2 * time.Second)
	w.mu.Lock()
	defer w.mu.Unlock()
	active := 0
	for _, n := range alive {
		if n.p.isActive() {
			active++
		}
	}
	if active != 1 || w.answers == before {
		return fmt.Errorf("%d are active after all faults have ended, with %d answers", active, w.answers-before)
	}
	return nil
}

// newWorld makes a world, and starts a podnas on each machine.
func newWorld(t *testing.T, seed uint64, nodes int, aptpl, calm bool) *world {
	w := &world{disk: newModel(), r: rand.New(rand.NewPCG(seed, 1)), aptpl: aptpl, calm: calm}
	for i := range nodes {
		n := &node{w: w, name: string(rune('A' + i))}
		w.nodes = append(w.nodes, n)
		n.start()
	}
	return w
}

func (w *world) end() {
	for _, n := range w.nodes {
		n.reset()
	}
}

// run runs a world with a schedule of a seed.
func run(t *testing.T, seed uint64, nodes, steps int, aptpl bool) {
	synctest.Test(t, func(t *testing.T) {
		r := rand.New(rand.NewPCG(seed, 0))
		w := newWorld(t, seed, nodes, aptpl, false)
		var done []string
		for range steps {
			wait := time.Duration(r.IntN(20)) * time.Millisecond
			if r.IntN(2) == 0 {
				wait = time.Duration(r.IntN(6000)) * time.Millisecond
			}
			time.Sleep(wait)
			began := time.Now()
			done = append(done, fmt.Sprintf("%s %s", began.Format("04:05.000"), w.step(r)))
			if w.disk.violations() != nil {
				break
			}
		}
		err := w.settle()
		w.end()
		if bad := w.disk.violations(); bad != nil || err != nil {
			t.Errorf("seed %d: %q, %v, after\n%s", seed, bad, err, done)
		}
	})
}

func (m *model) violations() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.bad
}

// TestSchedules has machines stop, go on, die and be cut off between any two steps of the protocol, with a storage that
// restarts and keeps its reservations. Never can two of them write that have the disk mounted, an answer never comes from a
// process whose disk another has taken and answered from, and in the end one is active. With a storage that forgets its
// reservations there are old answers neither.
func TestSchedules(t *testing.T) {
	// With the race detector Go 1.26 crashes now and then when two timers of a bubble run at once.
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	many := uint64(1000)
	if testing.Short() {
		many = 60
	}
	for _, keeps := range []bool{true, false} {
		t.Run(fmt.Sprintf("StorageKeepsReservations=%v", keeps), func(t *testing.T) {
			for seed := range many {
				run(t, seed, 2+int(seed%2), 60, keeps)
				if t.Failed() {
					return
				}
			}
		})
	}
}

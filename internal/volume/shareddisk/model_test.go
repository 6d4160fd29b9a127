package shareddisk

import (
	"errors"
	"maps"
	"sync"
	"time"
)

var (
	errAway   = errors.New("the storage is away")
	errKilled = errors.New("the process is gone")
	errNone   = errors.New("there is no such device")
)

// model is a disk with persistent reservations as SPC-3 has them, of the type Write Exclusive, Registrants Only, for
// machines with one nexus each.
type model struct {
	mu     sync.Mutex
	keys   map[string]uint64 // by nexus
	holder string            // nexus that has the reservation; empty: nobody
	beat   beat
	over   bool                     // what the file system says: the last process that had it mounted has ended by itself
	away   bool                     // it answers nobody
	cut    map[string]bool          // it does not answer this machine
	gone   map[string]bool          // the kernel of this machine has removed it
	mounts map[string]*nexus        // by machine whose kernel has it mounted: the process that did it
	bad    []string                 // what must not happen
	hung   map[string]chan struct{} // for these machines it hangs until the channel is closed
	forgot bool                     // it has restarted without its reservations
}

func newModel() *model {
	m := &model{over: true, keys: map[string]uint64{}, cut: map[string]bool{}, gone: map[string]bool{}, hung: map[string]chan struct{}{}, mounts: map[string]*nexus{}}
	return m
}

// canWrite reports whether the disk takes writes of a nexus.
func (m *model) canWriteLocked(nexus string) bool {
	return !m.away && !m.cut[nexus] && !m.gone[nexus] && (m.holder == "" || m.keys[nexus] != 0)
}

// checkLocked checks that at most one kernel that has the disk mounted can write to it, unless the storage has forgotten
// who may.
func (m *model) checkLocked(what string) {
	if m.forgot {
		return
	}
	writers := 0
	for nexus := range m.mounts {
		if m.holder == "" || m.keys[nexus] != 0 { // it may be cut off only for now
			writers++
		}
	}
	if writers > 1 {
		m.bad = append(m.bad, what+": two machines that have it mounted can write")
	}
}

// restart restarts the storage, which keeps reservations (APTPL) or not.
func (m *model) restart(keeps bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !keeps {
		clear(m.keys)
		m.holder, m.forgot = "", true
	}
}

// nexus is the way of one process to the disk. Before and after each call it may be stopped.
type nexus struct {
	*model
	name   string
	pause  func()      // returns when the process goes on
	killed func() bool // the process is gone
}

func (n *nexus) do(what string, call func() error) error {
	n.pause()
	time.Sleep(time.Millisecond)
	n.mu.Lock()
	hung := n.hung[n.name]
	n.mu.Unlock()
	if hung != nil {
		<-hung
	}
	n.mu.Lock()
	var err error
	switch {
	case n.killed():
		err = errKilled
	case n.away || n.cut[n.name]:
		err = errAway
	case n.gone[n.name]:
		err = errNone
	default:
		err = call()
		n.checkLocked(n.name + ": " + what)
	}
	n.mu.Unlock()
	n.pause()
	return err
}

func (n *nexus) read() (b beat, empty bool, err error) {
	err = n.do("read", func() error {
		b = n.beat
		return nil
	})
	return b, false, err
}

func (n *nexus) write(b *beat) error {
	return n.do("write", func() error {
		if !n.canWriteLocked(n.name) {
			return errConflict
		}
		n.beat = *b
		return nil
	})
}

func (n *nexus) holder() (key uint64, err error) {
	err = n.do("read the reservation", func() error {
		key = n.keys[n.model.holder]
		return nil
	})
	return key, err
}

func (n *nexus) register(key uint64) error {
	return n.do("register", func() error {
		if key != 0 {
			n.keys[n.name] = key
			return nil
		}
		delete(n.keys, n.name)
		if n.model.holder == n.name {
			n.model.holder = ""
		}
		return nil
	})
}

func (n *nexus) reserve(key uint64) error {
	return n.do("reserve", func() error {
		if n.keys[n.name] != key || n.model.holder != "" && n.model.holder != n.name {
			return errConflict
		}
		n.model.holder = n.name
		return nil
	})
}

func (n *nexus) preempt(key, victim uint64) error {
	return n.do("preempt", func() error {
		if n.keys[n.name] != key {
			return errConflict
		}
		before := len(n.keys)
		maps.DeleteFunc(n.keys, func(name string, has uint64) bool {
			if has != victim || name == n.name {
				return false
			}
			if n.model.holder == name {
				n.model.holder = n.name
			}
			return true
		})
		if len(n.keys) == before {
			return errConflict
		}
		return nil
	})
}

func (n *nexus) unused() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.mounts[n.name] != nil {
		return errMounted
	}
	return nil
}

func (n *nexus) removed() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.gone[n.name] {
		return errRemoved
	}
	return nil
}

func (n *nexus) release() error { return n.unused() }

// mount mounts it, which needs to write. It returns whether the process before has ended by itself.
func (n *nexus) mount() (over bool, err error) {
	err = n.do("mount", func() error {
		if !n.canWriteLocked(n.name) {
			return errConflict
		}
		if n.mounts[n.name] != nil {
			n.bad = append(n.bad, n.name+" mounts what the process before it has mounted, and may have lost meanwhile")
		}
		n.mounts[n.name] = n
		over = n.over
		return nil
	})
	return over, err
}

// heartbeat writes a file of the file system.
func (n *nexus) heartbeat(over bool) error {
	return n.do("heartbeat", func() error {
		if !n.canWriteLocked(n.name) {
			return errConflict
		}
		n.over = over
		return nil
	})
}

// unmount unmounts it, also if the process is gone.
func (n *nexus) unmount() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.mounts[n.name] == n {
		delete(n.mounts, n.name)
	}
}

package volume

import (
	"errors"
	"sync"
	"sync/atomic"
)

// activity counts a store's operations since it was opened.
type activity struct{ create, resize, copy, snapshot, remove, empty outcome }

type outcome struct {
	done   atomic.Uint64
	failed atomic.Uint64

	mu sync.Mutex
	// +checklocks:mu
	last map[string]string // the last error, by volume; see Config.CountOnce
}

// lastMax limits the remembered errors; a forgotten one is counted again.
const lastMax = 1000

// count counts a completed operation on a volume.
func (s *Store) count(o *outcome, name string, err error) {
	if !s.countOnce || !o.again(name, err) {
		o.count(err)
	}
}

// again reports whether the operation failed for the same reason last time.
func (o *outcome) again(name string, err error) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if err == nil {
		delete(o.last, name)
		return false
	}
	reason := err.Error()
	if noSpace := (*NoSpaceError)(nil); errors.As(err, &noSpace) {
		reason = "no space" // the free space changes all the time
	}
	before, failed := o.last[name]
	if failed && before == reason {
		return true
	}
	if o.last == nil || len(o.last) >= lastMax {
		o.last = map[string]string{}
	}
	o.last[name] = reason
	return false
}

func (o *outcome) count(err error) {
	var copying *CopyingError
	switch {
	case err == nil:
		o.done.Add(1)
	case errors.Is(err, ErrNotFound) || errors.As(err, &copying):
		// Already deleted, or in progress: the caller will retry.
	default:
		o.failed.Add(1)
	}
}

// Activity counts how often an operation was done, and how often it failed.
type Activity struct {
	Operation    string // create, resize, copy, snapshot, delete, or empty: of the trash
	Done, Failed uint64
}

// Activities returns the store's operations since Open.
func (s *Store) Activities() []Activity {
	tell := func(operation string, o *outcome) Activity {
		return Activity{operation, o.done.Load(), o.failed.Load()}
	}
	a := &s.activity
	return []Activity{
		tell("create", &a.create), tell("resize", &a.resize), tell("copy", &a.copy), tell("snapshot", &a.snapshot),
		tell("delete", &a.remove), tell("empty", &a.empty),
	}
}

// Trash describes the deleted volumes whose files are not removed yet.
type Trash struct {
	Volumes int
	Bytes   int64
	Counted bool // otherwise the bytes are unknown
}

// Trash returns the state of the trash.
func (s *Store) Trash() (Trash, error) {
	s.mu.Lock()
	var projects []uint32
	for _, r := range s.trashed {
		projects = append(projects, r.Project)
	}
	s.mu.Unlock()
	t := Trash{Volumes: len(projects), Counted: s.quota != nil}
	for _, id := range projects {
		if s.quota == nil || id == 0 {
			continue
		}
		u, err := s.quota.Usage(id)
		if err != nil {
			return t, err
		}
		t.Bytes += u.Bytes
	}
	return t, nil
}

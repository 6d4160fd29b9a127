package exports

import (
	"maps"
	"slices"
	"time"

	"github.com/podnas/podnas/server/locate"
)

// lastIndexes is how long the end of the process may be delayed.
const lastIndexes = time.Second

// IndexCounts counts the indexes, also those of snapshots.
func (t *Table) IndexCounts() (n locate.IndexCounts) {
	for _, v := range t.all() {
		n.Add(&v.Files)
	}
	return n
}

// all returns the volumes, with the snapshots that are open.
func (t *Table) all() []*Volume {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return slices.Collect(maps.Values(t.byID))
}

// RestIndexes has the indexes of snapshots forget what no call uses. It is called each minute.
func (t *Table) RestIndexes() {
	for _, v := range t.all() {
		v.Files.DropUnused()
	}
}

// SaveIndexes begins to write what is new in the indexes. It is called each minute.
func (t *Table) SaveIndexes() {
	if !t.Indexes.IsKept() || !t.saving.CompareAndSwap(false, true) {
		return
	}
	go func() {
		defer t.saving.Store(false)
		t.saveEach()
	}()
}

func (t *Table) saveEach() {
	for _, v := range t.Volumes() {
		v.Files.Save()
	}
}

// LastIndexes writes what is new in the indexes, after serving has ended. It gives up after a second.
func (t *Table) LastIndexes() {
	if !t.Indexes.IsKept() {
		return
	}
	t.Indexes.Stop()
	done := make(chan struct{})
	go func() {
		t.saveEach()
		close(done)
	}()
	select {
	case <-done:
	case <-time.After(lastIndexes):
	}
}

package exports

import (
	"time"

	"github.com/podnas/podnas/server/locate"
)

// lastIndexes is how long the end of the process may be delayed.
const lastIndexes = time.Second

// IndexCounts counts the indexes.
func (t *Table) IndexCounts() (n locate.IndexCounts) {
	for _, v := range t.Volumes() {
		n.Add(&v.Files)
	}
	return n
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

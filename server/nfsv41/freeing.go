package nfsv41

import (
	"sync"
	"sync/atomic"

	"github.com/podnas/podnas/server/nfsv41/state"
)

// freeing releases what clients had open that are gone, on a goroutine of its own, one after the other. The last descriptor of a
// file that was removed frees the file, for which the disk may take seconds, and a client may have had many: whoever dismisses it,
// as an OPEN or LOCK that takes something from a silent client, and the end of other leases, would wait for all of them.
//
// The goroutine is there while there is something to release.
type freeing struct {
	most int // of queue; who has more releases it itself, so that no descriptors pile up
	// files counts what is not released yet. While there is something, a full disk may have room soon.
	files *atomic.Int64

	mu sync.Mutex
	// +checklocks:mu
	queue []state.Abandoned
	// +checklocks:mu
	left map[uint64]int // what is not released yet, of each volume
	// +checklocks:mu
	running bool
	// released is told of each one that is released, and of the end of the goroutine.
	released sync.Cond
}

func newFreeing(most int, files *atomic.Int64) *freeing {
	f := &freeing{most: most, files: files, left: map[uint64]int{}}
	f.released.L = &f.mu
	return f
}

// add has descriptors be released soon.
func (f *freeing) add(all []state.Abandoned) {
	for _, a := range f.enqueue(all) {
		a.Release()
	}
}

// enqueue returns those that are too many.
func (f *freeing) enqueue(all []state.Abandoned) (rest []state.Abandoned) {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := min(len(all), f.most-len(f.queue))
	for _, a := range all[:n] { // of one step of State's
		f.left[a.Volume]++
	}
	f.files.Add(int64(n))
	f.queue = append(f.queue, all[:n]...)
	if n > 0 && !f.running {
		f.running = true
		go f.run()
	}
	return all[n:]
}

// run releases all that there is.
func (f *freeing) run() {
	for {
		a, ok := f.next()
		if !ok {
			return
		}
		a.Release()
		f.done(a.Volume)
	}
}

// next takes the first from the queue. Without one the goroutine ends.
func (f *freeing) next() (first state.Abandoned, ok bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.queue) == 0 {
		f.queue, f.running = nil, false
		f.released.Broadcast()
		return first, false
	}
	first, f.queue[0] = f.queue[0], state.Abandoned{}
	f.queue = f.queue[1:]
	return first, true
}

// done notes that one of a volume is released.
func (f *freeing) done(volume uint64) {
	f.files.Add(-1)
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.left[volume]--; f.left[volume] == 0 {
		delete(f.left, volume)
	}
	f.released.Broadcast()
}

// wait returns when nothing is left of a volume.
func (f *freeing) wait(volume uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for f.left[volume] > 0 {
		f.released.Wait()
	}
}

// waitAll returns when nothing is left.
func (f *freeing) waitAll() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for f.running {
		f.released.Wait()
	}
}

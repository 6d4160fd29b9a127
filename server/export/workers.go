package export

import (
	"runtime"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/podnas/podnas/server/shares"
)

// Workers are threads that act as whoever a call is made for, so that mode bits,
// ACLs, sticky and setgid directories are the kernel's work. Each keeps its
// identity until a call has another, since switching costs as much as a system
// call or two. A thread is started when there is none for a job, and ends when it
// was not needed for a while. Threads are shared out between volumes and clients.
type Workers struct {
	// jobs has room for as many as there may be threads. One without a Job ends the
	// thread that takes it.
	jobs chan job
	wg   sync.WaitGroup // of threads
	root bool           // so is all of the process, and no group matters

	stop   chan struct{}
	ending sync.WaitGroup // of endIdle
	begun  sync.WaitGroup // jobs

	mu      sync.Mutex
	acting  *shares.Semaphore[job] // jobs that threads do
	spare   *shares.Semaphore[job] // jobs of root, on ordinary goroutines: to wake a thread that keeps an identity takes longer
	threads int
	idle    int // threads that wait for a job, and none was sent for them
	backlog int // jobs that were sent, and no thread waits for them
	unused  int // the fewest that were idle since they were looked at
}

// idleThreads is how often it is looked which threads were not needed.
const idleThreads = 30 * time.Second

// Job is work for a thread with an identity.
type Job interface {
	// Run does it. The error is not nil if the thread could not take the
	// identity; Run must then touch nothing.
	Run(error)
}

type job struct {
	id    Identity
	owner shares.Owner
	Job
}

// NewWorkers has up to n threads, and does up to n jobs of root beside them. It sets the umask of the process to 0: a client
// has applied its own, and default ACLs are the kernel's affair.
func NewWorkers(n int) *Workers {
	unix.Umask(0)
	w := &Workers{jobs: make(chan job, n), root: isRoot(), stop: make(chan struct{}), acting: shares.New[job](n), spare: shares.New[job](n)}
	w.ending.Go(w.endIdle)
	return w
}

// Do runs a job as somebody: on a thread with that identity, or for root on any. It does
// not wait: while the owner may have no more threads, the job does.
func (w *Workers) Do(id Identity, owner shares.Owner, do Job) {
	j := job{id, owner, do}
	w.begun.Add(1)
	w.mu.Lock()
	if w.Spare(&id) {
		entered := w.spare.Enter(owner, j)
		w.mu.Unlock()
		if entered {
			go w.run(j)
		}
		return
	}
	if !w.acting.Enter(owner, j) {
		w.mu.Unlock()
		return
	}
	w.hand(j)
}

// hand gives a job to a thread. The caller holds w.mu, which it gives back.
func (w *Workers) hand(j job) {
	isNew := w.idle == 0 && w.threads < cap(w.jobs)
	switch {
	case isNew:
		w.threads++
	case w.idle > 0:
		w.idle--
		w.unused = min(w.unused, w.idle)
	default:
		w.backlog++
	}
	w.mu.Unlock()
	if isNew {
		w.wg.Go(func() { w.work(j) })
		return
	}
	w.jobs <- j
}

// run does a job of root, and those that waited for its end.
func (w *Workers) run(j job) {
	for ok := true; ok; {
		j.Run(nil)
		w.mu.Lock()
		w.spare.Leave(j.owner)
		j, ok = w.spare.Next()
		for other, ok := w.spare.Next(); ok; other, ok = w.spare.Next() {
			go w.run(other)
		}
		w.mu.Unlock()
		w.begun.Done()
	}
}

// ended ends a thread's job, and tells which it does next. Should more have waited for
// that, other threads do them.
func (w *Workers) ended(j *job) (next job, ok bool) {
	w.mu.Lock()
	w.acting.Leave(j.owner)
	next, ok = w.acting.Next()
	for other, ok := w.acting.Next(); ok; other, ok = w.acting.Next() {
		w.hand(other)
		w.mu.Lock()
	}
	w.mu.Unlock()
	w.begun.Done()
	return next, ok
}

// Spare tells whether any goroutine can do what is to be done with an identity: it
// is root's.
func (w *Workers) Spare(id *Identity) bool { return w.root && id.UID == 0 && id.GID == 0 }

// isRoot tells whether the process is root with the capabilities that pass the
// permissions of files, so that its groups don't matter.
func isRoot() bool {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	const passing = 1<<unix.CAP_CHOWN | 1<<unix.CAP_DAC_OVERRIDE | 1<<unix.CAP_DAC_READ_SEARCH | 1<<unix.CAP_FOWNER | 1<<unix.CAP_FSETID
	return unix.Geteuid() == 0 && unix.Getegid() == 0 && unix.Capget(&header, &data[0]) == nil && data[0].Effective&passing == passing
}

// Close ends the threads after the work that was handed to them.
func (w *Workers) Close() {
	close(w.stop)
	w.ending.Wait()
	w.begun.Wait()
	close(w.jobs)
	w.wg.Wait()
}

// work is one thread, and its first job; without one it takes the place of another
// thread. It never unlocks the thread: when the goroutine ends, the Go runtime ends the
// thread, and no other code ever runs with its identity.
func (w *Workers) work(j job) {
	runtime.LockOSThread()
	dropSysResource()
	var current Identity // none before the first job
	known := false
	for ok := true; ok; j, ok = w.next() {
		for more := j.Job != nil; more; j, more = w.ended(&j) {
			if !known || current != j.id {
				if err := become(&j.id); err != nil {
					j.Run(err)
					// Who this thread is now is not known: another takes its place.
					other, _ := w.ended(&j)
					w.wg.Go(func() { w.work(other) })
					return
				}
				current, known = j.id, true
			}
			j.Run(nil)
		}
	}
}

// next waits for a thread's next job. ok is false if it is to end.
func (w *Workers) next() (j job, ok bool) {
	w.mu.Lock()
	if w.backlog > 0 {
		w.backlog--
	} else {
		w.idle++
	}
	w.mu.Unlock()
	j = <-w.jobs
	return j, j.Job != nil
}

// endIdle ends threads that were not needed, until Close: Go ends no others.
func (w *Workers) endIdle() {
	tick := time.NewTicker(idleThreads)
	defer tick.Stop()
	for {
		select {
		case <-w.stop:
			return
		case <-tick.C:
			w.endUnused()
		}
	}
}

// endUnused ends as many threads as were idle all the time since it was called last.
func (w *Workers) endUnused() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.idle -= w.unused
	w.threads -= w.unused
	for range w.unused {
		w.jobs <- job{} // there is room: each has a thread that waits
	}
	w.unused = w.idle
}

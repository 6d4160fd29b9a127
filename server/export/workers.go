package export

import (
	"runtime"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/podnas/podnas/idle"
	"github.com/podnas/podnas/server/shares"
)

// Workers are threads that act as the user of a call, so that the kernel checks
// mode bits, ACLs, sticky and setgid directories. A thread keeps its identity
// until it gets a call of another user, because switching costs one or two system
// calls. A thread is started if none is free for a job, and ends when it was
// unused for a while. Volumes and clients share the threads fairly.
type Workers struct {
	// jobs has as much capacity as the maximum number of threads. A job without a Job
	// ends the thread that receives it.
	jobs chan job
	wg   sync.WaitGroup // of threads
	root bool           // the process runs as root, and its groups don't matter
	only *Identity      // as whom all jobs are done; nil: each as its own

	stop   chan struct{}
	ending sync.WaitGroup // of endIdle
	begun  sync.WaitGroup // jobs

	mu      sync.Mutex
	acting  *shares.Semaphore[job] // jobs on threads
	spare   *shares.Semaphore[job] // jobs of root, on ordinary goroutines, because waking a locked thread takes longer
	threads int
	idle    int // threads that wait for a job and have none queued
	backlog int // queued jobs without a waiting thread
	unused  int // the minimum of idle since the last check
}

// idleThreads is the time between two checks for unused threads.
const idleThreads = 30 * time.Second

// Job is work for a thread with an identity.
type Job interface {
	// Run does it. The error is not nil if the thread could not change its identity;
	// Run must then access nothing.
	Run(error)
}

type job struct {
	id    Identity
	owner shares.Owner
	Job
}

// NewWorkers returns Workers with up to n threads, and up to n concurrent jobs of root beside them. If
// only is not nil, the process can act as that user alone, and all jobs are done as root's are. It
// sets the umask of the process to 0: clients apply their own, and the kernel applies default ACLs.
func NewWorkers(n int, only *Only) *Workers {
	unix.Umask(0)
	w := &Workers{jobs: make(chan job, n), root: isRoot(), stop: make(chan struct{}), acting: shares.New[job](n), spare: shares.New[job](n)}
	if only != nil {
		w.only = &Identity{UID: only.UID, GID: only.GID}
	}
	w.ending.Go(w.endIdle)
	return w
}

// Identity returns as whom a call is done in a volume with these options.
func (w *Workers) Identity(o *Options, uid, gid uint32, groups []uint32) Identity {
	if w.only != nil {
		return *w.only
	}
	return o.Identity(uid, gid, groups)
}

// Only reports whether all calls are done as one user, who may not be root.
func (w *Workers) Only() bool { return w.only != nil }

// Do may be called on any goroutine. It runs a job with an identity: on a thread with that identity, or for root on any. It
// does not block: the job is queued while the owner has its share of threads in use.
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

// hand gives a job to a thread. The caller holds w.mu, which hand unlocks.
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

// run does a job of root, and then those that waited for it.
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

// ended ends a thread's job, and returns its next one. If more jobs waited for that,
// other threads get them.
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

// Spare reports whether any goroutine can act with an identity, because it is
// root's, or that of the only user.
func (w *Workers) Spare(id *Identity) bool {
	return w.only != nil || w.root && id.UID == 0 && id.GID == 0
}

// isRoot reports whether the process is root with the capabilities that override
// file permissions, so that its groups don't matter.
func isRoot() bool {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	const passing = 1<<unix.CAP_CHOWN | 1<<unix.CAP_DAC_OVERRIDE | 1<<unix.CAP_FOWNER | 1<<unix.CAP_FSETID
	return unix.Geteuid() == 0 && unix.Getegid() == 0 && unix.Capget(&header, &data[0]) == nil && data[0].Effective&passing == passing
}

// Close ends the threads after their queued jobs. Call it once, when Do is not called any more.
func (w *Workers) Close() {
	close(w.stop)
	w.ending.Wait()
	w.begun.Wait()
	close(w.jobs)
	w.wg.Wait()
}

// work is one thread. j is its first job; without one it replaces another thread. It
// never unlocks the thread: when the goroutine ends, the Go runtime ends the thread, so
// no other code ever runs with its identity.
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
					// This thread's identity is unknown now: another one replaces it.
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

// endIdle ends unused threads, until Close, because Go does not end idle threads.
func (w *Workers) endIdle() {
	tick := time.NewTimer(idle.UntilTick(time.Now(), idleThreads))
	defer tick.Stop()
	for {
		select {
		case <-w.stop:
			return
		case now := <-tick.C:
			tick.Reset(idle.UntilTick(now, idleThreads))
			w.endUnused()
		}
	}
}

// endUnused ends as many threads as were always idle since its last call.
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

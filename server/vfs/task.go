package vfs

import (
	"log/slog"

	"github.com/podnas/podnas/nfs/rpc"
	"github.com/podnas/podnas/server/export"
	"github.com/podnas/podnas/server/oncrpc"
	"github.com/podnas/podnas/server/shares"
)

// Config configures a Service. All fields but Denied are needed.
type Config struct {
	Opener  *export.Opener
	Workers *export.Workers
	// Denied reports whether a client that has a file open denies reading or writing it to
	// who has not; nil: nobody does.
	Denied func(v *export.Volume, id export.FileID, write bool) bool
	Log    *slog.Logger
}

// Service has what tasks share.
type Service struct {
	opener  *export.Opener
	workers *export.Workers
	denied  func(v *export.Volume, id export.FileID, write bool) bool
	log     *slog.Logger
}

// New returns a Service.
func New(cfg Config) *Service {
	return &Service{opener: cfg.Opener, workers: cfg.Workers, denied: cfg.Denied, log: cfg.Log}
}

// Task is a call on its way through the operations. It is used by one goroutine at a time,
// which is root until a Step returns AsCaller. A protocol embeds it in what it keeps of a
// call, Call.State, so that the most frequent calls allocate nothing.
type Task struct {
	Call *oncrpc.Call
	// WantChange is whether the change attribute of directories is wanted.
	WantChange bool
	// SharesChecked is whether the protocol itself checks what opens deny.
	SharesChecked bool

	service  *Service
	steps    Steps
	promise  oncrpc.Promise  // if it is answered later
	volume   *export.Volume  // of the file that was opened last
	id       export.Identity // the caller's in that volume
	worker   bool            // a worker runs it, as id
	files    []closer        // closed after it
	writable *export.File    // of files; see someMayWrite
	syncs    []pending       // synced before its next step, in this order
	err      error           // of a sync

	// Memory for what most calls have of these.
	filesMem [3]closer
	syncsMem [2]pending
}

// Steps are a protocol's part of a call.
type Steps interface {
	// Step does the next part of the call.
	Step() Next
	// Free resets the state of the call, which is about to be answered: what stays with the
	// Call must not refer to the buffers of arguments and results.
	Free()
}

// Next is what a task does after a Step.
type Next uint8

// The values of Next.
const (
	// End: the call's files are closed, and its results are the reply.
	End Next = iota
	// AsCaller: the next Step runs on a worker, which acts as the caller.
	AsCaller
	// AsRoot: the next Step runs on a goroutine that is root, and not as the caller.
	AsRoot
	// AfterSync: the next Step runs when all files of Sync are synced, or one sync has
	// failed, see SyncErr. It may run on any goroutine, see IsCaller.
	AfterSync
)

// closer is a file as long as a call uses it.
type closer interface{ Close() }

// syncer is a file that can be synced.
type syncer interface {
	SyncHere(dataOnly bool) (ok bool, err error)
	SyncThen(dataOnly bool, w export.Waiter)
}

// pending is a sync that a call waits for.
type pending struct {
	file     syncer
	dataOnly bool
}

// Begin starts the task of a call.
func (t *Task) Begin(s *Service, c *oncrpc.Call, steps Steps) {
	t.service, t.Call, t.steps = s, c, steps
	t.files, t.syncs, t.writable = t.filesMem[:0], t.syncsMem[:0], nil
}

// Closes adds a file that is closed when the call ends.
func (t *Task) Closes(f closer) { t.files = append(t.files, f) }

// Sync adds a file that is synced before the Step that follows AfterSync, unless an earlier
// sync fails. The file must stay open until then. dataOnly leaves out the metadata that is not
// needed to read the data back.
func (t *Task) Sync(f syncer, dataOnly bool) { t.syncs = append(t.syncs, pending{f, dataOnly}) }

// SyncErr returns the error of the sync that failed.
func (t *Task) SyncErr() error { return t.err }

// IsCaller reports whether the goroutine acts as the caller: it is a worker, or the caller is
// root, as which every goroutine acts.
func (t *Task) IsCaller() bool { return t.worker || t.service.workers.Spare(&t.id) }

// Answer answers the call. It runs the steps that can run on this goroutine; workers and syncs
// run the others. The task must not be used after it.
func (t *Task) Answer() oncrpc.Answer {
	for {
		switch t.step() {
		case End:
			return t.end(rpc.Success)
		case AsCaller:
			later := t.later()
			t.service.workers.Do(t.id, shares.Owner{Volume: t.volume.ID, Client: t.Call.Client.Addr()}, t)
			return later
		case AsRoot:
			if t.worker {
				later := t.later()
				t.worker = false
				go t.onAsRoot()
				return later
			}
		case AfterSync:
			for len(t.syncs) > 0 && t.Call.Alone() && t.syncHere() {
			}
			if len(t.syncs) > 0 {
				later := t.later()
				t.syncNext()
				return later
			}
		}
	}
}

// onAsRoot goes on after a worker.
func (t *Task) onAsRoot() {
	promise := t.promise
	defer promise.Recover()
	promise.Finish(t.Answer())
}

// later promises that another goroutine answers the call.
func (t *Task) later() (later oncrpc.Answer) {
	t.promise, later = t.Call.Later()
	return later
}

func (t *Task) step() Next {
	ended := false
	defer func() {
		if !ended { // a panic
			t.close()
		}
	}()
	next := t.steps.Step()
	ended = true
	return next
}

// end answers the call. The task may be another call's afterwards.
func (t *Task) end(stat rpc.AcceptStat) oncrpc.Answer {
	t.close()
	t.steps.Free()
	return oncrpc.Done(stat)
}

// Run is the worker's part.
func (t *Task) Run(err error) {
	c, promise := t.Call, t.promise
	defer promise.Recover()
	if err != nil {
		t.service.log.Error("nfs: can't act as the caller of a call", "client", c.Client, "xid", c.Header.XID, "uid", t.id.UID, "gid", t.id.GID, "err", err)
	}
	if err != nil || c.Abandoned() {
		promise.Finish(t.end(rpc.SystemErr))
		return
	}
	t.worker = true
	promise.Finish(t.Answer())
}

// syncHere does the next sync, unless another goroutine syncs the file.
func (t *Task) syncHere() bool {
	ok, err := t.syncs[0].file.SyncHere(t.syncs[0].dataOnly)
	if ok {
		t.synced(err)
	}
	return ok
}

// syncNext starts the next sync. The task may be another call's when it returns.
func (t *Task) syncNext() { t.syncs[0].file.SyncThen(t.syncs[0].dataOnly, t) }

// synced ends the first of the syncs.
func (t *Task) synced(err error) {
	t.syncs = t.syncs[1:]
	if err != nil {
		t.err, t.syncs = err, nil
	}
}

// Synced implements export.Waiter: it continues the task.
func (t *Task) Synced(err error) {
	promise := t.promise
	defer promise.Recover()
	t.worker = false
	if t.synced(err); len(t.syncs) > 0 {
		t.syncNext()
		return
	}
	promise.Finish(t.Answer())
}

// close ends the use of the call's files.
func (t *Task) close() {
	for _, f := range t.files {
		f.Close()
	}
	t.files = nil
}

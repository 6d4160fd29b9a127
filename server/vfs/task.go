package vfs

import (
	"log/slog"

	"github.com/podnas/podnas/nfs/rpc"
	"github.com/podnas/podnas/server/export"
	"github.com/podnas/podnas/server/oncrpc"
	"github.com/podnas/podnas/server/shares"
)

// Config says how to make a Service. All fields are needed.
type Config struct {
	Opener  *export.Opener
	Workers *export.Workers
	Log     *slog.Logger
}

// Service has what tasks share.
type Service struct {
	opener  *export.Opener
	workers *export.Workers
	log     *slog.Logger
}

// New makes a Service.
func New(cfg Config) *Service {
	return &Service{opener: cfg.Opener, workers: cfg.Workers, log: cfg.Log}
}

// Task is a call on its way through the operations. It is used by one goroutine at a time,
// which is root until a Step returns AsCaller. A protocol embeds it in what it keeps of a
// call, Call.State, so that the calls that are made most allocate nothing.
type Task struct {
	Call *oncrpc.Call

	service *Service
	steps   Steps
	promise oncrpc.Promise  // if it is answered later
	volume  *export.Volume  // of the file that was opened last
	id      export.Identity // the caller's in that volume
	worker  bool            // a worker runs it, as id
	files   []closer        // closed after it
	syncs   []pending       // synced before its next step, in this order
	err     error           // of a sync

	// Memory for what most calls have of these.
	filesMem [3]closer
	syncsMem [2]pending
}

// Steps are what a protocol makes of a call.
type Steps interface {
	// Step does the next part of the call.
	Step() Next
	// Free forgets the call, which is about to be answered. What stays with the Call must
	// not hold on to the buffers that arguments and results were in.
	Free()
}

// Next is what happens after a Step.
type Next uint8

// What can be next.
const (
	// End: the call's files are closed, and its results are the reply.
	End Next = iota
	// AsCaller: the next Step runs on a worker, which acts as the caller.
	AsCaller
	// AfterSync: the next Step runs when all that Sync was called for is synced, or some
	// could not be, see SyncErr. It may run on any goroutine, see IsCaller.
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
	t.files, t.syncs = t.filesMem[:0], t.syncsMem[:0]
}

// Closes has a file closed when the call ends.
func (t *Task) Closes(f closer) { t.files = append(t.files, f) }

// Sync has a file synced before the Step that follows AfterSync, unless an earlier sync
// fails. dataOnly leaves out the metadata that is not needed to read the data back.
func (t *Task) Sync(f syncer, dataOnly bool) { t.syncs = append(t.syncs, pending{f, dataOnly}) }

// SyncErr returns the error of the sync that failed.
func (t *Task) SyncErr() error { return t.err }

// IsCaller reports whether the goroutine acts as the caller: on a worker, or because any
// does as the caller is root.
func (t *Task) IsCaller() bool { return t.worker || t.service.workers.Spare(&t.id) }

// Answer answers the call: it makes the steps that can be made on this goroutine, and has
// the others made elsewhere.
func (t *Task) Answer() oncrpc.Answer {
	for {
		switch t.step() {
		case End:
			return t.end(rpc.Success)
		case AsCaller:
			later := t.later()
			t.service.workers.Do(t.id, shares.Owner{Volume: t.volume.ID, Client: t.Call.Client.Addr()}, t)
			return later
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

// later has the call answered by another goroutine.
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
		t.service.log.Error("nfs: a call could not be made for its caller", "client", c.Client, "xid", c.Header.XID, "uid", t.id.UID, "gid", t.id.GID, "err", err)
	}
	if err != nil || c.Abandoned() {
		promise.Finish(t.end(rpc.SystemErr))
		return
	}
	t.worker = true
	promise.Finish(t.Answer())
}

// syncHere makes the next sync, unless another goroutine syncs the file.
func (t *Task) syncHere() bool {
	ok, err := t.syncs[0].file.SyncHere(t.syncs[0].dataOnly)
	if ok {
		t.synced(err)
	}
	return ok
}

// syncNext has the next sync made. The task may be another call's when it returns.
func (t *Task) syncNext() { t.syncs[0].file.SyncThen(t.syncs[0].dataOnly, t) }

// synced ends the first of the syncs.
func (t *Task) synced(err error) {
	t.syncs = t.syncs[1:]
	if err != nil {
		t.err, t.syncs = err, nil
	}
}

// Synced goes on when a file is synced.
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

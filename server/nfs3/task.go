package nfs3

import (
	"github.com/podnas/podnas/nfs/nfs3"
	"github.com/podnas/podnas/nfs/rpc"
	"github.com/podnas/podnas/server/export"
	"github.com/podnas/podnas/server/oncrpc"
	"github.com/podnas/podnas/server/shares"
)

// task is the answer to a call in the making, and the memory it takes. It is the
// Call's State and used again with it, so that the calls that are made most
// allocate nothing.
type task struct {
	service *service
	call    *oncrpc.Call
	promise oncrpc.Promise            // if it is answered later
	id      export.Identity           // whom the volume takes the caller for
	do      func(*task) result        // runs on a worker as the caller
	files   [2]closer                 // closed after it; nil or open
	syncs   [2]syncer                 // synced before the reply, in this order; nil: no more
	status  *nfs3.Status              // of the result that waits for them
	waiting result                    // that one
	verf    *[nfs3.WriteVerfSize]byte // of COMMIT's result, which is from after the sync
	file    *export.File              // of GETATTR, ACCESS and LOOKUP
	data    *export.DataFile          // of READ, WRITE and COMMIT
	handle  [nfs3.FHSize]byte         // of LOOKUP's result
	args    struct {
		getattr nfs3.GetattrArgs
		lookup  nfs3.LookupArgs
		access  nfs3.AccessArgs
		read    nfs3.ReadArgs
		write   nfs3.WriteArgs
	}
	res struct {
		getattr nfs3.GetattrRes
		lookup  nfs3.LookupRes
		access  nfs3.AccessRes
		read    nfs3.ReadRes
		write   nfs3.WriteRes
	}
}

// closer is an open file, as long as a call uses it.
type closer interface{ Close() }

// syncer is an open file that can be synced.
type syncer interface {
	// SyncHere syncs it on this goroutine, unless another does already.
	SyncHere() (ok bool, err error)
	SyncThen(export.Waiter)
}

// task begins the answer to a call.
func (s *service) task(c *oncrpc.Call) *task {
	t, ok := c.State.(*task)
	if !ok {
		t = &task{}
		c.State = t
	}
	*t = task{service: s, call: c}
	return t
}

// start answers the call with what do returns. It runs on a worker as the caller,
// and the files are closed after it.
func (t *task) start(v *export.Volume, do func(*task) result, files ...closer) oncrpc.Answer {
	t.begin(v, do, files)
	later := t.later()
	t.service.workers.Do(t.id, shares.Owner{Volume: v.ID, Client: t.call.Client.Addr()}, t)
	return later
}

// later has the call answered by another goroutine.
func (t *task) later() (later oncrpc.Answer) {
	t.promise, later = t.call.Later()
	return later
}

// answer is start for what does not wait for the disk as a rule. For root it runs
// here.
func (t *task) answer(v *export.Volume, do func(*task) result, files ...closer) oncrpc.Answer {
	if id := identity(t.call, v); !t.service.workers.Spare(&id) {
		return t.start(v, do, files...)
	}
	t.begin(v, do, files)
	return t.end(t.result())
}

func (t *task) begin(v *export.Volume, do func(*task) result, files []closer) {
	t.id = identity(t.call, v)
	t.do = do
	copy(t.files[:], files)
}

// work is answer for calls that are made less often: f has what it needs from where
// it stands.
func (s *service) work(c *oncrpc.Call, v *export.Volume, f func(*task) result, files ...closer) oncrpc.Answer {
	return s.task(c).answer(v, f, files...)
}

// Run is the worker's part.
func (t *task) Run(err error) {
	c, promise := t.call, t.promise // the task may be another call's when it is answered
	defer promise.Recover()
	if err != nil {
		t.service.log.Error("nfs: a call could not be made for its caller", "client", c.Client, "xid", c.Header.XID, "uid", t.id.UID, "gid", t.id.GID, "err", err)
	}
	if err != nil || c.Abandoned() {
		t.close()
		promise.Finish(finishCall(c, rpc.SystemErr))
		return
	}
	promise.Finish(t.end(t.result()))
}

// result is what the call is answered with, when what it says to sync is synced.
func (t *task) result() result {
	ended := false
	defer func() {
		if !ended { // a panic
			t.close()
		}
	}()
	res := t.do(t)
	ended = true
	return res
}

// sync has files synced before the reply, in their order. If one can't be, the
// result's status says so.
func (t *task) sync(status *nfs3.Status, files ...syncer) {
	t.status = status
	copy(t.syncs[:], files)
}

// end answers the call.
func (t *task) end(res result) oncrpc.Answer {
	for t.syncs[0] != nil && t.call.Alone() && t.syncHere() {
	}
	if t.syncs[0] != nil {
		t.waiting = res
		later := t.later()
		t.syncNext()
		return later
	}
	return t.finish(res)
}

// finish is the reply, when all is synced.
func (t *task) finish(res result) oncrpc.Answer {
	if t.verf != nil {
		*t.verf = writeVerf(t.data.Volume)
	}
	t.close()
	return reply(t.call, res)
}

// syncHere syncs the next file, unless another goroutine does.
func (t *task) syncHere() bool {
	ok, err := t.syncs[0].SyncHere()
	if !ok {
		return false
	}
	t.syncs[0], t.syncs[1] = t.syncs[1], nil
	if err != nil {
		*t.status, t.syncs[0] = statusOf(err), nil
	}
	return true
}

// syncNext has the next file synced. The task may be another call's when it returns.
func (t *task) syncNext() {
	next := t.syncs[0]
	t.syncs[0], t.syncs[1] = t.syncs[1], nil
	next.SyncThen(t)
}

// Synced goes on when a file is synced.
func (t *task) Synced(err error) {
	promise := t.promise
	defer promise.Recover()
	switch {
	case err != nil:
		*t.status = statusOf(err)
	case t.syncs[0] != nil:
		t.syncNext()
		return
	}
	promise.Finish(t.finish(t.waiting))
}

// close ends the use of the call's files.
func (t *task) close() {
	for i, file := range t.files {
		if file != nil {
			t.files[i] = nil
			file.Close()
		}
	}
}

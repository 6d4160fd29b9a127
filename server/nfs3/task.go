package nfs3

import (
	"github.com/podnas/podnas/server/export"
	"github.com/podnas/podnas/server/oncrpc"
)

// task is the answer to a call in the making, and the memory it takes. It is the
// Call's State and used again with it, so that the calls that are made most
// allocate nothing.
type task struct {
	service *service
	call    *oncrpc.Call
	id      export.Identity    // whom the volume takes the caller for
	do      func(*task) result // runs on a worker as the caller
	files   [2]closer          // closed after it; nil or open
	file    *export.File       // of GETATTR, ACCESS and LOOKUP
	data    *export.DataFile   // of READ and WRITE
	handle  [FHSize]byte       // of LOOKUP's result
	args    struct {
		getattr GetattrArgs
		lookup  LookupArgs
		access  AccessArgs
		read    ReadArgs
		write   WriteArgs
	}
	res struct {
		getattr GetattrRes
		lookup  LookupRes
		access  AccessRes
		read    ReadRes
		write   WriteRes
	}
}

// closer is an open file, as long as a call uses it.
type closer interface{ Close() }

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
func (t *task) start(v *export.Volume, do func(*task) result, files ...closer) {
	t.call.Later()
	t.begin(v, do, files)
	t.service.workers.Do(t.id, t)
}

// answer is start for what does not sync. For root it runs here.
func (t *task) answer(v *export.Volume, do func(*task) result, files ...closer) {
	if id := identity(t.call, v); !t.service.workers.Spare(&id) {
		t.start(v, do, files...)
		return
	}
	t.begin(v, do, files)
	reply(t.call, t.result(nil))
}

func (t *task) begin(v *export.Volume, do func(*task) result, files []closer) {
	t.id = identity(t.call, v)
	t.do = do
	copy(t.files[:], files)
}

// Run is the worker's part.
func (t *task) Run(err error) {
	c := t.call
	defer c.Recover()
	res := t.result(err)
	if err != nil {
		t.service.log.Error("nfs: a call could not be made for its caller", "client", c.Client, "xid", c.Header.XID, "uid", t.id.UID, "gid", t.id.GID, "err", err)
		c.Finish(oncrpc.SystemErr)
		return
	}
	reply(c, res)
}

// result is what the call is answered with, nil if the thread is not the caller.
func (t *task) result(err error) result {
	defer func() {
		for _, file := range t.files {
			if file != nil {
				file.Close()
			}
		}
	}()
	if err != nil {
		return nil
	}
	return t.do(t)
}

// work is answer for calls that are made less often: f has what it needs from where
// it stands. change is for those that change names or attributes, which are synced
// unless the volume says otherwise.
func (s *service) work(c *oncrpc.Call, v *export.Volume, f func(export.Identity) result, files ...closer) {
	s.task(c).answer(v, func(t *task) result { return f(t.id) }, files...)
}

func (s *service) change(c *oncrpc.Call, v *export.Volume, f func(export.Identity) result, files ...closer) {
	if v.Options.Async {
		s.work(c, v, f, files...)
		return
	}
	s.task(c).start(v, func(t *task) result { return f(t.id) }, files...)
}

package nfs3

import (
	"github.com/podnas/podnas/nfs/nfs3"
	"github.com/podnas/podnas/nfs/rpc"
	"github.com/podnas/podnas/nfs/xdr"
	"github.com/podnas/podnas/server/export"
	"github.com/podnas/podnas/server/oncrpc"
	"github.com/podnas/podnas/server/vfs"
)

// task is a call that is being answered, and the memory for that. It is the Call's State and
// is reused with it, so that the most frequent calls allocate nothing.
type task struct {
	vfs.Task

	// do executes the call, on any goroutine or, if asCaller is set, on one that acts as the
	// caller. It returns nil if it needs a worker, and is called again there.
	do       func(*task) result
	asCaller bool
	result   result                    // of do
	status   *nfs3.Status              // the result's, of a call that has files synced
	verf     *[nfs3.WriteVerfSize]byte // of COMMIT's result, which is from after the sync

	file   *export.File      // of GETATTR, ACCESS, LOOKUP, READ, WRITE and COMMIT, and the directory of a naming
	handle [nfs3.FHSize]byte // of LOOKUP's result, and of what was made
	args   struct {
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
	names *naming // nil until it is needed first
}

// naming is the memory of a CREATE, REMOVE, RMDIR or RENAME. It is not in the task, so that other calls need not clear it.
type naming struct {
	args struct {
		create nfs3.CreateArgs
		remove nfs3.RemoveArgs
		rename nfs3.RenameArgs
	}
	res struct {
		create nfs3.CreateRes
		remove nfs3.RemoveRes
		rename nfs3.RenameRes
	}
	set vfs.SetAttr  // of CREATE
	to  *export.File // the other directory of RENAME
}

// task begins the answer to a call.
func (s *service) task(c *oncrpc.Call) *task {
	t, ok := c.State.(*task)
	if !ok {
		t = &task{}
		c.State = t
	}
	*t = task{names: t.names}
	t.Begin(s.files, c, t)
	return t
}

// naming returns the memory for a call that changes names.
func (t *task) naming() *naming {
	if t.names == nil {
		t.names = &naming{}
	}
	*t.names = naming{}
	return t.names
}

// answer answers the call with what do returns.
func (t *task) answer(do func(*task) result) oncrpc.Answer {
	t.do = do
	return t.Answer()
}

// answerAsCaller is answer, but do runs only on a goroutine that acts as the caller.
func (t *task) answerAsCaller(do func(*task) result) oncrpc.Answer {
	t.asCaller = true
	return t.answer(do)
}

// reply answers the call with a result.
func (t *task) reply(res result) oncrpc.Answer {
	t.result = res
	return t.Answer()
}

// syncs sets the status that changes if a sync fails.
func (t *task) syncs(status *nfs3.Status) { t.status = status }

// Step is one of two: the operation, and the reply, when all is synced.
func (t *task) Step() vfs.Next {
	if t.result == nil {
		if t.asCaller && !t.IsCaller() {
			return vfs.AsCaller
		}
		if t.result = t.do(t); t.result == nil {
			return vfs.AsCaller
		}
		return vfs.AfterSync
	}
	if err := t.SyncErr(); err != nil {
		*t.status = statusOf(err)
	}
	if t.verf != nil {
		*t.verf = writeVerf(t.file.Volume.WriteVerifier())
	}
	t.Call.Reply = t.result.Append(t.Call.Reply)
	return vfs.End
}

// Free forgets the call.
func (t *task) Free() { *t = task{names: t.names} }

// procedure is a handler that decodes the arguments of a call for answer. The most frequent
// procedures have their arguments in the task.
func procedure[A any, D interface {
	*A
	Decode(*xdr.Decoder)
}](s *service, answer func(*task, D) oncrpc.Answer) func(*oncrpc.Call) oncrpc.Answer {
	return func(c *oncrpc.Call) oncrpc.Answer {
		t, args := s.task(c), D(new(A))
		if !decode(c, args) {
			return t.badArgs()
		}
		return answer(t, args)
	}
}

// decode decodes a call's arguments. It returns false if they are malformed.
func decode(c *oncrpc.Call, args interface{ Decode(*xdr.Decoder) }) bool {
	args.Decode(&c.Args)
	return c.Args.Finish() == nil
}

// badArgs answers a call with malformed arguments.
func (t *task) badArgs() oncrpc.Answer { return t.fail(rpc.GarbageArgs) }

// fail answers a call that was not executed.
func (t *task) fail(stat rpc.AcceptStat) oncrpc.Answer {
	t.Free()
	return oncrpc.Done(stat)
}

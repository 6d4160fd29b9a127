package nfsv41_test

import (
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/podnas/podnas/nfs/nfs4"
	"github.com/podnas/podnas/nfs/rpc"
	"github.com/podnas/podnas/server/disk"
	"github.com/podnas/podnas/server/nfsv41"
	"github.com/podnas/podnas/server/nfsv41/state"
)

// slowDescriptor takes until it is let go to be released.
type slowDescriptor struct {
	begun, goes chan struct{}
	releases    atomic.Int64
}

func (*slowDescriptor) Retain() {}

func (d *slowDescriptor) Release() {
	if d.begun != nil {
		close(d.begun)
		<-d.goes
	}
	d.releases.Add(1)
}

// Nobody waits until what a client held is closed that was dismissed, but who deletes a volume of which that is, and the end of the
// server. Meanwhile a full disk may have room soon.
func TestAbandoned(t *testing.T) {
	l := newLife(t)
	s := l.start()
	table := l.cfg.Table
	slow, quick := &slowDescriptor{begun: make(chan struct{}), goes: make(chan struct{})}, &slowDescriptor{}
	s.Abandon([]state.Abandoned{{Descriptor: slow, Volume: 1}, {Descriptor: quick, Volume: 2}})
	<-slow.begun
	s.Abandon([]state.Abandoned{{Descriptor: quick, Volume: 1}, {Descriptor: quick, Volume: 1}})
	table.Forget(3) // waits for none of it
	if n := table.Freeing.Load(); n != 4 || quick.releases.Load() != 0 {
		t.Errorf("%d are being released, and %d are; want 4 and 0", n, quick.releases.Load())
	}
	var released [3]int64 // when these have returned
	var waiting sync.WaitGroup
	for i, wait := range []func(){func() { table.Forget(2) }, func() { table.Forget(1) }, s.Stop} {
		waiting.Go(func() {
			wait()
			released[i] = slow.releases.Load() + quick.releases.Load()
		})
	}
	time.Sleep(20 * time.Millisecond) // for who does not wait
	close(slow.goes)
	waiting.Wait()
	if released[0] < 2 || released[1] != 4 || released[2] != 4 {
		t.Errorf("a volume, another and the server end when %v are released", released)
	}
	if n := table.Freeing.Load(); n != 0 {
		t.Errorf("%d are being released", n)
	}
}

// What is too much is released by the call, so that descriptors do not pile up.
func TestAbandonedTooMany(t *testing.T) {
	l := newLife(t)
	s := l.start()
	slow, quick := &slowDescriptor{begun: make(chan struct{}), goes: make(chan struct{})}, &slowDescriptor{}
	s.Abandon([]state.Abandoned{{Descriptor: slow, Volume: 1}})
	<-slow.begun
	const more = 10
	all := make([]state.Abandoned, s.AbandonedMax()+more)
	for i := range all {
		all[i] = state.Abandoned{Descriptor: quick, Volume: uint64(i % 3)}
	}
	s.Abandon(all)
	s.Abandon(all[:more])
	if n := quick.releases.Load(); n != 2*more {
		t.Errorf("%d are released by the calls, want %d", n, 2*more)
	}
	close(slow.goes)
	s.Stop()
	if n := quick.releases.Load(); n != int64(len(all)+more) || l.cfg.Table.Freeing.Load() != 0 {
		t.Errorf("%d are released, want %d; %d are left", n, len(all)+more, l.cfg.Table.Freeing.Load())
	}
}

// A file that was removed while a client had it open goes with the client: soon, or at the next start if the server ends at once.
func TestAbandonedOrphan(t *testing.T) {
	for _, atOnce := range []bool{false, true} {
		dir, cfg := t.TempDir(), nfsv41.Config{Tracking: t.TempDir(), Removed: t.TempDir()}
		if err := disk.ProbeHandles(dir); err != nil {
			t.Skip(err)
		}
		names := func() []os.DirEntry {
			t.Helper()
			entries, err := os.ReadDir(cfg.Removed)
			mustDo(t, err)
			return entries
		}
		t.Run("evicted", func(t *testing.T) {
			mustDo(t, os.WriteFile(filepath.Join(dir, "file"), make([]byte, 1<<20), 0o600))
			conn, s, made := serveAs(t, dir, false, cfg)
			made.Opener.EndReclaim(t.Context())
			c := &caller{TB: t, conn: conn, cred: (&rpc.SysCred{}).Auth(), reply: make([]byte, 8<<10)}
			c.begin()
			root := c.lookup(operation{Num: nfs4.OpPutrootfh}, "volume")
			args := nfs4.OpenArgs{ShareAccess: nfs4.ShareAccessBoth, Owner: nfs4.StateOwner{Owner: []byte("owner")}, Name: []byte("file")}
			c.do(c.compound("OPEN", true, putfh(root), operation{Num: nfs4.OpOpen, Args: &args}))
			c.do(c.compound("REMOVE", true, putfh(root), operation{Num: nfs4.OpRemove, Args: &nfs4.RemoveArgs{Name: []byte("file")}}))
			if n := len(names()); n != 1 {
				t.Fatalf("%d files are kept that were removed", n)
			}
			mustDo(t, s.Evict(t.Context(), s.Snapshot(1).Clients[0].ID))
			for deadline := time.Now().Add(20 * time.Second); !atOnce && (len(names()) > 0 || made.Table.Freeing.Load() > 0); time.Sleep(time.Millisecond) {
				if time.Now().After(deadline) {
					t.Fatalf("%v is kept", names())
				}
			}
		})
		t.Run("next", func(t *testing.T) {
			for _, folder := range []string{dir, cfg.Removed} {
				if open := openBelow(t, folder); len(open) > 0 {
					t.Errorf("open still: %v", open)
				}
			}
			_, s, made := serveAs(t, dir, false, cfg)
			made.Opener.EndReclaim(t.Context())
			if n := names(); len(n) > 0 || s.Counts().Opens > 0 {
				t.Errorf("%v are kept, %+v", n, s.Counts())
			}
		})
	}
}

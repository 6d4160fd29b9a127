package durable

import (
	"errors"
	"fmt"
	"testing"

	"golang.org/x/sys/unix"
)

func TestErrSeq(t *testing.T) {
	var e errSeq
	before := e.sample()
	if err := e.since(before); err != nil {
		t.Errorf("nothing has failed: %v", err)
	}
	e.failed(fmt.Errorf("sync: %w", unix.ENOSPC))
	after := e.sample()
	for sample, want := range map[uint64]error{before: unix.ENOSPC, after: nil} {
		if err := e.since(sample); !errors.Is(err, want) {
			t.Errorf("since %x: %v, want %v", sample, err, want)
		}
	}
	e.failed(unix.ENOSPC) // the same once more is another failure
	if err := e.since(after); !errors.Is(err, unix.ENOSPC) {
		t.Errorf("after a second failure: %v", err)
	}
	e.failed(errors.New("no errno"))
	if err := e.since(after); !errors.Is(err, unix.EIO) {
		t.Errorf("a failure without an errno: %v", err)
	}
}

// The kernel reports a failed sync once. All calls that had changed the file by then get the
// error, even if their own sync succeeds; calls that change it later do not. The verifier has
// changed before the first of them gets it.
func TestFailedSyncIsToldToAll(t *testing.T) {
	b := begin(t)
	first := b.file("file", Write)
	open := func() (*File, uint64) {
		f := b.of(first.fd, Write, first.state)
		since := f.Sample()
		return f, since
	}
	second, secondSince := open()
	here, hereSince := open()
	verifier := b.volume.WriteVerifier()

	good := first.fd
	first.fd = -1
	inRound, goOn := make(chan error), make(chan struct{})
	b.then(first, false, toldFunc(func(err error) {
		if b.volume.WriteVerifier() == verifier {
			t.Error("a failure is told, and the write verifier is the one from before")
		}
		inRound <- err
		<-goOn
	}))
	if err := <-inRound; err == nil {
		t.Error("in the round that fails: no error")
	}
	first.fd = good // and from here on the kernel says that all is well
	late, lateSince := open()
	told := make(chan error, 2)
	b.sync(waiting{second, secondSince, toldFunc(func(err error) { told <- err }), nil}, false)
	b.sync(waiting{late, lateSince, toldFunc(func(err error) { told <- err }), nil}, false)
	close(goOn)
	if err := <-told; err == nil {
		t.Error("open since before the failure, and in the round after it: no error")
	}
	if err := <-told; err != nil {
		t.Errorf("opened after the failure: %v", err)
	}
	for ok := false; !ok; {
		var err error
		if ok, err = b.Here(here, hereSince, false); ok && err == nil {
			t.Error("open since before the failure, and synced here: no error")
		}
	}
}

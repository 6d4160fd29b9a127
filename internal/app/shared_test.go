package app

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/podnas/podnas/internal/heartbeat"
	"github.com/podnas/podnas/internal/latest"
	"github.com/podnas/podnas/internal/statedir"
	"github.com/podnas/podnas/internal/volume/shareddisk"
)

// podnas mounts a shared disk anew for what a file system says that has failed, and for nothing else.
func TestFails(t *testing.T) {
	for _, tt := range []struct {
		err  error
		want bool
	}{
		{nil, false},
		{&fs.PathError{Op: "write", Path: "heartbeat", Err: syscall.EIO}, true},
		{&fs.PathError{Op: "open", Path: "heartbeat", Err: syscall.EROFS}, true},
		{syscall.EUCLEAN, true},
		{syscall.EMFILE, false},
		{syscall.ENOMEM, false},
		{syscall.EBADE, false}, // a reservation: another podnas takes the disk over
		{fmt.Errorf("heartbeat: %w", shareddisk.ErrLost), false},
		{&latest.PendingError{Since: time.Now()}, false},
	} {
		if got := fails(tt.err); got != tt.want {
			t.Errorf("%v: %v", tt.err, got)
		}
	}
}

// What a podnas is to tell of its disk waits for a beat, for longer than the replies to clients.
func TestWaitBeat(t *testing.T) {
	t.Parallel()
	dir, err := statedir.Open(t.TempDir(), nil, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	var back atomic.Bool
	const short = 20 * time.Millisecond
	beats, err := heartbeat.Open(heartbeat.Config{Dir: dir, Every: short / 2, Hold: short, Close: short, Log: slog.New(slog.DiscardHandler), Overwrite: func([]byte) error {
		if back.Load() {
			return nil
		}
		return syscall.EBADE
	}})
	if err != nil {
		t.Fatal(err)
	}
	defer beats.Close()
	a := &App{heartbeat: beats}
	ctx, cancel := context.WithTimeout(t.Context(), 10*short)
	defer cancel()
	if err := a.waitBeat(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("of a lost disk: %v", err)
	}
	told := make(chan error, 1)
	go func() { told <- a.waitBeat(t.Context()) }()
	time.Sleep(10 * short)
	select {
	case err := <-told:
		t.Errorf("it does not wait: %v", err)
	default:
	}
	back.Store(true)
	if err := <-told; err != nil {
		t.Error(err)
	}
}

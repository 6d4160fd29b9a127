package app

import (
	"context"
	"net"
	"time"

	"github.com/podnas/podnas/internal/doctor"
	"github.com/podnas/podnas/provisioner/control"
)

// listenAgain is when the socket is tried again on a disk that does not take it, as a full one.
const listenAgain = 5 * time.Second

// serveCommands answers podnas's own commands, from when they may be, until ctx
// ends. On a disk that takes no socket there are none for now; the clients of NFS need none.
func serveCommands(ctx context.Context, from <-chan struct{}, root string, s *control.Server) error {
	select {
	case <-from:
	case <-ctx.Done():
		return nil
	}
	l := listenForCommands(ctx, root, s)
	if l == nil {
		return nil
	}
	defer l.Close() // closed twice on most ways, which does no harm
	return s.Serve(ctx, l)
}

// listenForCommands makes the socket, as soon as the disk takes it. It returns nil when ctx has ended before.
func listenForCommands(ctx context.Context, root string, s *control.Server) net.Listener {
	for told := false; ; told = true {
		l, err := control.Listen(root, s.Provisioner.Store.Reserve(), s.Log)
		switch {
		case err == nil && told:
			s.Log.Info("control: 'podnas volume' and 'podnas doctor' reach this process")
			fallthrough
		case err == nil:
			return l
		case !told:
			s.Log.Error("control: 'podnas volume' and 'podnas doctor' can't reach this process for now: the socket is tried again", "err", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(listenAgain):
		}
	}
}

// watch runs the checks of a list from when they may use the client of the API server,
// until ctx ends.
func watch(ctx context.Context, from <-chan struct{}, found *doctor.List) error {
	select {
	case <-from:
		found.Watch(ctx)
	case <-ctx.Done():
	}
	return nil
}

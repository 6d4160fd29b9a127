package oncrpc_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/podnas/podnas/nfs/rpc"
	"github.com/podnas/podnas/nfs/xdr"
	"github.com/podnas/podnas/server/oncrpc"
)

// peer connects a client that answers calls, and returns the server's side of the connection.
func (s *testServer) peer(handle rpc.Handler) (*rpc.Client, oncrpc.Conn) {
	s.t.Helper()
	nc, err := net.Dial("tcp", s.addr)
	if err != nil {
		s.t.Fatal(err)
	}
	c := rpc.NewPeer(nc, handle)
	s.t.Cleanup(func() { _ = c.Close() })
	if _, err := c.Call(s.t.Context(), testProg, testVers, procNull, nil); err != nil {
		s.t.Fatal(err)
	}
	on := s.server.ConnOf(nc.LocalAddr().String())
	if on == nil {
		s.t.Fatal("the server has no such connection")
	}
	return c, on
}

// The server calls its clients over their connections, beside their own calls.
func TestAsk(t *testing.T) {
	s := startServer(t, oncrpc.Limits{})
	c, on := s.peer(func(h *rpc.CallHeader, args *xdr.Decoder, reply []byte) []byte {
		return append(xdr.AppendUint32(reply, h.Prog+h.Vers+h.Proc), args.Rest()...)
	})
	var calls sync.WaitGroup
	for i := range uint32(50) {
		calls.Go(func() {
			got, err := on.Ask(t.Context(), rpc.CallHeader{RPCVersion: rpc.Version, Prog: 7, Vers: 1, Proc: i}, words{i})
			if want := (words{8 + i, i}).Append(nil); err != nil || !slices.Equal(got, want) {
				t.Errorf("call %d: % x, %v", i, got, err)
			}
		})
		calls.Go(func() {
			got, err := c.Call(t.Context(), testProg, testVers, procEcho, words{i})
			if want := (words{i}).Append(nil); err != nil || !slices.Equal(got, want) {
				t.Errorf("the client's call %d: % x, %v", i, got, err)
			}
		})
	}
	calls.Wait()
}

// A client that does not answer, answers with too much, or goes, delays who asks and nobody
// else.
func TestAskFails(t *testing.T) {
	s := startServer(t, oncrpc.Limits{})
	never := make(chan struct{})
	t.Cleanup(func() { close(never) })
	c, on := s.peer(func(h *rpc.CallHeader, _ *xdr.Decoder, reply []byte) []byte {
		switch h.Proc {
		case 0:
			<-never
		case 1:
			return append(reply, make([]byte, oncrpc.AnswerMax)...)
		}
		return reply
	})
	ask := func(ctx context.Context, proc uint32) error {
		_, err := on.Ask(ctx, rpc.CallHeader{RPCVersion: rpc.Version, Proc: proc}, words{})
		return err
	}
	for proc := range uint32(2) {
		t.Run(fmt.Sprint(proc), func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
			defer cancel()
			if err := ask(ctx, proc); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("ask: %v", err)
			}
		})
	}
	if err := ask(t.Context(), 2); err != nil {
		t.Errorf("ask after a call that was not answered: %v", err)
	}
	asked := make(chan error, 1)
	go func() { asked <- ask(t.Context(), 0) }()
	time.Sleep(10 * time.Millisecond) // it is under way; or not yet, which ends the same
	_ = c.Close()
	for i := range 2 {
		select {
		case err := <-asked:
			if !errors.Is(err, net.ErrClosed) {
				t.Errorf("ask a client that has gone: %v", err)
			}
		case <-time.After(20 * time.Second):
			t.Fatal("who asks a client that has gone waits")
		}
		if i == 0 {
			go func() { asked <- ask(t.Context(), 2) }()
		}
	}
}

package rpc

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/podnas/podnas/nfs/xdr"
)

// A program whose one procedure sends its arguments back.
const (
	echoProg = 200001
	echoVers = 1
	echoProc = 1
)

type blob []byte

func (a blob) Append(b []byte) []byte { return append(b, a...) }

// call is a call as the test's server sees it.
type call struct {
	CallHeader
	args []byte
}

func readCall(conn net.Conn) (call, error) {
	rec, err := ReadRecord(conn, nil, 1<<20)
	if err != nil {
		return call{}, err
	}
	d := xdr.NewDecoder(rec)
	var c call
	c.Decode(&d)
	if err := d.Err(); err != nil {
		return call{}, err
	}
	c.args = d.Rest()
	return c, nil
}

func reply(h ReplyHeader, results []byte) []byte {
	b, at := BeginRecord(nil)
	b = append(h.Append(b), results...)
	EndRecord(b, at)
	return b
}

// serve runs a server of one connection over TCP on loopback and returns a
// client of it. Both are gone, with their goroutines, when the test ends.
func serve(t *testing.T, server func(net.Conn) error) *Client {
	t.Helper()
	goroutines := runtime.NumGoroutine()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() {
		conn, err := l.Accept()
		if err != nil {
			served <- err
			return
		}
		defer conn.Close()
		served <- server(conn)
	}()
	c, err := Dial(t.Context(), l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		l.Close()
		if err := <-served; err != nil {
			t.Errorf("server: %v", err)
		}
		// The last goroutine may still be on its way out.
		for range 100 {
			if runtime.NumGoroutine() <= goroutines {
				return
			}
			time.Sleep(10 * time.Millisecond)
		}
		t.Errorf("%d goroutines, there were %d", runtime.NumGoroutine(), goroutines)
	})
	return c
}

// echo answers n calls at a time, the last first.
func echo(n int) func(net.Conn) error {
	return func(conn net.Conn) error {
		var calls []call
		for {
			c, err := readCall(conn)
			if err != nil {
				return nil // the client has closed
			}
			calls = append(calls, c)
			if len(calls) < n {
				continue
			}
			var out []byte
			for len(calls) > 0 {
				c, calls = calls[len(calls)-1], calls[:len(calls)-1]
				out = append(out, reply(ReplyHeader{XID: c.XID}, c.args)...)
			}
			if _, err := conn.Write(out); err != nil {
				return err
			}
		}
	}
}

// Calls are in flight at once: the server answers only when it has them all.
func TestClientPipelines(t *testing.T) {
	const n = 16
	c := serve(t, echo(n))
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			for j := range 20 {
				args := blob(fmt.Sprintf("call %3d of caller %3d", j, i))
				got, err := c.Call(t.Context(), echoProg, echoVers, echoProc, args)
				if err != nil || !bytes.Equal(got, args) {
					t.Errorf("got %q, %v; want %q", got, err, args)
				}
			}
		})
	}
	wg.Wait()
}

func TestClientLargeCall(t *testing.T) {
	c := serve(t, echo(1))
	args := blob(bytes.Repeat([]byte("0123456789abcdef"), 60_000))
	got, err := c.Call(t.Context(), echoProg, echoVers, echoProc, args)
	if err != nil || !bytes.Equal(got, args) {
		t.Errorf("%d bytes came back of %d, %v", len(got), len(args), err)
	}
}

func TestClientSendsHeader(t *testing.T) {
	cred := testCred()
	seen := make(chan call, 2)
	c := serve(t, func(conn net.Conn) error {
		for {
			c, err := readCall(conn)
			if err != nil {
				return nil
			}
			seen <- c
			if _, err := conn.Write(reply(ReplyHeader{XID: c.XID}, nil)); err != nil {
				return err
			}
		}
	})
	if _, err := c.Do(t.Context(), CallHeader{RPCVersion: Version, Prog: 100003, Vers: 3, Proc: 1, Cred: cred.Auth()}, blob("fh")); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Call(t.Context(), 100005, 3, 0, nil); err != nil {
		t.Fatal(err)
	}
	first, second := <-seen, <-seen
	auth := cred.Auth()
	if first.Prog != 100003 || first.Vers != 3 || first.Proc != 1 || string(first.args) != "fh" ||
		first.Cred.Flavor != AuthSys || !bytes.Equal(first.Cred.Body, auth.Body) {
		t.Errorf("first call %+v", first)
	}
	if second.Prog != 100005 || second.Cred.Flavor != AuthNone || len(second.args) != 0 || second.XID == first.XID {
		t.Errorf("second call %+v", second)
	}
}

func TestClientRPCError(t *testing.T) {
	c := serve(t, func(conn net.Conn) error {
		c, err := readCall(conn)
		if err != nil {
			return err
		}
		_, err = conn.Write(reply(ReplyHeader{XID: c.XID, Accept: ProgMismatch, Low: 3, High: 3}, nil))
		return err
	})
	_, err := c.Call(t.Context(), 100003, 4, 0, nil)
	var rpcErr *RPCError
	if !errors.As(err, &rpcErr) || *rpcErr != (RPCError{Accept: ProgMismatch, Low: 3, High: 3}) {
		t.Errorf("err = %v", err)
	}
}

// A reply to nobody is dropped, and the stream goes on.
func TestClientUnknownXID(t *testing.T) {
	c := serve(t, func(conn net.Conn) error {
		c, err := readCall(conn)
		if err != nil {
			return err
		}
		out := reply(ReplyHeader{XID: c.XID + 1000}, []byte("not you"))
		_, err = conn.Write(append(out, reply(ReplyHeader{XID: c.XID}, []byte("you!"))...))
		return err
	})
	got, err := c.Call(t.Context(), echoProg, echoVers, echoProc, nil)
	if err != nil || string(got) != "you!" {
		t.Errorf("got %q, %v", got, err)
	}
}

// A call that is given up while it waits doesn't disturb the next, even if its
// reply comes after all.
func TestClientCancelWaiting(t *testing.T) {
	first := make(chan struct{})
	c := serve(t, func(conn net.Conn) error {
		one, err := readCall(conn)
		if err != nil {
			return err
		}
		close(first)
		two, err := readCall(conn)
		if err != nil {
			return err
		}
		out := reply(ReplyHeader{XID: one.XID}, []byte("late"))
		_, err = conn.Write(append(out, reply(ReplyHeader{XID: two.XID}, []byte("good"))...))
		return err
	})
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-first
		cancel()
	}()
	if _, err := c.Call(ctx, echoProg, echoVers, echoProc, nil); !errors.Is(err, context.Canceled) {
		t.Fatalf("err = %v", err)
	}
	got, err := c.Call(t.Context(), echoProg, echoVers, echoProc, nil)
	if err != nil || string(got) != "good" {
		t.Errorf("got %q, %v", got, err)
	}
}

// A call that is given up in the middle of its record ends the connection, and
// the calls of others say so.
func TestClientCancelWriting(t *testing.T) {
	release := make(chan struct{})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	c := serve(t, func(conn net.Conn) error {
		// The call has begun to come. It is far more than the sockets' buffers
		// hold, and no more of it is read.
		_, err := conn.Read(make([]byte, 1))
		cancel()
		<-release
		return err
	})
	defer close(release)
	if _, err := c.Call(ctx, echoProg, echoVers, echoProc, blob(make([]byte, 64<<20))); !errors.Is(err, context.Canceled) {
		t.Fatalf("err = %v", err)
	}
	if _, err := c.Call(t.Context(), echoProg, echoVers, echoProc, nil); !errors.Is(err, errGivenUp) {
		t.Errorf("next call: err = %v", err)
	}
}

func TestClientClose(t *testing.T) {
	got := make(chan struct{})
	c := serve(t, func(conn net.Conn) error {
		if _, err := readCall(conn); err != nil {
			return err
		}
		close(got)
		if _, err := readCall(conn); err == nil {
			return errors.New("a second call")
		}
		return nil
	})
	waiting := make(chan error, 1)
	go func() {
		_, err := c.Call(t.Context(), echoProg, echoVers, echoProc, nil)
		waiting <- err
	}()
	<-got
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-waiting; !errors.Is(err, ErrClosed) {
		t.Errorf("waiting call: err = %v", err)
	}
	if _, err := c.Call(t.Context(), echoProg, echoVers, echoProc, nil); !errors.Is(err, ErrClosed) {
		t.Errorf("call after Close: err = %v", err)
	}
}

// Whatever a broken server does, callers are woken with an error.
func TestClientBrokenServer(t *testing.T) {
	tests := []struct {
		name   string
		answer func(xid uint32) []byte
	}{
		{"closes", func(uint32) []byte { return nil }},
		{"half a reply", func(xid uint32) []byte { return reply(ReplyHeader{XID: xid}, nil)[:12] }},
		{"a record of 2 bytes", func(uint32) []byte { return []byte{0x80, 0, 0, 2, 0, 0} }},
		{"a record of 2 GiB", func(uint32) []byte { return []byte{0xff, 0xff, 0xff, 0xff} }},
		{"a call", func(xid uint32) []byte {
			b, at := BeginRecord(nil)
			h := CallHeader{XID: xid, RPCVersion: Version}
			b = h.Append(b)
			EndRecord(b, at)
			return b
		}},
		{"a header that ends early", func(xid uint32) []byte {
			b, at := BeginRecord(nil)
			b = xdr.AppendUint32(b, xid)
			EndRecord(b, at)
			return b
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c := serve(t, func(conn net.Conn) error {
				c, err := readCall(conn)
				if err != nil {
					return err
				}
				_, err = conn.Write(tt.answer(c.XID))
				return err
			})
			if _, err := c.Call(t.Context(), echoProg, echoVers, echoProc, nil); err == nil {
				t.Error("no error")
			}
		})
	}
}

// A client whose server is silent waits for its context, and no longer.
func TestClientSilentServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far := net.Pipe()
		go func() {
			buf := make([]byte, 1024)
			for {
				if _, err := far.Read(buf); err != nil {
					return
				}
			}
		}()
		c := NewClient(near)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		start := time.Now()
		_, err := c.Call(ctx, echoProg, echoVers, echoProc, nil)
		if !errors.Is(err, context.DeadlineExceeded) || time.Since(start) != time.Minute {
			t.Errorf("err = %v after %v", err, time.Since(start))
		}
		c.Close()
		far.Close()
	})
}

func TestDialRefused(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	if c, err := Dial(t.Context(), l.Addr().String()); err == nil {
		c.Close()
		t.Error("no error")
	}
}

package nfs3

import (
	"context"
	"log/slog"
	"net"
	"reflect"
	"sync"
	"syscall"
	"testing"

	"github.com/podnas/podnas/nfs/nfs3"
	"github.com/podnas/podnas/nfs/rpc"
	"github.com/podnas/podnas/nfs/xdr"
	"github.com/podnas/podnas/server/export"
	"github.com/podnas/podnas/server/oncrpc"
)

// disk tells of syncs as a file does.
type disk struct {
	fail   string // whose sync fails
	busy   string // who is synced by another goroutine
	synced []string
}

type diskFile struct {
	name string
	disk *disk
}

func (f diskFile) SyncHere() (ok bool, err error) {
	if f.name == f.disk.busy {
		return false, nil
	}
	f.disk.synced = append(f.disk.synced, f.name+" here")
	if f.name == f.disk.fail {
		return true, syscall.EIO
	}
	return true, nil
}

func (f diskFile) SyncThen(w export.Waiter) {
	f.disk.synced = append(f.disk.synced, f.name)
	if f.name == f.disk.fail {
		go w.Synced(syscall.EIO)
		return
	}
	go w.Synced(nil)
}

// closed counts how often a file is closed.
type closed struct{ sync.WaitGroup }

func (c *closed) Close() { c.Done() }

// The reply comes when all is synced, in order; one that can't be makes the call fail.
func TestSyncBeforeReply(t *testing.T) {
	for _, tt := range []struct {
		fail, busy string
		synced     []string
		status     nfs3.Status
	}{
		{"", "first", []string{"first", "second"}, nfs3.OK},
		{"first", "first", []string{"first"}, nfs3.ErrIO},
		{"second", "first", []string{"first", "second"}, nfs3.ErrIO},
		{"", "", []string{"first here", "second here"}, nfs3.OK},
		{"first", "", []string{"first here"}, nfs3.ErrIO},
		{"second", "", []string{"first here", "second here"}, nfs3.ErrIO},
		{"", "second", []string{"first here", "second"}, nfs3.OK},
		{"second", "second", []string{"first here", "second"}, nfs3.ErrIO},
	} {
		t.Run("fail="+tt.fail+",busy="+tt.busy, func(t *testing.T) {
			d, file := &disk{fail: tt.fail, busy: tt.busy}, &closed{}
			file.Add(1)
			s := &service{log: slog.New(slog.DiscardHandler)}
			results := serveOnce(t, func(c *oncrpc.Call) oncrpc.Answer {
				task := s.task(c)
				task.files[0] = file
				res := &nfs3.WccRes{}
				task.sync(&res.Status, diskFile{"first", d}, diskFile{"second", d})
				return task.end(res)
			})
			file.Wait()
			var res nfs3.WccRes
			decoder := xdr.NewDecoder(results)
			res.Decode(&decoder)
			if res.Status != tt.status || decoder.Finish() != nil {
				t.Errorf("the reply is %v, want status %v", res, tt.status)
			}
			if !reflect.DeepEqual(d.synced, tt.synced) {
				t.Errorf("synced %q, want %q", d.synced, tt.synced)
			}
		})
	}
}

// serve serves one procedure, of number 0, until the end of the test.
func serve(t *testing.T, p oncrpc.Procedure) (server *oncrpc.Server, address string) {
	t.Helper()
	server, err := oncrpc.NewServer(oncrpc.ServerConfig{
		Programs: []oncrpc.Program{{Number: nfs3.Program, Version: nfs3.Version, Procedures: []oncrpc.Procedure{p}}},
		Log:      slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- server.Serve(ctx, l) }()
	t.Cleanup(func() {
		cancel()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	return server, l.Addr().String()
}

// serveOnce has a call answered by a handler, and returns the results.
func serveOnce(t *testing.T, handle func(*oncrpc.Call) oncrpc.Answer) []byte {
	t.Helper()
	_, address := serve(t, oncrpc.Procedure{Name: "TEST", Handle: handle, AnyAuth: true})
	client, err := rpc.Dial(t.Context(), address)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	results, err := client.Call(t.Context(), nfs3.Program, nfs3.Version, 0, nil)
	if err != nil {
		t.Fatal(err)
	}
	return results
}

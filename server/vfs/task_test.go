package vfs

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"sync"
	"syscall"
	"testing"

	"github.com/podnas/podnas/nfs/rpc"
	"github.com/podnas/podnas/server/export"
	"github.com/podnas/podnas/server/oncrpc"
	"github.com/podnas/podnas/test/conformance/nfstest"
	"github.com/podnas/podnas/test/testdisk"
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

func (f diskFile) SyncHere(bool) (ok bool, err error) {
	if f.name == f.disk.busy {
		return false, nil
	}
	f.disk.synced = append(f.disk.synced, f.name+" here")
	if f.name == f.disk.fail {
		return true, syscall.EIO
	}
	return true, nil
}

func (f diskFile) SyncThen(_ bool, w export.Waiter) {
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

// program is a call made of steps.
type program struct {
	Task

	steps []func(*program) Next
}

func (p *program) Step() Next {
	step := p.steps[0]
	if next := step(p); next != AsCaller || p.worker {
		p.steps = p.steps[1:]
		return next
	}
	return AsCaller
}

func (p *program) Free() { p.steps = nil }

// run begins a program.
func run(s *Service, c *oncrpc.Call, steps ...func(*program) Next) oncrpc.Answer {
	p := &program{steps: steps}
	p.Begin(s, c, p)
	return p.Answer()
}

// reply is the last step: it tells how the syncs ended.
func reply(p *program) Next {
	p.Call.Reply = append(p.Call.Reply, fmt.Sprint(p.SyncErr())...)
	return End
}

// The step after them comes when all is synced, in order; one that can't be is told, and
// ends the others.
func TestAfterSync(t *testing.T) {
	const failed = "input/output error"
	for _, tt := range []struct {
		fail, busy string
		synced     []string
		err        string
	}{
		{"", "first", []string{"first", "second", "third"}, "<nil>"},
		{"first", "first", []string{"first"}, failed},
		{"second", "first", []string{"first", "second"}, failed},
		{"", "", []string{"first here", "second here", "third here"}, "<nil>"},
		{"first", "", []string{"first here"}, failed},
		{"second", "", []string{"first here", "second here"}, failed},
		{"", "second", []string{"first here", "second", "third"}, "<nil>"},
		{"second", "second", []string{"first here", "second"}, failed},
		{"third", "third", []string{"first here", "second here", "third"}, failed},
	} {
		t.Run("fail="+tt.fail+",busy="+tt.busy, func(t *testing.T) {
			d, file := &disk{fail: tt.fail, busy: tt.busy}, &closed{}
			file.Add(1)
			s := &Service{log: slog.New(slog.DiscardHandler)}
			got := string(serveOnce(t, rpc.SysCred{}, func(c *oncrpc.Call) oncrpc.Answer {
				return run(s, c, func(p *program) Next {
					p.Closes(file)
					for _, name := range []string{"first", "second", "third"} {
						p.Sync(diskFile{name, d}, false)
					}
					return AfterSync
				}, reply)
			}))
			file.Wait()
			if got != tt.err {
				t.Errorf("told %s, want %s", got, tt.err)
			}
			if !reflect.DeepEqual(d.synced, tt.synced) {
				t.Errorf("synced %q, want %q", d.synced, tt.synced)
			}
		})
	}
}

// A call can be made of many operations: on more files than two, with syncs in between, and
// all with the rights of its caller.
func TestManyOperations(t *testing.T) {
	const uid = 1234
	names := []string{"a", "b", "c"}
	dir := t.TempDir()
	if err := export.ProbeHandles(dir); err != nil {
		t.Skipf("files can't be opened by handle here: %v", err)
	}
	table := &export.Table{ByIndex: testdisk.ByIndex()}
	log := slog.New(slog.DiscardHandler)
	mustDo(t, table.Add(1, "/volume", dir, export.Options{}))
	defer table.Remove(1)
	opener, workers := export.NewOpener(table, export.NewKey(make([]byte, 32)), log), export.NewWorkers(2, nil)
	defer opener.Close()
	defer workers.Close()
	v, _ := table.ByID(1)
	root, err := opener.Root(v)
	mustDo(t, err)
	for _, name := range names {
		mustDo(t, os.Mkdir(filepath.Join(dir, name), 0o755))
		mustDo(t, os.Chown(filepath.Join(dir, name), uid, uid))
	}

	s := New(Config{Opener: opener, Workers: workers, Log: log})
	var dirs []*export.File
	inEach := func(do func(p *program, dir *export.File) error) func(*program) Next {
		return func(p *program) Next {
			if !p.IsCaller() {
				return AsCaller
			}
			for _, dir := range dirs {
				if err := do(p, dir); err != nil {
					t.Error(err)
				}
			}
			return AfterSync
		}
	}
	call := &closed{}
	call.Add(1)
	var syncs []uint64 // when each step begins
	count := func() { syncs = append(syncs, table.Syncs.Durations.Snapshot().Count) }
	got := string(serveOnce(t, rpc.SysCred{UID: uid, GID: uid}, func(c *oncrpc.Call) oncrpc.Answer {
		return run(s, c,
			func(p *program) Next {
				count()
				p.Closes(call)
				top, err := p.Open(root, export.UseAttr)
				if err != nil {
					t.Error(err)
					return End
				}
				for _, name := range names {
					_, handle, err := top.Describe([]byte(name), nil)
					dir, openErr := p.Open(handle, export.UseNames)
					if err := errors.Join(err, openErr); err != nil {
						t.Error(err)
						return End
					}
					dirs = append(dirs, dir)
				}
				return AfterSync
			},
			inEach(func(p *program, dir *export.File) error {
				made, err := p.Mkdir(dir, []byte("made"), &SetAttr{})
				if err == nil && made.Attr.UID != uid {
					err = fmt.Errorf("owner %d", made.Attr.UID)
				}
				return err
			}),
			func(*program) Next { count(); return AfterSync },
			inEach(func(p *program, dir *export.File) error {
				_, _, err := p.Rename(dir, []byte("made"), dir, []byte("renamed"))
				return err
			}),
			func(p *program) Next { count(); return reply(p) },
		)
	}))
	call.Wait()
	if got != "<nil>" {
		t.Errorf("told %s", got)
	}
	if len(syncs) != 3 || syncs[1] < syncs[0]+3 || syncs[2] < syncs[1]+3 {
		t.Errorf("%d syncs before the steps, want three more each time", syncs)
	}
	for _, name := range names {
		if _, err := os.Stat(filepath.Join(dir, name, "renamed")); err != nil {
			t.Error(err)
		}
	}
}

func mustDo(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// serveOnce has a call answered by a handler, and returns the results.
func serveOnce(t *testing.T, cred rpc.SysCred, handle func(*oncrpc.Call) oncrpc.Answer) []byte {
	t.Helper()
	const program, version = 200_000, 1
	server, err := oncrpc.NewServer(oncrpc.ServerConfig{
		Programs: []oncrpc.Program{{Number: program, Version: version, Procedures: []oncrpc.Procedure{{Name: "TEST", Handle: handle, AnyAuth: true, NoStatus: true}}}},
		Log:      slog.New(slog.DiscardHandler),
	})
	mustDo(t, err)
	client, err := rpc.Dial(t.Context(), nfstest.Serve(t, server).String())
	mustDo(t, err)
	defer client.Close()
	results, err := client.Do(t.Context(), rpc.CallHeader{RPCVersion: rpc.Version, Prog: program, Vers: version, Cred: cred.Auth()}, nil)
	mustDo(t, err)
	return results
}

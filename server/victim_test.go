package server_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/podnas/podnas/nfs/nfs3"
	"github.com/podnas/podnas/nfs/rpc"
	"github.com/podnas/podnas/server"
	"github.com/podnas/podnas/server/disk"
	"github.com/podnas/podnas/server/exports"
	"github.com/podnas/podnas/test/testdisk"
)

// victimWaits is for how long a victim's call may take at most, with 1 in 100 left out,
// beside whatever another client does to another volume. It is generous to a busy
// machine: without shares, calls that hang keep all others for ever.
const victimWaits = 5 * time.Second

// attack is what one client does to its own volume.
type attack struct {
	name string
	// prepare makes what is needed at the volume's directory.
	prepare func(t *testing.T, dir string)
	// call is the nth call.
	call func(root, target nfs3.FH, n int) (proc uint32, args rpc.Args)
	// target is a name in the root, "" for the root.
	target string
}

func attacks() []attack {
	name := func(prefix string, n int) []byte { return fmt.Appendf(nil, "%s%d", prefix, n) }
	return []attack{
		{
			name: "MKDIR in one directory",
			call: func(root, _ nfs3.FH, n int) (uint32, rpc.Args) {
				return nfs3.ProcMkdir, &nfs3.MkdirArgs{Where: nfs3.DirOpArgs{Dir: root, Name: name("made", n)}}
			},
		},
		{
			name:   "listings of a large directory",
			target: "large",
			prepare: func(t *testing.T, dir string) {
				must(t, os.Mkdir(filepath.Join(dir, "large"), 0o777))
				for i := range 5000 {
					must(t, os.WriteFile(filepath.Join(dir, "large", string(name("file", i))), nil, 0o600))
				}
			},
			call: func(_, target nfs3.FH, _ int) (uint32, rpc.Args) {
				return nfs3.ProcReaddirplus, &nfs3.ReaddirplusArgs{Dir: target, DirCount: 1 << 20, MaxCount: 1 << 20}
			},
		},
		{
			name:   "the way up from the depth",
			target: "d",
			prepare: func(t *testing.T, dir string) {
				must(t, os.Mkdir(filepath.Join(dir, "d"), 0o777))
				at, err := syscall.Open(filepath.Join(dir, "d"), syscall.O_RDONLY|syscall.O_DIRECTORY, 0)
				must(t, err)
				for range 1500 {
					must(t, syscall.Mkdirat(at, "d", 0o777))
					below, err := syscall.Openat(at, "d", syscall.O_RDONLY|syscall.O_DIRECTORY, 0)
					must(t, err)
					must(t, syscall.Close(at))
					at = below
				}
				must(t, syscall.Close(at))
			},
			call: func(_, target nfs3.FH, _ int) (uint32, rpc.Args) {
				return nfs3.ProcLookup, &nfs3.DirOpArgs{Dir: target, Name: []byte("..")}
			},
		},
		{
			name:   "stable writes",
			target: "file",
			prepare: func(t *testing.T, dir string) {
				must(t, os.WriteFile(filepath.Join(dir, "file"), nil, 0o666))
			},
			call: func(_, target nfs3.FH, n int) (uint32, rpc.Args) {
				data := make([]byte, 4096)
				return nfs3.ProcWrite, &nfs3.WriteArgs{File: target, Offset: uint64(n%1000) * 4096, Count: 4096, Stable: nfs3.FileSync, Data: data}
			},
		},
	}
}

// A client's calls, whatever they are, and however many are under way, don't keep those
// of another volume waiting. CI looks for longer.
func TestVictims(t *testing.T) {
	for _, a := range attacks() {
		t.Run(a.name, func(t *testing.T) {
			address, root, victim := attacked(t, t.TempDir(), t.TempDir(), a.prepare)
			rounds := testdisk.Rounds(10, 30)
			alone := victim.measure(rounds)
			target := root
			if a.target != "" {
				target = dialRaw(t, address, 0).find(root, a.target)
				if a.target == "d" {
					c := dialRaw(t, address, 0)
					for range 1500 {
						target = c.find(target, "d")
					}
				}
			}
			stop := make(chan struct{})
			var attackers sync.WaitGroup
			var calls atomic.Int64
			for i := range 4 {
				c := dialRawFrom(t, address, "127.0.0.2", uint32(i%2*1000)) // root, and a user
				for range 64 {
					attackers.Go(func() {
						for {
							select {
							case <-stop:
								return
							default:
							}
							proc, args := a.call(root, target, int(calls.Add(1)))
							if _, err := c.do(t.Context(), nfs3.Program, proc, args); err != nil {
								t.Errorf("the attacker's call: %v", err)
								return
							}
						}
					})
				}
			}
			beside := victim.measure(rounds)
			close(stop)
			attackers.Wait()
			t.Logf("a victim's call takes %v, of 99 in 100 %v; beside %d calls %v and %v", alone[len(alone)/2], p99(alone), calls.Load(), beside[len(beside)/2], p99(beside))
			if took := p99(beside); took > victimWaits {
				t.Errorf("it takes %v, more than %v", took, victimWaits)
			}
		})
	}
}

// Calls that take for ever, since their disk does, take no other volume's threads: here
// the attacked volume is on a disk of its own, which is frozen.
func TestVictimsOfAFrozenDisk(t *testing.T) {
	testdisk.Ext4(t, func(t *testing.T, disk string) {
		address, root, victim := attacked(t, disk, t.TempDir(), func(t *testing.T, dir string) {
			must(t, os.Chmod(dir, 0o777))
			for i := range 100 {
				must(t, os.WriteFile(filepath.Join(dir, fmt.Sprint("file", i)), nil, 0o666))
			}
		})
		c := dialRaw(t, address, 0)
		var files []nfs3.FH
		for i := range 100 {
			files = append(files, c.find(root, fmt.Sprint("file", i)))
		}
		thaw := freeze(t, disk)
		defer thaw()
		var attackers sync.WaitGroup
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		for i := range 8 {
			uid := uint32(i % 2 * 1000)
			c := dialRawFrom(t, address, "127.0.0.2", uid)
			for n := range 100 {
				attackers.Go(func() {
					var err error
					switch n % 3 {
					case 0:
						_, err = c.do(ctx, nfs3.Program, nfs3.ProcCreate, &nfs3.CreateArgs{Where: nfs3.DirOpArgs{Dir: root, Name: fmt.Appendf(nil, "new%d-%d", i, n)}})
					case 1:
						_, err = c.do(ctx, nfs3.Program, nfs3.ProcWrite, &nfs3.WriteArgs{File: files[n], Count: 4, Stable: nfs3.FileSync, Data: []byte("data")})
					case 2:
						_, err = c.do(ctx, nfs3.Program, nfs3.ProcSetattr, &nfs3.SetattrArgs{Object: files[n], Attr: nfs3.Sattr{Mode: nfs3.SetUint32{Set: true, Value: 0o600}}})
					}
					if err != nil && ctx.Err() == nil {
						t.Errorf("the attacker's call: %v", err)
					}
				})
			}
		}
		time.Sleep(500 * time.Millisecond) // all are under way
		beside := victim.measure(30)
		t.Logf("a victim's call beside 800 that hang takes %v, of 99 in 100 %v", beside[len(beside)/2], p99(beside))
		if took := p99(beside); took > victimWaits {
			t.Errorf("it takes %v, more than %v", took, victimWaits)
		}
		thaw()
		attackers.Wait()
	})
}

// freeze has a disk take no more changes until thaw, for a minute at most.
func freeze(t *testing.T, disk string) (thaw func()) {
	t.Helper()
	if _, err := exec.LookPath("fsfreeze"); err != nil {
		t.Skip(err)
	}
	// It thaws when its input ends, and after a minute at the latest: a process that is
	// killed keeps its files open while calls of it hang.
	watch := exec.Command("sh", "-c", `fsfreeze --freeze "$1" && echo frozen; timeout 60 cat >/dev/null; exec fsfreeze --unfreeze "$1"`, "sh", disk)
	watch.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // nobody ends it with the test
	in, err := watch.StdinPipe()
	must(t, err)
	out, err := watch.StdoutPipe()
	must(t, err)
	must(t, watch.Start())
	if said, err := bufio.NewReader(out).ReadString('\n'); err != nil || said != "frozen\n" {
		t.Fatalf("fsfreeze: %q, %v", said, err)
	}
	return sync.OnceFunc(func() {
		if err := errors.Join(in.Close(), watch.Wait()); err != nil {
			t.Errorf("thaw %s: %v", disk, err)
		}
	})
}

// attacked serves volume 1 at a directory, prepared, for an attacker, and volume 2 at
// another for a victim.
func attacked(t *testing.T, one, two string, prepare func(*testing.T, string)) (address string, root nfs3.FH, v *victim) {
	t.Helper()
	if err := disk.ProbeHandles(one); err != nil {
		t.Skipf("the native engine can't run here: %v", err)
	}
	cfg := config(t)
	cfg.Engine.Engine = server.EngineNative
	for i, dir := range []string{one, two} {
		must(t, os.Chmod(dir, 0o777))
		must(t, cfg.Exports.Export(exports.Exported{ID: uint64(i + 1), Path: fmt.Sprint("/", i+1), Dir: dir}))
	}
	if prepare != nil {
		prepare(t, one)
	}
	address, stop := serve(t, cfg)
	t.Cleanup(func() {
		if err := stop(); err != nil {
			t.Error(err)
		}
		cfg.Exports.Remove(1)
		cfg.Exports.Remove(2)
		removeDeep(t, filepath.Join(one, "d"))
	})
	// The names of the root directories are the attacked ones'.
	root = dialRaw(t, address, 0).mount("/1")
	v = &victim{as: []*raw{dialRaw(t, address, 0), dialRaw(t, address, 1000)}}
	v.root = v.as[0].mount("/2")
	return address, root, v
}

// removeDeep removes directories called d in one another, deeper than os.RemoveAll can.
func removeDeep(t *testing.T, dir string) {
	t.Helper()
	at, err := syscall.Open(dir, syscall.O_RDONLY|syscall.O_DIRECTORY, 0)
	if err != nil {
		return // there are none
	}
	depth := 0
	for ; ; depth++ {
		below, err := syscall.Openat(at, "d", syscall.O_RDONLY|syscall.O_DIRECTORY, 0)
		if err != nil {
			break
		}
		must(t, syscall.Close(at))
		at = below
	}
	for range depth {
		up, err := syscall.Openat(at, "..", syscall.O_RDONLY|syscall.O_DIRECTORY, 0)
		must(t, err)
		must(t, syscall.Close(at))
		at = up
		must(t, unlinkDirAt(at, "d"))
	}
	must(t, syscall.Close(at))
}

func unlinkDirAt(dir int, name string) error {
	return os.Remove(fmt.Sprintf("/proc/self/fd/%d/%s", dir, name))
}

// victim uses its volume as root and as a user.
type victim struct {
	as   []*raw
	root nfs3.FH
	n    int
}

// measure makes files, writes and reads them, and tells how long each call took, sorted.
func (v *victim) measure(rounds int) (took []time.Duration) {
	for range rounds {
		v.n++
		c := v.as[v.n%len(v.as)]
		where := nfs3.DirOpArgs{Dir: v.root, Name: fmt.Appendf(nil, "victim%d", v.n)}
		timed := func(f func()) {
			began := time.Now()
			f()
			took = append(took, time.Since(began))
		}
		ok := func(proc uint32, args rpc.Args) {
			c.Helper()
			timed(func() {
				if status := c.status(proc, args); status != nfs3.OK {
					c.Fatalf("the victim's procedure %d: %v", proc, status)
				}
			})
		}
		ok(nfs3.ProcCreate, &nfs3.CreateArgs{Where: where, Attr: nfs3.Sattr{Mode: nfs3.SetUint32{Set: true, Value: 0o666}}})
		var file nfs3.FH
		timed(func() { file = c.find(v.root, string(where.Name)) })
		ok(nfs3.ProcWrite, &nfs3.WriteArgs{File: file, Count: 4, Stable: nfs3.FileSync, Data: []byte("data")})
		ok(nfs3.ProcRead, &nfs3.ReadArgs{File: file, Count: 4})
		ok(nfs3.ProcGetattr, &nfs3.HandleArgs{Object: file})
		ok(nfs3.ProcRemove, &where)
	}
	slices.Sort(took)
	return took
}

func p99(took []time.Duration) time.Duration { return took[len(took)*99/100] }

func dialRawFrom(t *testing.T, address, from string, uid uint32) *raw {
	t.Helper()
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
	conn, err := d.DialContext(t.Context(), "tcp", address)
	must(t, err)
	client := rpc.NewClient(conn)
	t.Cleanup(func() { client.Close() })
	cred := rpc.SysCred{UID: uid, GID: uid}
	return &raw{t, client, cred.Auth()}
}

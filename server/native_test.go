package server_test

import (
	"context"
	"crypto/rand"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/podnas/podnas/nfs/mount3"
	"github.com/podnas/podnas/nfs/nfs3"
	"github.com/podnas/podnas/nfs/rpc"
	"github.com/podnas/podnas/nfs/xdr"
	"github.com/podnas/podnas/quota"
	"github.com/podnas/podnas/server"
	"github.com/podnas/podnas/server/actas"
	"github.com/podnas/podnas/server/disk"
	"github.com/podnas/podnas/server/exports"
	"github.com/podnas/podnas/server/space"
	"github.com/podnas/podnas/test/conformance/nfstest"
	"github.com/podnas/podnas/test/testdisk"
)

// instance is a server that can be stopped and started again on its port.
type instance struct {
	cfg  server.Config
	addr string
	stop func() error
	// add adds the volumes to a table, for each start if that is another process, which knows nothing
	// of the files. If switches is set, each finds them in another way.
	add      func(*exports.Table) error
	switches bool
	// descriptors is how many it believes that it may have, when it starts; 0: as many as there are.
	descriptors uint64
}

// anew has the next start be another process.
func (i *instance) anew(t *testing.T) {
	t.Helper()
	if i.add == nil {
		return
	}
	i.end()
	i.cfg.Exports = &exports.Table{ByIndex: i.cfg.Exports.ByIndex != i.switches, Only: i.cfg.Engine.Only(), Modes: i.cfg.Exports.Modes}
	if err := i.add(i.cfg.Exports); err != nil {
		t.Fatal(err)
	}
}

// end removes the volumes that add has added.
func (i *instance) end() {
	for _, v := range i.cfg.Exports.Volumes() {
		i.cfg.Exports.Remove(v.ID)
	}
}

func (i *instance) start(t *testing.T) {
	t.Helper()
	i.anew(t)
	var s *server.Server
	var err error
	withDescriptors(t, i.descriptors, func() { s, err = server.New(i.cfg) })
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", i.addr)
	if err != nil {
		t.Fatal(err)
	}
	i.addr = l.Addr().String()
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() {
		served <- s.Serve(ctx, l)
		close(served) // who stops once more does not wait
	}()
	i.stop = func() error {
		cancel()
		return <-served
	}
}

// withDescriptors does something while the process may have only so many descriptors, or if that is 0 as many as
// before.
func withDescriptors(t *testing.T, n uint64, do func()) {
	t.Helper()
	var had syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &had); err != nil {
		t.Fatal(err)
	}
	if n == 0 || n > had.Cur {
		do()
		return
	}
	set := func(limit syscall.Rlimit) {
		if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
			t.Fatal(err)
		}
	}
	set(syscall.Rlimit{Cur: n, Max: had.Max})
	defer set(had)
	do()
}

func openDescriptors(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}

// TestNativeConformance puts the native engine to the suite that every NFSv3
// server answers. It lacks nothing, and leaves no descriptor or goroutine behind.
func TestNativeConformance(t *testing.T) {
	conformance(t, testdisk.Memory(t), server.HandlesIndex, counted)
}

// counted adds a volume whose size the server enforces, as deploy/podnas.yaml has it on most disks.
func counted(table *exports.Table, dir string) error {
	return table.Export(exports.Exported{ID: 1, Path: "/volume", Dir: dir, Account: space.NewAccount(quota.Limit{Bytes: 1 << 50})})
}

func uncounted(table *exports.Table, dir string) error {
	return table.Export(exports.Exported{ID: 1, Path: "/volume", Dir: dir})
}

// handlesHere is how tests have files found.
func handlesHere() string {
	if testdisk.ByIndex() {
		return server.HandlesIndex
	}
	return server.HandlesAuto
}

// nativeConfig is a Config of the native engine for a directory, with the rights that this process has.
func nativeConfig(t *testing.T, dir, handles string) server.Config {
	t.Helper()
	choice, err := server.SelectEngine(server.EngineNative, handles, dir)
	if err != nil {
		t.Skipf("named skip: %v", err)
	}
	cfg := config(t)
	cfg.Engine, cfg.Exports.Only, cfg.Exports.ByIndex = choice, choice.Only(), choice.ByIndex
	cfg.Exports.Modes = filepath.Join(t.TempDir(), "modes")
	_, _ = rand.Read(cfg.HandleKey)
	return cfg
}

// lacks is what the native engine lacks where it has only some rights.
func lacks(rights *actas.Rights) map[nfstest.Feature]string {
	lacks := map[nfstest.Feature]string{}
	if rights.Only != nil {
		lacks[nfstest.FeatureIdentity] = "podnas can't act as other users"
	}
	for _, r := range rights.Tried {
		switch {
		case r.Err == nil:
		case r.Capability == "CHOWN":
			lacks[nfstest.FeatureChown] = "podnas may not change owners"
		case r.Capability == "MKNOD":
			lacks[nfstest.FeatureDevices] = "podnas may not make device nodes"
		}
	}
	return lacks
}

// conformance serves a volume on a disk to the suite.
func conformance(t *testing.T, disk, handles string, add func(*exports.Table, string) error) {
	t.Helper()
	dir := filepath.Join(disk, "volume")
	if err := os.Mkdir(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	cfg := nativeConfig(t, dir, handles)
	lacking := lacks(&cfg.Engine.Rights)
	if fine := time.Unix(1, 1); os.Chtimes(dir, fine, fine) == nil {
		if info, err := os.Stat(dir); err == nil && !info.ModTime().Equal(fine) {
			lacking[nfstest.FeatureNanoseconds] = "the disk has whole seconds"
		}
	}
	if os.Getenv("NFS_LOG") != "" {
		cfg.Log = slog.Default()
	}
	i := &instance{cfg: cfg, addr: nfstest.OwnAddress()}
	i.add = func(table *exports.Table) error { return add(table, dir) }
	descriptors, goroutines := openDescriptors(t), runtime.NumGoroutine()
	i.start(t)
	defer func() {
		if err := i.stop(); err != nil {
			t.Error(err)
		}
		i.end()
		// The runtime keeps some of its own for a moment.
		for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(10 * time.Millisecond) {
			fds, gs := openDescriptors(t), runtime.NumGoroutine()
			if fds <= descriptors && gs <= goroutines {
				break
			}
			if time.Now().After(deadline) {
				t.Errorf("left behind: %d descriptors and %d goroutines", fds-descriptors, gs-goroutines)
				break
			}
		}
	}()
	nfstest.Run(t, nfstest.Target{
		Addr:   i.addr,
		Export: "/volume",
		Dir:    dir,
		Lacks:  lacking,
		Restart: func(t *testing.T) {
			if err := i.stop(); err != nil {
				t.Error(err)
			}
			i.start(t)
		},
	})
}

// FuzzNative sends anything as one record to a live server, which must go on. It
// starts from good calls on the volume's root. Over Unix sockets: so many
// connections would use up the ports.
func FuzzNative(f *testing.F) {
	dir := f.TempDir()
	if err := disk.ProbeHandles(dir); err != nil {
		f.Skipf("the native engine can't run here: %v", err)
	}
	cfg := config(f)
	cfg.Engine.Engine = server.EngineNative
	if err := cfg.Exports.Export(exports.Exported{ID: 1, Path: "/volume", Dir: dir, Options: exports.Options{AllSquash: true}}); err != nil {
		f.Fatal(err)
	}
	s, err := server.New(cfg)
	if err != nil {
		f.Fatal(err)
	}
	l, err := net.Listen("unix", filepath.Join(f.TempDir(), "nfs"))
	if err != nil {
		f.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- s.Serve(ctx, l) }()
	f.Cleanup(func() {
		cancel()
		if err := <-served; err != nil {
			f.Error(err)
		}
	})
	dial := func(t testing.TB) net.Conn {
		conn, err := net.Dial("unix", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		return conn
	}
	for _, record := range goodCalls(f, rpc.NewClient(dial(f))) {
		f.Add(record)
	}
	f.Fuzz(func(t *testing.T, record []byte) {
		conn := dial(t)
		defer conn.Close()
		sent, at := rpc.BeginRecord(nil)
		sent = append(sent, record...)
		rpc.EndRecord(sent, at)
		if _, err := conn.Write(sent); err != nil {
			t.Fatal(err)
		}
		c := rpc.NewClient(dial(t))
		defer c.Close()
		if _, err := c.Call(t.Context(), nfs3.Program, nfs3.Version, nfs3.ProcNull, nil); err != nil {
			t.Errorf("after %x: %v", record, err)
		}
	})
}

// goodCalls are records of calls on the volume's root.
func goodCalls(f *testing.F, c *rpc.Client) [][]byte {
	f.Helper()
	defer c.Close()
	results, err := c.Call(f.Context(), mount3.Program, mount3.Version, mount3.ProcMnt, &mount3.PathArgs{Path: []byte("/volume")})
	if err != nil {
		f.Fatal(err)
	}
	var mounted mount3.MntRes
	d := xdr.NewDecoder(results)
	if mounted.Decode(&d); d.Finish() != nil || mounted.Status != mount3.OK {
		f.Fatal(mounted.Status, d.Err())
	}
	root := nfs3.FH(mounted.Handle)
	where := nfs3.DirOpArgs{Dir: root, Name: []byte("name")}
	var cred rpc.SysCred
	var records [][]byte
	for proc, args := range map[uint32]rpc.Args{
		nfs3.ProcGetattr:     &nfs3.HandleArgs{Object: root},
		nfs3.ProcSetattr:     &nfs3.SetattrArgs{Object: root},
		nfs3.ProcLookup:      &where,
		nfs3.ProcAccess:      &nfs3.AccessArgs{Object: root, Access: 0x3f},
		nfs3.ProcRead:        &nfs3.ReadArgs{File: root, Count: 10},
		nfs3.ProcWrite:       &nfs3.WriteArgs{File: root, Count: 4, Data: []byte("data")},
		nfs3.ProcCreate:      &nfs3.CreateArgs{Where: where},
		nfs3.ProcMkdir:       &nfs3.MkdirArgs{Where: where},
		nfs3.ProcSymlink:     &nfs3.SymlinkArgs{Where: where, Path: []byte("target")},
		nfs3.ProcMknod:       &nfs3.MknodArgs{Where: where, Type: nfs3.TypeFIFO},
		nfs3.ProcRemove:      &where,
		nfs3.ProcRename:      &nfs3.RenameArgs{From: where, To: where},
		nfs3.ProcLink:        &nfs3.LinkArgs{File: root, Link: where},
		nfs3.ProcReaddir:     &nfs3.ReaddirArgs{Dir: root, Count: 4096},
		nfs3.ProcReaddirplus: &nfs3.ReaddirplusArgs{Dir: root, DirCount: 4096, MaxCount: 4096},
		nfs3.ProcFsstat:      &nfs3.HandleArgs{Object: root},
		nfs3.ProcCommit:      &nfs3.CommitArgs{File: root},
	} {
		h := rpc.CallHeader{XID: proc, RPCVersion: rpc.Version, Prog: nfs3.Program, Vers: nfs3.Version, Proc: proc, Cred: cred.Auth()}
		records = append(records, args.Append(h.Append(nil)))
	}
	return records
}

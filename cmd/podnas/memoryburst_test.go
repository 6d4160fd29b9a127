package main

import (
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/podnas/podnas/nfs/mount3"
	"github.com/podnas/podnas/nfs/nfs3"
	"github.com/podnas/podnas/nfs/rpc"
	"github.com/podnas/podnas/test/conformance/nfstest"
	"github.com/podnas/podnas/test/testdisk"
)

const (
	burstConns = 1000
	burstData  = 1 << 20 // of each call
	burstFile  = 16      // times burstData
	mebi       = 1 << 20
)

// A burst of a thousand clients, all with large calls in flight, takes a bounded number
// of threads, and the memory that it took is given back soon after. It takes half a minute
// and a podnas without the race detector, so only CI runs it.
func TestMemoryAfterBurst(t *testing.T) {
	testdisk.OnlyCI(t)
	if os.Getuid() != 0 {
		t.Skip("needs root, for the native engine")
	}
	t.Parallel() // it mostly waits
	s := startProcess(t, "native")
	client, err := nfstest.Dial(t.Context(), s.nfs, s.nfs)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	file := s.makeFile(client)
	before := s.status("RssAnon")

	conns := make([]net.Conn, burstConns)
	for i := range conns {
		if conns[i], err = net.Dial("tcp", s.nfs); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conns[i].Close() })
	}
	read := &nfs3.ReadArgs{File: file, Count: burstData}
	write := &nfs3.WriteArgs{File: file, Count: burstData, Data: make([]byte, burstData)}
	for _, call := range [][]byte{
		callOf(nfs3.ProcWrite, write), callOf(nfs3.ProcRead, read),
		callOf(nfs3.ProcWrite, write), callOf(nfs3.ProcRead, read),
	} {
		var clients sync.WaitGroup
		for _, conn := range conns {
			clients.Go(func() {
				if err := exchange(conn, call); err != nil {
					t.Error(err)
				}
			})
		}
		clients.Wait()
	}
	most := s.status("VmHWM")
	s.settles("with the connections idle", before+100*mebi)
	for _, conn := range conns {
		conn.Close()
	}
	after := s.settles("without connections", before+32*mebi)
	threads := s.status("Threads")
	t.Logf("%d MiB before, %d at most (with %d of the binary), %d after; %d threads",
		before/mebi, most/mebi, s.status("RssFile")/mebi, after/mebi, threads)
	if threads > 400 { // 128 that wait, 3 times 64 that write as somebody, as root, and sync; and Go's own
		t.Errorf("%d threads", threads)
	}
}

// process is a podnas that serves a claim without a cluster.
type served struct {
	t    *testing.T
	pid  int
	nfs  string // its address
	http string // that of the probes
	disk string
}

// startProcess starts podnas. The test's own process is another one: it
// is the client, and may have the race detector's memory.
func startProcess(t *testing.T, engine string) *served {
	t.Helper()
	dir := t.TempDir()
	program, err := builtPodnas()
	mustDo(t, err)
	claims := filepath.Join(dir, "claims")
	mustDo(t, os.Mkdir(claims, 0o755))
	mustDo(t, os.Mkdir(filepath.Join(dir, "disk"), 0o755))
	mustDo(t, os.WriteFile(filepath.Join(claims, "claim.yaml"), []byte(`
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: podnas}
provisioner: podnas.io/nfs
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: burst, namespace: default}
spec:
  storageClassName: podnas
  accessModes: [ReadWriteMany]
  resources: {requests: {storage: 64Mi}}
`), 0o600))
	s := &served{t: t, nfs: freeAddress(t), http: freeAddress(t), disk: filepath.Join(dir, "disk")}
	var log syncBuffer
	cmd := exec.Command(program, "serve", "--standalone", "--engine="+engine, "--root="+s.disk, "--claims="+claims, "--listen="+s.nfs, "--http="+s.http)
	cmd.Stdout, cmd.Stderr = &log, &log
	mustDo(t, cmd.Start())
	s.pid = cmd.Process.Pid
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		if err := cmd.Wait(); err != nil || t.Failed() {
			t.Logf("podnas ended: %v\n%s", err, log.String())
		}
	})
	s.eventually("podnas is ready", s.ready)
	return s
}

func (s *served) ready() bool {
	resp, err := http.Get("http://" + s.http + "/readyz")
	if err != nil {
		return false
	}
	resp.Body.Close()
	return resp.StatusCode == http.StatusOK
}

// mount mounts the volume, when it is there.
func (s *served) mount(client *nfstest.Client) nfs3.FH {
	s.t.Helper()
	var root nfs3.FH
	s.eventually("there is a volume", func() bool {
		volumes, err := filepath.Glob(filepath.Join(s.disk, "pvc-*"))
		mustDo(s.t, err)
		if len(volumes) == 0 {
			return false
		}
		res, err := client.Mount(s.t.Context(), "/"+filepath.Base(volumes[0]))
		mustDo(s.t, err)
		root = slices.Clone(res.Handle)
		return res.Status == mount3.OK
	})
	return root
}

// makeFile makes a file with data in the volume.
func (s *served) makeFile(client *nfstest.Client) nfs3.FH {
	ctx := s.t.Context()
	root := s.mount(client)
	made, err := client.Create(ctx, nfs3.CreateArgs{Where: nfs3.DirOpArgs{Dir: root, Name: []byte("burst")}})
	if err != nil || made.Status != nfs3.OK {
		s.t.Fatalf("CREATE: %v, %v", made.Status, err)
	}
	file := slices.Clone(made.Object)
	for i := range uint64(burstFile) {
		if res, err := client.Write(ctx, file, i*burstData, nfs3.Unstable, make([]byte, burstData)); err != nil || res.Status != nfs3.OK {
			s.t.Fatalf("WRITE: %v, %v", res.Status, err)
		}
	}
	return file
}

// status is a number of the process that the kernel tells, sizes in bytes.
func (s *served) status(field string) int {
	s.t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", s.pid))
	mustDo(s.t, err)
	var n int
	for line := range strings.Lines(string(text)) {
		if _, err := fmt.Sscanf(line, field+": %d kB", &n); err == nil {
			return n << 10
		}
		if _, err := fmt.Sscanf(line, field+": %d", &n); err == nil && n > 0 {
			return n
		}
	}
	s.t.Fatalf("the kernel tells no %s", field)
	return 0
}

// settles waits until the process has allocated no more than so much, and tells how
// much it is.
func (s *served) settles(when string, most int) int {
	s.t.Helper()
	now := 0
	s.eventually(fmt.Sprintf("%s at most %d MiB are allocated", when, most/mebi), func() bool {
		now = s.status("RssAnon")
		return now <= most
	})
	return now
}

func (s *served) eventually(what string, ok func() bool) {
	s.t.Helper()
	for deadline := time.Now().Add(90 * time.Second); !ok(); time.Sleep(100 * time.Millisecond) {
		if time.Now().After(deadline) {
			s.t.Fatalf("not within 90 s: %s", what)
		}
	}
}

// callOf is the record of a call.
func callOf(proc uint32, args rpc.Args) []byte {
	return callAs(1, rpc.SysCred{MachineName: []byte("burst")}, proc, args)
}

func callAs(xid uint32, cred rpc.SysCred, proc uint32, args rpc.Args) []byte {
	h := rpc.CallHeader{XID: xid, RPCVersion: rpc.Version, Prog: nfs3.Program, Vers: nfs3.Version, Proc: proc, Cred: cred.Auth()}
	b, at := rpc.BeginRecord(nil)
	b = args.Append(h.Append(b))
	rpc.EndRecord(b, at)
	return b
}

// exchange makes a call, and takes its reply without keeping it.
func exchange(conn net.Conn, call []byte) error {
	if _, err := conn.Write(call); err != nil {
		return err
	}
	const head = 4 + 6*4 + 4 // mark, header of a success, status
	var reply [head]byte
	if _, err := io.ReadFull(conn, reply[:]); err != nil {
		return err
	}
	if status := binary.BigEndian.Uint32(reply[head-4:]); status != 0 {
		return fmt.Errorf("a call ended with status %d", status)
	}
	size := int64(binary.BigEndian.Uint32(reply[:]) &^ (1 << 31))
	_, err := io.CopyN(io.Discard, conn, size-(head-4))
	return err
}

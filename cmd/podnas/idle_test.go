package main

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/podnas/podnas/nfs/nfs4"
	"github.com/podnas/podnas/nfs/rpc"
	"github.com/podnas/podnas/test/conformance/nfstest"
	"github.com/podnas/podnas/test/testdisk"
)

const (
	idleVolumes = 200
	idleClients = 50 // half of them with each version
	idleTime    = time.Minute
	// renewal is how often a Linux client of version 4.1 renews its lease, two thirds of it.
	renewal = 20 * time.Second

	// docs/internals/measurements.md has what is measured, much less than these. A timer for each volume, or a scan of the
	// folder each second, is more than these.
	idleWakes  = 60.0 // a second, of all threads
	idlePart   = 0.01 // of a processor
	idleMemory = 20 * mebi

	// idleStart is how long the start may take, with what it leaves for later.
	idleStart = 90 * time.Second
)

// A podnas with many volumes and clients that have nothing to do hardly wakes. Nothing here
// depends on what else the machine does: a thread that has to wait for a processor does not
// wake more often. It takes three minutes, so only CI and make idle run it.
func TestIdle(t *testing.T) {
	testdisk.OnlyCI(t)
	if os.Getuid() != 0 {
		t.Skip("needs root, for the native engine")
	}
	t.Parallel()
	s := startProcess(t, "native")
	claims := filepath.Join(filepath.Dir(s.disk), "claims")
	for i := 1; i < idleVolumes; i++ {
		mustDo(t, os.WriteFile(filepath.Join(claims, fmt.Sprintf("%d.yaml", i)), fmt.Appendf(nil, `
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: idle-%d, namespace: default}
spec:
  storageClassName: podnas
  accessModes: [ReadWriteMany]
  resources: {requests: {storage: 64Mi}}
`, i), 0o600))
	}
	var volumes []string
	s.eventually("there are all volumes", func() bool {
		var err error
		volumes, err = filepath.Glob(filepath.Join(s.disk, "pvc-*"))
		mustDo(t, err)
		return len(volumes) == idleVolumes
	})
	var renewing []*idleClient
	for i := range idleClients {
		path := "/" + filepath.Base(volumes[i*len(volumes)/idleClients])
		if i%2 == 1 {
			renewing = append(renewing, newIdleClient(t, s.nfs, path))
			continue
		}
		client, err := nfstest.Dial(t.Context(), s.nfs, s.nfs)
		mustDo(t, err)
		t.Cleanup(client.Close)
		res, err := client.Mount(t.Context(), path)
		mustDo(t, err)
		_, err = client.Getattr(t.Context(), res.Handle)
		mustDo(t, err)
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	for i, c := range renewing {
		go c.renew(ctx, time.Duration(i)*renewal/time.Duration(len(renewing)))
	}
	time.Sleep(idleStart)
	memory := s.settles("with nothing to do", idleMemory)

	wakes, worked := s.wakes(), s.worked()
	start := time.Now()
	time.Sleep(idleTime)
	seconds := time.Since(start).Seconds()
	perSecond, part := float64(s.wakes()-wakes)/seconds, (s.worked()-worked).Seconds()/seconds
	t.Logf("%.2f wakes a second, %.3f%% of a processor, %d KiB allocated; thread by thread:\n%s", perSecond, 100*part, memory>>10, s.threads())
	if perSecond > idleWakes {
		t.Errorf("%.2f wakes a second, want %v: what is new and periodic?", perSecond, idleWakes)
	}
	if part > idlePart {
		t.Errorf("%.3f%% of a processor, want %v%%", 100*part, 100*idlePart)
	}
}

// each calls do with a file of each of the process's threads.
func (s *served) each(file string, do func(text string)) {
	s.t.Helper()
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/%s", s.pid, file))
	mustDo(s.t, err)
	for _, file := range files {
		if text, err := os.ReadFile(file); err == nil { // or the thread has ended
			do(string(text))
		}
	}
}

// wakes is how often threads began to wait, see proc_pid_status(5).
func (s *served) wakes() (sum int) {
	s.t.Helper()
	s.each("status", func(text string) {
		var n int
		_, _ = fmt.Sscanf(text[strings.Index(text, "\nvoluntary_ctxt_switches:")+1:], "voluntary_ctxt_switches: %d", &n)
		sum += n
	})
	return sum
}

// worked is the processor time of the threads.
func (s *served) worked() (sum time.Duration) {
	s.t.Helper()
	s.each("schedstat", func(text string) {
		var ns time.Duration
		_, _ = fmt.Sscan(text, &ns)
		sum += ns
	})
	return sum
}

// threads tells how often each thread has woken since it began, for who looks for the reason.
func (s *served) threads() string {
	s.t.Helper()
	var b bytes.Buffer
	s.each("status", func(text string) {
		for line := range strings.Lines(text) {
			if strings.HasPrefix(line, "voluntary") {
				b.WriteString(strings.TrimPrefix(line, "voluntary_ctxt_switches:"))
			}
		}
	})
	return b.String()
}

// idleClient is a client of version 4.1 that has a session.
type idleClient struct {
	conn    *rpc.Client
	session nfs4.SessionID
	seq     uint32
}

func newIdleClient(t *testing.T, address, path string) *idleClient {
	t.Helper()
	nc, err := net.Dial("tcp", address)
	mustDo(t, err)
	c := &idleClient{conn: rpc.NewClient(nc)}
	t.Cleanup(func() { c.conn.Close() })
	var client nfs4.ExchangeIDRes
	mustDo(t, c.call(t.Context(), nfs4.Operation{Num: nfs4.OpExchangeID, Args: &nfs4.ExchangeIDArgs{OwnerID: []byte(path), Flags: nfs4.ExchangeUseNonPNFS}, Res: &client}))
	var session nfs4.CreateSessionRes
	args := nfs4.CreateSessionArgs{
		ClientID: client.ClientID, SequenceID: client.SequenceID,
		Fore:      nfs4.ChannelAttrs{MaxRequestSize: 4096, MaxResponseSize: 4096, MaxResponseSizeCached: 4096, MaxOperations: 16, MaxRequests: 1},
		Back:      nfs4.ChannelAttrs{MaxRequestSize: 4096, MaxResponseSize: 4096, MaxOperations: 2, MaxRequests: 1},
		CBProgram: 0x40000000, SecParms: []nfs4.CallbackSec{{Flavor: rpc.AuthNone}},
	}
	mustDo(t, c.call(t.Context(), nfs4.Operation{Num: nfs4.OpCreateSession, Args: &args, Res: &session}))
	c.session = session.SessionID
	mustDo(t, c.sequence(t.Context(), nfs4.Operation{Num: nfs4.OpReclaimComplete, Args: &nfs4.ReclaimCompleteArgs{}, Res: &nfs4.StatusRes{}}))
	return c
}

func (c *idleClient) call(ctx context.Context, ops ...nfs4.Operation) error {
	cred := rpc.SysCred{MachineName: []byte("idle")}
	h := rpc.CallHeader{RPCVersion: rpc.Version, Prog: nfs4.Program, Vers: nfs4.Version, Proc: nfs4.ProcCompound, Cred: cred.Auth()}
	b, err := c.conn.Do(ctx, h, nfs4.Compound(ops))
	if err != nil {
		return err
	}
	if num, status, err := nfs4.Compound(ops).DecodeResults(b); err != nil || status != nfs4.OK {
		return fmt.Errorf("%v: %v, %w", num, status, err)
	}
	return nil
}

func (c *idleClient) sequence(ctx context.Context, ops ...nfs4.Operation) error {
	c.seq++
	first := nfs4.Operation{Num: nfs4.OpSequence, Args: &nfs4.SequenceArgs{SessionID: c.session, SequenceID: c.seq}, Res: &nfs4.SequenceRes{}}
	return c.call(ctx, append([]nfs4.Operation{first}, ops...)...)
}

// renew renews the lease until ctx ends.
func (c *idleClient) renew(ctx context.Context, first time.Duration) {
	for wait := first; ; wait = renewal {
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
			_ = c.sequence(ctx) // what the server does then is not idle, and is counted
		}
	}
}

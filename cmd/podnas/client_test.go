package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/podnas/podnas/internal/process"
	"github.com/podnas/podnas/nfs/nfs4"
	"github.com/podnas/podnas/nfs/rpc"
	"github.com/podnas/podnas/server"
)

type operation = nfs4.Operation

// node4 is a client of version 4.1 or 4.2.
type node4 struct {
	t       *testing.T
	minor   uint32
	conn    *rpc.Client
	session nfs4.SessionID
	seq     uint32
}

// send makes a call, and returns its status.
func (n *node4) send(ops ...operation) nfs4.Status {
	n.t.Helper()
	cred := rpc.SysCred{MachineName: []byte("node")}
	h := rpc.CallHeader{RPCVersion: rpc.Version, Prog: nfs4.Program, Vers: nfs4.Version, Proc: nfs4.ProcCompound, Cred: cred.Auth()}
	b, err := n.conn.Do(n.t.Context(), h, nfs4.Compound(ops).Minor(n.minor))
	mustDo(n.t, err)
	_, status, err := nfs4.Compound(ops).DecodeResults(b)
	mustDo(n.t, err)
	return status
}

// do makes a call in the session.
func (n *node4) do(ops ...operation) nfs4.Status {
	n.t.Helper()
	n.seq++
	first := operation{Num: nfs4.OpSequence, Args: &nfs4.SequenceArgs{SessionID: n.session, SequenceID: n.seq}, Res: &nfs4.SequenceRes{}}
	return n.send(append([]operation{first}, ops...)...)
}

func (n *node4) must(status nfs4.Status) {
	n.t.Helper()
	if status != nfs4.OK {
		n.t.Fatal(status)
	}
}

// join makes a node of this name known to the server, by version 4.1.
func join(t *testing.T, address, name string) *node4 {
	t.Helper()
	return joinBy(t, 1, address, name)
}

func joinBy(t *testing.T, minor uint32, address, name string) *node4 {
	t.Helper()
	conn, err := rpc.Dial(t.Context(), address)
	mustDo(t, err)
	t.Cleanup(func() { conn.Close() })
	n := &node4{t: t, minor: minor, conn: conn}
	var client nfs4.ExchangeIDRes
	n.must(n.send(operation{Num: nfs4.OpExchangeID, Args: &nfs4.ExchangeIDArgs{Verf: nfs4.Verifier{1}, OwnerID: []byte(name)}, Res: &client}))
	channel := nfs4.ChannelAttrs{MaxRequestSize: 1 << 16, MaxResponseSize: 1 << 16, MaxResponseSizeCached: 4096, MaxOperations: 16, MaxRequests: 1}
	args := nfs4.CreateSessionArgs{ClientID: client.ClientID, SequenceID: client.SequenceID, Fore: channel, Back: channel, SecParms: []nfs4.CallbackSec{{}}}
	var session nfs4.CreateSessionRes
	n.must(n.send(operation{Num: nfs4.OpCreateSession, Args: &args, Res: &session}))
	n.session = session.SessionID
	n.must(n.do(operation{Num: nfs4.OpReclaimComplete, Args: &nfs4.ReclaimCompleteArgs{}, Res: &nfs4.StatusRes{}}))
	return n
}

// lock makes a file in a volume, and locks some of it.
func (n *node4) lock(volume, file string, offset, length uint64) {
	n.t.Helper()
	owner := nfs4.StateOwner{Owner: []byte("owner")}
	var open nfs4.OpenRes
	var fh nfs4.GetfhRes
	n.must(n.do(
		operation{Num: nfs4.OpPutrootfh, Res: &nfs4.StatusRes{}},
		operation{Num: nfs4.OpLookup, Args: &nfs4.NameArgs{Name: []byte(volume)}, Res: &nfs4.StatusRes{}},
		operation{Num: nfs4.OpOpen, Args: &nfs4.OpenArgs{ShareAccess: nfs4.ShareAccessBoth, Owner: owner, Create: true, Name: []byte(file)}, Res: &open},
		operation{Num: nfs4.OpGetfh, Res: &fh},
	))
	args := nfs4.LockArgs{Type: nfs4.LockWrite, Offset: offset, Length: length, NewOwner: true, OpenStateid: open.Stateid, Owner: owner}
	n.must(n.do(operation{Num: nfs4.OpPutfh, Args: &nfs4.PutfhArgs{FH: fh.FH}, Res: &nfs4.StatusRes{}}, operation{Num: nfs4.OpLock, Args: &args, Res: &nfs4.LockRes{}}))
}

// fetch gets a page.
func fetch(t *testing.T, url string) string {
	t.Helper()
	response, err := http.Get(url)
	mustDo(t, err)
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	mustDo(t, err)
	return string(body)
}

// waitUntil waits for a condition.
func waitUntil(t *testing.T, what string, is func() bool) {
	t.Helper()
	for began := time.Now(); !is(); time.Sleep(50 * time.Millisecond) {
		if time.Since(began) > 30*time.Second {
			t.Fatalf("not within 30 seconds: %s", what)
		}
	}
}

// servingNative serves a new disk by the native engine until the test ends.
func servingNative(t *testing.T) (root, pages, address string, log *syncBuffer) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("the native engine needs root")
	}
	root, pages = t.TempDir(), freeAddress(t)
	log, cancel, ended := serving(t, "--root="+root, "--engine="+server.EngineNative, "--quota=server", "--http="+pages)
	t.Cleanup(func() {
		cancel()
		mustDo(t, <-ended)
	})
	address = waitForAddress(t, log)
	waitUntil(t, "podnas is ready", func() bool { return probe(pages) })
	return root, pages, address, log
}

// Who is there by version 4.1, and what they hold, is told by the commands, the page, the
// metrics and the log, until somebody evicts them.
func TestClients(t *testing.T) {
	root, pages, address, log := servingNative(t)

	run := func(name, want string, code int, args ...string) string {
		t.Helper()
		out, errs, err := podnas(t.Context(), append(args, "--root="+root)...)
		said := out + errs
		if err != nil {
			said += err.Error()
		}
		if exitCode(err) != code || !regexp.MustCompile(want).MatchString(said) {
			t.Errorf("%s: %q, %v, want code %d with %q", name, said, err, code, want)
		}
		return out
	}
	page := func(path string, wants ...string) {
		t.Helper()
		body := fetch(t, "http://"+pages+path)
		for _, want := range wants {
			if !strings.Contains(body, want) {
				t.Errorf("%s lacks %q", path, want)
			}
		}
	}
	made := run("a volume", "nfsvers=4.1", 0, "volume", "create", "shared", "--size=10Mi", "--mount-options=nfsvers=4.1")
	if strings.Contains(made, "nolock") || strings.Contains(made, "mountport") {
		t.Errorf("its PersistentVolume has options of version 3: %s", made)
	}
	run("another", "", 0, "volume", "create", "other", "--size=10Mi")
	run("nobody", "There are no clients", 0, "client", "list")
	run("a volume that nobody uses", "Mount: .*nfsvers=4.1 127.0.0.1:/shared /mnt\n$", 0, "volume", "show", "shared")
	page("/", "Clients of NFSv4", "There is none.")

	one := join(t, address, "Linux NFSv4.1 node1")
	one.lock("shared", "held", 10, 20)
	join(t, address, "Linux NFSv4.1 node2\x1b[2J")

	run("two clients", `Linux NFSv4 node1 +[0-9a-f]{16} +127.0.0.1:\d+ +4.1 +active +1 +1 +`, 0, "client", "list")
	run("a name made to do harm", `node2\\x1b\[2J +`, 0, "client", "list")
	var all process.NFS4
	mustDo(t, json.Unmarshal([]byte(run("for programs", "", 0, "client", "list", "-o=json")), &all))
	if len(all.Clients) != 2 || len(all.Opens) != 1 || len(all.Locks) != 1 || all.Grace != nil {
		t.Fatalf("%+v", all)
	}
	if l := all.Locks[0]; l.Volume != "shared" || l.File != "held" || l.Client != "Linux NFSv4 node1" || l.Type != "write" || l.Waiting || l.Offset != 10 || l.Length != 20 {
		t.Errorf("the lock is %+v", l)
	}
	run("the volume", `held +open read\+write +Linux NFSv4 node1 +127.0.0.1:\d+ +\d+s\nheld +lock write 10 to 29 +Linux NFSv4 node1`, 0, "volume", "show", "shared")
	run("a volume that nobody has open", `/other /mnt\n$`, 0, "volume", "show", "other")
	// Pages are a second old at most.
	waitUntil(t, "the page has the client", func() bool { return strings.Contains(fetch(t, "http://"+pages+"/"), "Linux NFSv4 node1") })
	page("/", "Open files and locks", "lock write 10 to 29", `node2\x1b[2J`)
	page("/volume/shared", fmt.Sprintf("inode %d<", all.Locks[0].Inode), "lock write 10 to 29")
	page("/volume/other", "Only clients of NFSv4 tell what they have open and locked.")
	waitUntil(t, "the metrics have the lock", func() bool {
		m := fetch(t, "http://"+pages+"/metrics")
		return strings.Contains(m, "podnas_nfs4_locks 1\n") && strings.Contains(m, "podnas_nfs4_opens 1\n") && strings.Contains(m, "podnas_nfs4_clients 2\n") &&
			strings.Contains(m, "podnas_nfs4_grace 0\n") && strings.Contains(m, `podnas_nfs4_client_events_total{event="came"} 2`)
	})

	run("nobody to answer", "use --yes", exitUsage, "client", "evict", "node1")
	run("a stranger", "there is no client", exitNotFound, "client", "evict", "node3", "--yes")
	run("evicted", `client Linux NFSv4 node1 \([0-9a-f]{16}, at 127.0.0.1:\d+\) is evicted: it had 1 file open and 1 range locked`, 0, "client", "evict", "node1", "--yes")
	if status := one.do(); status != nfs4.ErrBadSession {
		t.Errorf("a call of the evicted client: %s, want BADSESSION", status)
	}

	// A client of version 3 is an address, and one that used a volume.
	bench, _, err := podnas(t.Context(), "bench", address+":/other", "--loads=write-4k-rand-stable", "--duration=20ms", "--file-size=1")
	if err != nil {
		t.Errorf("%v: %s", err, bench)
	}
	run("a client of version 3", `\n- +- +127.0.0.1 +3 +- +- +- +- +\d+s\n`, 0, "client", "list")
	var with3 process.Clients
	mustDo(t, json.Unmarshal([]byte(run("for programs", "", 0, "client", "list", "-o=json")), &with3))
	if len(with3.Version3) != 1 || with3.Version3[0].Address != "127.0.0.1" || time.Since(with3.Version3[0].Seen) > time.Minute || with3.NoNFS4 != "" {
		t.Errorf("%+v", with3)
	}
	run("how many clients a volume has", `(?m)^other .* ready +1 +server$`, 0, "volume", "list")

	var left process.NFS4
	mustDo(t, json.Unmarshal([]byte(run("who is left", "", 0, "client", "list", "-o=json")), &left))
	if len(left.Clients) != 1 || len(left.Opens)+len(left.Locks) != 0 {
		t.Errorf("left is %+v", left)
	}
	run("by its ID", "is evicted: it had 0 files open and 0 ranges locked", 0, "client", "evict", left.Clients[0].ID, "--yes")
	waitUntil(t, "the metrics have the loss", func() bool {
		m := fetch(t, "http://"+pages+"/metrics")
		return strings.Contains(m, `podnas_nfs4_client_events_total{event="evicted"} 2`) && strings.Contains(m, "podnas_nfs4_lost_locks_total 1\n") && strings.Contains(m, "podnas_nfs4_lost_opens_total 1\n")
	})
	for _, want := range []string{
		`level=INFO msg="nfs: a client has come" client="Linux NFSv4 node1" version=4.1 address=127.0.0.1:`,
		`level=WARN msg="nfs: a client was evicted" client="Linux NFSv4 node1" version=4.1`,
		`"open files lost"=1 "locks lost"=1`,
	} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("the log lacks %q: %s", want, log)
		}
	}
}

// A node that mounts with 4.1 and with 4.2 is two clients to the server, and one to people.
func TestNodeWithBothVersions(t *testing.T) {
	root, pages, address, _ := servingNative(t)
	for _, name := range []string{"old", "new"} {
		_, _, err := podnas(t.Context(), "volume", "create", name, "--size=10Mi", "--root="+root)
		mustDo(t, err)
	}
	one, two := joinBy(t, 1, address, "Linux NFSv4.1 node1"), joinBy(t, 2, address, "Linux NFSv4.2 node1")
	one.lock("old", "held", 0, 10)
	two.lock("new", "held", 20, 10)
	two.lock("new", "also", 0, 1)

	list, _, err := podnas(t.Context(), "client", "list", "--root="+root)
	if mustDo(t, err); strings.Count(list, "node1") != 1 || !regexp.MustCompile(`(?m)^Linux NFSv4 node1 +[0-9a-f]{16} +127.0.0.1:\d+ +4\.1,4\.2 +active +3 +3 +`).MatchString(list) {
		t.Errorf("the list is\n%s", list)
	}
	var all process.NFS4
	out, _, err := podnas(t.Context(), "client", "list", "-o=json", "--root="+root)
	mustDo(t, err)
	mustDo(t, json.Unmarshal([]byte(out), &all))
	if len(all.Clients) != 1 || len(all.Clients[0].Identities) != 2 || len(all.Locks) != 3 {
		t.Fatalf("%+v", all)
	}
	c := all.Clients[0]
	if c.ID != c.Identities[0].ID || c.Identities[0].Name != "Linux NFSv4.1 node1" || c.Identities[0].Version != "4.1" || c.Identities[1].Name != "Linux NFSv4.2 node1" || c.Identities[1].Version != "4.2" {
		t.Errorf("the node is %+v", c)
	}
	for _, l := range all.Locks {
		if l.ClientID != c.ID || l.Client != "Linux NFSv4 node1" {
			t.Errorf("%+v is not of the node %s", l, c.ID)
		}
	}
	if of := all.Of("new"); len(of.Clients) != 1 || len(of.Locks) != 2 {
		t.Errorf("of the new volume there is %+v", of)
	}
	waitUntil(t, "the page and the metrics have one node", func() bool {
		page, m := fetch(t, "http://"+pages+"/"), fetch(t, "http://"+pages+"/metrics")
		return strings.Contains(page, "4.1,4.2") && !strings.Contains(page, "NFSv4.2 node1") && strings.Contains(m, "podnas_nfs4_clients 1\n") && strings.Contains(m, "podnas_nfs4_locks 3\n")
	})
	if out, _, _ := podnas(t.Context(), "doctor", "--root="+root); !strings.Contains(out, "no two nodes have come with the same one") {
		t.Errorf("podnas doctor says\n%s", out)
	}

	// By the ID of either, both go.
	out, _, err = podnas(t.Context(), "client", "evict", c.Identities[1].ID, "--yes", "--root="+root)
	want := fmt.Sprintf("client Linux NFSv4 node1 (%s, %s, at %s) is evicted: it had 3 files open and 3 ranges locked\n", c.Identities[0].ID, c.Identities[1].ID, c.Address)
	if mustDo(t, err); out != want {
		t.Errorf("it is evicted with %q, want %q", out, want)
	}
	for _, n := range []*node4{one, two} {
		if status := n.do(); status != nfs4.ErrBadSession {
			t.Errorf("a call by 4.%d of the evicted node: %s, want BADSESSION", n.minor, status)
		}
	}
	if list, _, err = podnas(t.Context(), "client", "list", "--root="+root); err != nil || !strings.Contains(list, "There are no clients") {
		t.Errorf("%v, after that the list is\n%s", err, list)
	}
}

// Where version 4.1 is not served, the commands say so, and a volume is shown as ever.
func TestClientsWithoutVersion4(t *testing.T) {
	root, _ := serveStandaloneWith(t, "--engine="+server.EngineGoNFS)
	if out, _, err := podnas(t.Context(), "client", "list", "--root="+root); err != nil || !strings.Contains(out, "There are no clients.\n\nthis podnas serves version 3 of NFS alone") {
		t.Errorf("%q, %v", out, err)
	}
	if _, _, err := podnas(t.Context(), "client", "evict", "x", "--yes", "--root="+root); exitCode(err) != exitNotFound || !strings.Contains(err.Error(), "needs the native engine") {
		t.Errorf("evict: %v", err)
	}
	if _, _, err := podnas(t.Context(), "volume", "create", "v", "--size=1Mi", "--root="+root); err != nil {
		t.Error(err)
	}
	if _, _, err := podnas(t.Context(), "volume", "create", "w", "--size=1Mi", "--mount-options=nfsvers=4.1", "--root="+root); exitCode(err) != exitUsage ||
		!strings.Contains(err.Error(), "mount option nfsvers=4.1: NFSv4.1 needs the native engine") {
		t.Errorf("a volume with 4.1: %v", err)
	}
	if out, _, err := podnas(t.Context(), "volume", "show", "v", "--root="+root); err != nil || !strings.Contains(out, "nfsvers=3") {
		t.Errorf("%q, %v", out, err)
	}
}

//go:build attack

package attack_test

import (
	"context"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/podnas/podnas/nfs/nfs3"
	"github.com/podnas/podnas/test/conformance/nfstest"
)

// attack is a line of the table.
type attack struct {
	name  string // of the subtest
	does  string
	holds string             // what must hold, besides what does for all
	on    func(s setup) bool // where it makes sense; nil: everywhere
	also  kinds              // a run of minutes has it on ext4 with the native engine, and on these
	inode int                // inodes of an ext4, 0: what mkfs makes
	more  int64              // memory that the process may have beside rssMax
	run   func(a *assault)   // sets up, attacks, checks
}

// diskSize is of a sparse file, in which little is written.
const diskSize = 2 << 30

// What holds for all attacks. The figures of the server's are in docs/limits.md.
const (
	// rssMax is the memory that the whole process may take.
	rssMax = 600 << 20
	// kernelMax is what the kernel may hold for it besides, of the manifest's memoryLimit.
	kernelMax = 640 << 20
	// raceFactor is how much more the race detector takes.
	raceFactor = 8
	// threadsMax: the workers, the calls that wait on their connections, and Go's own.
	threadsMax = 512
	// handlesMax: connections, kept files, and what is opened for a call.
	handlesMax = 4096 + 4096 + 1024
	// victimMax is the longest that 99 of 100 calls of a victim may take, or all where
	// there are fewer.
	victimMax = 5 * time.Second
	// victimSlower is how many times as long as without the attack the median may take, if
	// that is more than victimFast. It is much, since others use the machines of tests too.
	victimSlower = 50
	victimFast   = 500 * time.Millisecond
)

// assault is an attack under way.
type assault struct {
	*testing.T
	setup
	pace
	rng    *rand.Rand
	ctx    context.Context
	disk   *disk
	server *process
	row    *row
}

// stage makes a disk and a server, and has an attack run.
func stage(t *testing.T, s setup, p pace, atk attack, round int) {
	t.Logf("%s", atk.does)
	dir, err := os.MkdirTemp(*workDir, "attack-")
	must(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	a := &assault{T: t, setup: s, pace: p, rng: randomFor(atk.name, round), ctx: t.Context(), row: summary.row(s, atk)}
	begin := time.Now()
	defer func() {
		a.row.took = time.Since(begin)
		a.row.failed = t.Failed()
	}()
	a.disk = newDisk(t, s, dir, diskSize, atk.inode)
	a.server = newProcess(t, s, dir, a.disk.root)
	defer func() {
		if a.server.cmd != nil {
			a.server.kill()
		}
		a.server.checkLog()
		if t.Failed() {
			text := a.server.log()
			t.Logf("the end of podnas's log:\n%s", text[max(0, len(text)-3000):])
		}
	}()
	a.server.serve()
	a.volume(victimVolume, "64Mi")
	atk.run(a)
	a.checkServer(rssMax + atk.more)
	a.server.stop()
}

// volume makes one that everybody may write to. Its names and attributes are not
// synced unless sync is among the flags, so that an attack gets further in its time.
func (a *assault) volume(name, size string, flags ...string) {
	a.Helper()
	a.server.volume(name, size, append([]string{"--mode=0777"}, flags...)...)
}

// mallory is the attacker's nth address.
func mallory(n int) string { return fmt.Sprintf("10.77.%d.%d", 1+n/250, 1+n%250) }

// client mounts a volume as root from the attacker's first address.
func (a *assault) client(volume string) (*nfstest.Client, nfs3.FH) {
	a.Helper()
	c, root, err := mountFrom(a.ctx, mallory(0), volume)
	must(a, err)
	a.Cleanup(c.Close)
	return c, root
}

// conn is a connection for raw bytes from the attacker's nth address.
func (a *assault) conn(n int) net.Conn {
	a.Helper()
	conn, err := dialFrom(a.ctx, mallory(n), nfsAddress)
	must(a, err)
	a.Cleanup(func() { conn.Close() })
	return conn
}

// conns are as many connections as there may be, spread over addresses so that each has
// no more than perAddress. The server may refuse some.
func (a *assault) conns(n, perAddress int) []net.Conn {
	return a.dialMany(n, func(ctx context.Context, i int) (net.Conn, error) {
		return dialFrom(ctx, mallory(i/perAddress), nfsAddress)
	})
}

func (a *assault) dialMany(n int, dial func(ctx context.Context, i int) (net.Conn, error)) (got []net.Conn) {
	a.Helper()
	conns := make(chan net.Conn, n)
	next := newSemaphore(16)
	for i := range n {
		<-next
		go func() {
			defer next.give()
			ctx, cancel := context.WithTimeout(a.ctx, 2*time.Second)
			defer cancel()
			if conn, err := dial(ctx, i); err == nil {
				conns <- conn
			}
		}()
	}
	for range cap(next) {
		<-next
	}
	close(conns)
	for conn := range conns {
		got = append(got, conn)
		a.Cleanup(func() { conn.Close() })
	}
	return got
}

// sendAll writes to each connection, and does not wait for one that does not take it.
func sendAll(conns []net.Conn, patience time.Duration, raw func(i int) []byte) {
	sem := newSemaphore(32)
	for i, conn := range conns {
		<-sem
		go func() {
			defer sem.give()
			_ = conn.SetWriteDeadline(time.Now().Add(patience))
			_, _ = conn.Write(raw(i)) // the server may have closed it, or takes no more
		}()
	}
	for range cap(sem) {
		<-sem
	}
}

// create makes an empty file.
func (a *assault) create(c *nfstest.Client, dir nfs3.FH, name string, attr nfs3.Sattr) nfs3.FH {
	a.Helper()
	res, err := c.Create(a.ctx, nfs3.CreateArgs{Where: where(dir, name), Attr: attr})
	ok(a, "CREATE "+name, res.Status, err)
	return res.Object
}

func (a *assault) mkdir(c *nfstest.Client, dir nfs3.FH, name string) nfs3.FH {
	a.Helper()
	res, err := c.Mkdir(a.ctx, dir, name, mode(0o777))
	ok(a, "MKDIR "+name, res.Status, err)
	return res.Object
}

// path is where a volume is on the disk.
func (a *assault) path(volume string, more ...string) string {
	return filepath.Join(append([]string{a.disk.root, volume}, more...)...)
}

// beside has the victims measured, without the attack and then with it. What they must
// be spared is the same for all attacks.
func (a *assault) beside(attack func()) {
	a.Helper()
	v, machine := newVictims(a.T, "-victim"), newVictims(a.T, "-machine")
	defer machine.stop()
	defer v.stop()
	time.Sleep(200 * time.Millisecond) // they mount, and the server has its first of all
	v.report()
	machine.report()
	time.Sleep(a.window * 2 / 3)
	a.row.before = v.report()
	maps.Copy(a.row.before, machine.report())
	attack()
	a.row.during = v.report()
	maps.Copy(a.row.during, machine.report())
	a.Logf("victims without the attack: %v", a.row.before)
	a.Logf("victims beside the attack:  %v", a.row.during)
	for _, op := range victimOps {
		a.spared(op, a.row.before[op], a.row.during[op])
	}
}

func (a *assault) spared(op string, before, during *latency) {
	a.Helper()
	switch {
	case during == nil: // an attack that was over at once
		return
	case before == nil || before.Refused > 0:
		a.Errorf("victims could not %s without the attack: %v", op, before)
		return
	case during.Refused > 0:
		a.Errorf("victims: %d of %d %s refused: %s", during.Refused, during.N, op, during.Why)
	}
	limit, median := victimMax, max(victimFast, victimSlower*before.P50)
	if a.race {
		limit, median = 4*limit, 4*median
	}
	if during.P99 > limit {
		a.Errorf("victims: 99 in 100 %s took %v, and %v without the attack", op, short(during.P99), short(before.P99))
	}
	if during.N >= 20 && during.P50 > median {
		a.Errorf("victims: the median %s took %v, and %v without the attack", op, short(during.P50), short(before.P50))
	}
}

// checkServer holds the server against its bounds, and asks whether it is well.
func (a *assault) checkServer(rss int64) {
	a.Helper()
	if !a.server.running() {
		a.Errorf("podnas has ended: %v", a.server.cmd.ProcessState)
		return
	}
	a.row.used = a.server.usage()
	if a.race {
		rss *= raceFactor
	}
	if a.row.used.rss > rss {
		a.Errorf("podnas had %v of memory, %v at most is allowed", mib(a.row.used.rss), mib(rss))
	}
	if a.row.used.kernel > kernelMax {
		a.Errorf("the kernel held %v for podnas, %v at most is allowed", mib(a.row.used.kernel), mib(kernelMax))
	}
	if a.row.used.threads > threadsMax {
		a.Errorf("podnas had %d threads, %d at most are allowed", a.row.used.threads, threadsMax)
	}
	if a.row.used.handles > handlesMax {
		a.Errorf("podnas had %d descriptors, %d at most are allowed", a.row.used.handles, handlesMax)
	}
	if err := ready(10 * time.Second); err != nil {
		a.Errorf("podnas is not ready after the attack: %v", err)
	}
	ctx, cancel := context.WithTimeout(a.ctx, 10*time.Second)
	defer cancel()
	c, root, err := mountFrom(ctx, newClient, victimVolume)
	if err != nil {
		a.Errorf("mount after the attack: %v", err)
		return
	}
	defer c.Close()
	res, err := c.Getattr(ctx, root)
	if err := said(res.Status, err); err != nil {
		a.Errorf("GETATTR after the attack: %v", err)
	}
}

// note adds to the last column of the summary.
func (a *assault) note(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	a.row.notes = append(a.row.notes, text)
	a.Logf("%s", text)
}

func mib(n int64) string { return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20)) }

// row is a line of the summary.
type row struct {
	setup          setup
	name           string
	failed         bool
	took           time.Duration
	before, during latencies
	used           usage
	notes          []string
}

type table struct{ rows []*row }

var summary table

func (s *table) row(of setup, atk attack) *row {
	r := &row{setup: of, name: atk.name, failed: true}
	s.rows = append(s.rows, r)
	return r
}

// print prints the summary: the slowest answers to victims, without the attack and
// beside it.
func (s *table) print(w io.Writer) {
	if len(s.rows) == 0 {
		return
	}
	fmt.Fprintf(w, "\nVictims: the worst p99 of GETATTR, WRITE and CREATE, then of a new mount, then /readyz at its slowest;\neach without the attack > beside it.\n\n")
	fmt.Fprintf(w, "%-6s %-24s %-26s %6s  %-17s %-17s %-17s %7s %9s %9s %7s %6s\n",
		"", "setup", "attack", "took", "calls p99", "mount p99", "readyz max", "refused", "memory", "kernel's", "threads", "files")
	for _, r := range s.rows {
		verdict := "ok"
		if r.failed {
			verdict = "FAILED"
		}
		refused := 0
		for _, l := range r.during {
			refused += l.Refused
		}
		pair := func(of func(*latency) time.Duration, ops ...string) string {
			if r.during == nil {
				return "-"
			}
			return short(r.before.worst(of, ops)) + " > " + short(r.during.worst(of, ops))
		}
		p99 := func(l *latency) time.Duration { return l.P99 }
		longest := func(l *latency) time.Duration { return l.Max }
		fmt.Fprintf(w, "%-6s %-24s %-26s %6s  %-17s %-17s %-17s %7d %9s %9s %7d %6d  %s\n", verdict, r.setup, r.name, short(r.took),
			pair(p99, "getattr", "write", "create"), pair(p99, "connect"), pair(longest, "ready"),
			refused, mib(r.used.rss), mib(r.used.kernel), r.used.threads, r.used.handles, strings.Join(r.notes, "; "))
	}
}

func (l latencies) worst(of func(*latency) time.Duration, ops []string) (worst time.Duration) {
	for _, op := range ops {
		if l[op] != nil {
			worst = max(worst, of(l[op]))
		}
	}
	return worst
}

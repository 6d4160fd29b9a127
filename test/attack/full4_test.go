//go:build attack

package attack_test

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/podnas/podnas/nfs/nfs3"
	"github.com/podnas/podnas/nfs/nfs4"
)

// tablesMax is what docs/limits.md lets the process have beside rssMax while all tables of version 4.1 are full.
const tablesMax = 280 << 20

// All that clients can have the server hold, at once.
var full4Attacks = []attack{
	{
		name:  "all tables, and calls in flight",
		does:  "fills what clients of 4.1 share, sessions with kept replies, opens and locks, from 32 addresses; then thousands of connections ask for 1 MiB, 64 times each, and read nothing, and as many send half records",
		holds: "memory stays within its bound, others are served, and one that comes now gets in, and opens and locks",
		on:    isNative,
		more:  tablesMax,
		run: func(a *assault) {
			a.volume("prey", "64Mi")
			c, root := a.client("prey")
			unread := a.unreadCalls(c, root)
			for i := range tableFiles {
				a.create(c, root, fmt.Sprint(i), nfs3.Sattr{})
			}
			a.fillTables(a.many(500, 8000))
			a.note("tables %s", mib(a.server.usage().rss))
			half := halfRecord(512 << 10)
			a.beside(func() {
				begin, used := time.Now(), a.server.processorTime()
				a.hold(a.many(300, 4000), 250, func(int) []byte { return unread })
				a.hold(a.many(300, 2000), 64, func(int) []byte { return half })
				a.note("%.2f processors", (a.server.processorTime()-used).Seconds()/time.Since(begin).Seconds())
			})
			if a.row.during["open4"] == nil {
				a.Error("a client that comes when the tables are full does not get in")
			}
		},
	},
}

// tableFiles is how many files fillTables opens.
const tableFiles = 16

// fillTables makes clients, from 32 addresses, that have as much as they get.
func (a *assault) fillTables(n int) {
	a.Helper()
	var clients, sessions, replies, opens, locks atomic.Int64
	files := a.ready4(0, "files")
	var fhs [tableFiles]nfs4.FH
	for i := range fhs {
		fhs[i] = files.fh("prey", fmt.Sprint(i))
	}
	large := files.fh("prey", "read")
	var limit syscall.Rlimit // the server's too
	must(a, syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit))
	opensEach := min(29, int(min(limit.Cur/4, 200_000))*7/8/n)
	fill := func(i int) {
		c := a.client4(1000 + i%32)
		defer c.conn.Close()
		if !c.introduce(fmt.Sprint(strings.Repeat("o", 100), i)) || !c.createSession() {
			return
		}
		clients.Add(1)
		sessions.Add(1)
		first := c.session
		for range 2 {
			if res, status := c.addSession(); status == nfs4.OK {
				sessions.Add(1)
				replies.Add(c.keepReplies(&res, large))
			}
		}
		c.session = first
		at := onFH(fhs[i%tableFiles])
		owner := func(j int) nfs4.StateOwner {
			return nfs4.StateOwner{Owner: fmt.Appendf(nil, "%s %d %d", strings.Repeat("x", 70), i, j)}
		}
		open := func(ops ops4, j int) ops4 {
			return ops.do(nfs4.OpOpen, &nfs4.OpenArgs{ShareAccess: nfs4.ShareAccessBoth, Owner: owner(j), Claim: nfs4.ClaimFH})
		}
		one := open(at, 0)
		status, d := c.sequenced(one.n, one.bytes)
		if status != nfs4.OK {
			return
		}
		opens.Add(1)
		var opened nfs4.OpenRes
		result(&d, 0)
		opened.Decode(&d)
		for j := range 2 {
			ops := at
			for k := range 14 {
				ops = ops.do(nfs4.OpLock, &nfs4.LockArgs{
					Type: nfs4.LockWrite, Offset: uint64(i)<<20 + uint64(100*j+2*k), Length: 1, NewOwner: true, OpenStateid: opened.Stateid, Owner: owner(14*j + k),
				})
			}
			if status, _ := c.sequenced(ops.n, ops.bytes); status == nfs4.OK {
				locks.Add(14)
			}
		}
		for j := 1; j+7 <= opensEach; j += 7 {
			ops := at
			for k := range 7 {
				ops = open(ops, j+k)
			}
			if status, _ := c.sequenced(ops.n, ops.bytes); status == nfs4.OK {
				opens.Add(7)
			}
		}
	}
	var wg sync.WaitGroup
	var next atomic.Int64
	for range 16 {
		wg.Go(func() {
			for i := int(next.Add(1)) - 1; i < n && !a.Failed(); i = int(next.Add(1)) - 1 {
				fill(i)
			}
		})
	}
	wg.Wait()
	a.note("%d clients, %d sessions, %d replies, %d opens, %d locks", clients.Load(), sessions.Load(), replies.Load(), opens.Load(), locks.Load())
	if clients.Load() < int64(n)*9/10 || sessions.Load() < min(27*int64(n)/10, 14_000*3/4) || locks.Load() < min(25*int64(n), 80_000) {
		a.Error("the tables are not full")
	}
}

// keepReplies has the server keep a reply to each slot of a session, as long as it may be.
func (c *client4) keepReplies(res *nfs4.CreateSessionRes, file nfs4.FH) (kept int64) {
	const head = 140 // of the reply, without the data
	if res.Fore.MaxResponseSizeCached < head {
		return 0
	}
	read := onFH(file).do(nfs4.OpRead, &nfs4.ReadArgs{Count: res.Fore.MaxResponseSizeCached - head})
	for slot := range res.Fore.MaxRequests {
		args := nfs4.SequenceArgs{SessionID: res.SessionID, SequenceID: 1, SlotID: slot, HighestSlotID: slot, CacheThis: true}
		all := ops4{}.do(nfs4.OpSequence, &args).and(read)
		if status, _ := c.compound(all.n, all.bytes); status == nfs4.OK {
			kept++
		}
	}
	return kept
}

// processorTime is what the process has used since its start.
func (p *process) processorTime() time.Duration {
	p.t.Helper()
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.cmd.Process.Pid))
	must(p.t, err)
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:]) // from the third on, proc(5)
	var ticks int64
	for _, field := range fields[11:13] {
		n, err := strconv.ParseInt(string(field), 10, 64)
		must(p.t, err)
		ticks += n
	}
	return time.Duration(ticks) * time.Second / 100 // USER_HZ
}

//go:build attack

package attack_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/podnas/podnas/nfs/nfs3"
	"github.com/podnas/podnas/nfs/rpc"
)

// Calls that take long. What must hold is what the victims feel.

var timeAttacks = []attack{
	{
		name:  "lookups of .. in the deep",
		does:  "256 calls of LOOKUP \"..\" at once, 60,000 directories deep, and then is gone",
		holds: "others are served",
		run: func(a *assault) {
			a.volume("prey", "1Gi")
			deep := a.deep("prey", a.many(20_000, 60_000))
			var raw []byte
			for i := range 256 {
				args := where(deep, "..")
				raw = appendCall(raw, uint32(i), caller(0, 0), nfs3.ProcLookup, &args)
			}
			begin := time.Now()
			c, _ := a.client("prey")
			res, err := c.Lookup(a.ctx, deep, "..")
			if err != nil {
				a.Fatalf("LOOKUP ..: %v", err)
			}
			a.note("one call takes %s (%v)", short(time.Since(begin)), res.Status)
			a.beside(func() {
				for range 2 {
					conns := a.conns(4, 1)
					sendAll(conns, time.Second, func(int) []byte { return raw })
					time.Sleep(100 * time.Millisecond)
					for _, conn := range conns {
						conn.Close()
					}
				}
				time.Sleep(2 * a.window)
			})
		},
	},
	{
		name:  "a storm of syncs",
		does:  "many connections write 4 KiB stably to many files, with 128 calls in flight on each, and commit",
		holds: "others are served",
		run: func(a *assault) {
			a.volume("prey", "256Mi")
			c, root := a.client("prey")
			var files []nfs3.FH
			for i := range 64 {
				files = append(files, a.create(c, root, fmt.Sprint("s-", i), nfs3.Sattr{}))
			}
			data := pattern(6, 4<<10)
			a.storm(func(i int) (uint32, rpc.Args) {
				file := files[i%len(files)]
				if i%8 == 7 {
					return nfs3.ProcCommit, &nfs3.CommitArgs{File: file}
				}
				return nfs3.ProcWrite, &nfs3.WriteArgs{File: file, Offset: uint64(i%1000) << 12, Data: data, Count: uint32(len(data)), Stable: nfs3.FileSync}
			})
		},
	},
	{
		name:  "a storm of large writes",
		does:  "many connections write 1 MiB, 64 calls in flight on each, unstable",
		holds: "others are served",
		run: func(a *assault) {
			a.volume("prey", "256Mi")
			c, root := a.client("prey")
			file := a.create(c, root, "large", nfs3.Sattr{})
			data := pattern(6, 1<<20)
			a.storm(func(i int) (uint32, rpc.Args) {
				return nfs3.ProcWrite, &nfs3.WriteArgs{File: file, Offset: uint64(i%200) << 20, Data: data, Count: uint32(len(data))}
			})
		},
	},
	{
		name:  "listings of a large directory",
		does:  "READDIRPLUS of 20,000 files from random cookies, with the largest and with tiny counts, by an ordinary user",
		holds: "others are served",
		run: func(a *assault) {
			a.volume("prey", "1Gi")
			for i := range 20_000 {
				f, err := os.Create(a.path("prey", fmt.Sprint("listed-", i)))
				must(a, err)
				f.Close()
			}
			_, root := a.client("prey")
			a.storm(func(i int) (uint32, rpc.Args) {
				counts := []uint32{4 << 20, 1 << 20, 1, 300, 64 << 10}
				return nfs3.ProcReaddirplus, &nfs3.ReaddirplusArgs{Dir: root, Cookie: uint64(i*i) % (1 << (i % 63)), DirCount: counts[i%5], MaxCount: counts[i%5]}
			})
		},
	},
	{
		name:  "changes of one directory",
		does:  "creates, renames and removes in one directory, many at once as different users",
		holds: "others are served",
		also:  kinds{race},
		run: func(a *assault) {
			a.volume("prey", "256Mi")
			_, root := a.client("prey")
			a.storm(func(i int) (uint32, rpc.Args) {
				name := fmt.Sprint("c-", i%500)
				switch i % 3 {
				case 0:
					return nfs3.ProcCreate, &nfs3.CreateArgs{Where: where(root, name)}
				case 1:
					return nfs3.ProcRename, &nfs3.RenameArgs{From: where(root, fmt.Sprint("c-", (i+1)%500)), To: where(root, name)}
				}
				args := where(root, name)
				return nfs3.ProcRemove, &args
			})
		},
	},
	{
		name:  "files in a million pieces",
		does:  "writes every other block of files, then cuts and removes them",
		holds: "others are served",
		run: func(a *assault) {
			a.volume("prey", "1Gi")
			c, root := a.client("prey")
			pieces := a.many(8_000, 100_000)
			var files []nfs3.FH
			for i := range 4 {
				name := fmt.Sprint("pieces-", i)
				files = append(files, a.create(c, root, name, nfs3.Sattr{}))
				f, err := os.OpenFile(a.path("prey", name), os.O_WRONLY, 0)
				must(a, err)
				block := make([]byte, 4<<10)
				for j := range pieces {
					_, err = f.WriteAt(block, int64(j)*8<<10)
					must(a, err)
				}
				must(a, errors.Join(f.Sync(), f.Close()))
			}
			a.beside(func() {
				for i, file := range files {
					if i%2 == 0 {
						res, err := c.Setattr(a.ctx, nfs3.SetattrArgs{Object: file, Attr: size(0)})
						ok(a, "SETATTR", res.Status, err)
					}
					res, err := c.Remove(a.ctx, root, fmt.Sprint("pieces-", i))
					ok(a, "REMOVE", res.Status, err)
				}
			})
		},
	},
}

// storm makes calls over 8 connections from as many addresses, with 128 under way on
// each, by users of their own.
func (a *assault) storm(what func(i int) (uint32, rpc.Args)) {
	a.Helper()
	a.beside(func() {
		until := time.Now().Add(a.window)
		ctx, cancel := context.WithTimeout(a.ctx, 3*a.window+10*time.Second)
		defer cancel()
		var wg sync.WaitGroup
		var answered atomic.Int64
		for i := range 8 {
			conn := a.conn(i)
			context.AfterFunc(ctx, func() { conn.Close() })
			wg.Go(func() {
				_ = flood(conn, 128, func(j int) (rpc.Auth, uint32, rpc.Args, bool) {
					proc, args := what(8*j + i)
					return caller(uint32(1000*(j%3)), 0), proc, args, time.Now().Before(until)
				}, func(int, nfs3.Status) { answered.Add(1) })
			})
		}
		wg.Wait()
		a.note("%d calls", answered.Load())
	})
}

// deep makes nested directories on the disk, as a client has made them before, and
// tells the handle of the innermost one: another of the attacker's calls finds that, by
// moving it to where it can be looked up.
func (a *assault) deep(volume string, depth int) nfs3.FH {
	a.Helper()
	top, err := unix.Open(a.path(volume), unix.O_RDONLY|unix.O_DIRECTORY, 0)
	must(a, err)
	dir := top
	for range depth {
		must(a, unix.Mkdirat(dir, "d", 0o777))
		next, err := unix.Openat(dir, "d", unix.O_RDONLY|unix.O_DIRECTORY, 0)
		must(a, err)
		if dir != top {
			unix.Close(dir)
		}
		dir = next
	}
	// Its handle is learnt at the top, then it goes to the bottom.
	must(a, unix.Mkdirat(top, "innermost", 0o777))
	c, root := a.client(volume)
	res, err := c.Lookup(a.ctx, root, "innermost")
	ok(a, "LOOKUP", res.Status, err)
	must(a, unix.Renameat(top, "innermost", dir, "innermost"))
	unix.Close(dir)
	unix.Close(top)
	return res.Object
}

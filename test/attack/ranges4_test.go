//go:build attack

package attack_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/podnas/podnas/nfs/nfs3"
	"github.com/podnas/podnas/nfs/nfs4"
	"github.com/podnas/podnas/nfs/rpc"
	"github.com/podnas/podnas/test/conformance/nfstest"
)

// Calls of version 4.2 that take long by themselves, as many as a client may have in flight.
var range4Attacks = []attack{
	{
		name:  "COPYs of 2^63 bytes",
		does:  "copies a hole of a TiB, which no disk shares as it is asked for, to files of a volume of 64 MiB, 16 at a time from each of some nodes, and asks for more than there can be",
		holds: "another client never waits for long, and the volume takes no more than its size",
		on:    isNative,
		run: func(a *assault) {
			v3, root := a.mounted42(64)
			a.create(v3, root, "from", nfs3.Sattr{Size: nfs3.SetUint64{Set: true, Value: 1 << 40}})
			var full, refused atomic.Int64
			a.patiently(func() {
				for i := range a.many(4, 16) {
					c := a.client42(i)
					from, to := c.fh("prey", "from"), c.fh("prey", "0")
					until := time.Now().Add(a.window / 4)
					c.each(a.many(200, 2000), func(l *lane4, n int) {
						if time.Now().After(until) {
							return
						}
						count, at := uint64(1<<63), uint64(n)
						if n%4 == 3 {
							count, at = 1<<64-1, 1<<63-uint64(n)
						}
						ops := onFH(from).do(nfs4.OpSavefh, nil).do(nfs4.OpPutfh, &nfs4.PutfhArgs{FH: to}).
							do(nfs4.OpCopy, &nfs4.CopyArgs{SrcOffset: 1, DstOffset: at, Count: count, Consecutive: true, Synchronous: true})
						switch status, _ := l.sequenced(ops.n, ops.bytes); status {
						case nfs4.ErrNoSpc, nfs4.ErrDQuot:
							full.Add(1)
						case nfs4.ErrInval, nfs4.ErrFBig:
							refused.Add(1)
						case nfs4.OK, nfs4.ErrDelay:
						default:
							a.Errorf("COPY of %d bytes to %d: %v", count, at, status)
						}
					})
				}
			})
			a.note("%d times full, %d refused", full.Load(), refused.Load())
			a.stillFits(64)
		},
	},
	{
		name:  "large attributes",
		does:  "sets attributes of 64 KiB, and of what an ext4 takes, of hundreds of files, until a volume of 1 MiB is full, and goes on",
		holds: "another client never waits for long, and the volume takes no more than its size",
		on:    isNative,
		run: func(a *assault) {
			v3, root := a.mounted42(1)
			const files = 400
			for i := range files {
				a.create(v3, root, fmt.Sprint(i), nfs3.Sattr{})
			}
			large, small := make([]byte, 64<<10), make([]byte, 3000)
			var set, full atomic.Int64
			a.patiently(func() {
				for i := range a.many(4, 16) {
					c := a.client42(i)
					until := time.Now().Add(a.window / 4)
					c.each(a.many(1000, 8000), func(l *lane4, n int) {
						if time.Now().After(until) {
							return
						}
						value := large
						if n%2 == 0 {
							value = small
						}
						ops := on("prey", fmt.Sprint(n%files)).do(nfs4.OpSetxattr, &nfs4.SetxattrArgs{Name: fmt.Append(nil, n%5), Value: value})
						switch status, _ := l.sequenced(ops.n, ops.bytes); status {
						case nfs4.OK:
							set.Add(1)
						case nfs4.ErrNoSpc, nfs4.ErrDQuot:
							full.Add(1)
						default:
							a.Errorf("SETXATTR of %d bytes: %v", len(value), status)
						}
					})
				}
			})
			a.note("%d set, %d times no room", set.Load(), full.Load())
			if set.Load() == 0 || full.Load() == 0 {
				a.Error("the volume is never full")
			}
			a.stillFits(1)
		},
	},
	{
		name:  "ACLs of a thousand entries",
		does:  "sets ACLs of a thousand users, of a thousand entries for one, and of more than may be, and lists a directory with them",
		holds: "another client never waits for long; an ACL is set, or has no room",
		on:    isNative,
		run: func(a *assault) {
			v3, root := a.mounted42(64)
			const files = 20
			for i := range files {
				a.create(v3, root, fmt.Sprint(i), nfs3.Sattr{})
			}
			entry := func(who string) nfs4.ACE {
				return nfs4.ACE{Type: nfs4.ACEAllowed, Mask: nfs4.ACEReadData, Who: []byte(who)}
			}
			acls := [][]nfs4.ACE{slices.Repeat([]nfs4.ACE{entry("5")}, 1000), slices.Repeat([]nfs4.ACE{entry("5")}, 4000), nil, nil}
			for i := range 1000 {
				acls[2] = append(acls[2], entry(fmt.Sprint(1000+i)))
			}
			acls[3] = acls[2][:400]
			var set, refused atomic.Int64
			a.patiently(func() {
				for i := range a.many(4, 16) {
					c := a.client42(i)
					until := time.Now().Add(a.window / 4)
					c.each(a.many(400, 4000), func(l *lane4, n int) {
						if time.Now().After(until) {
							return
						}
						args := rpc.Args(&nfs4.SetattrArgs{Attr: nfs4.Sattr{Mask: nfs4.BitmapOf(nfs4.AttrACL), ACL: acls[n%len(acls)]}})
						ops := on("prey", fmt.Sprint(n%files)).do(nfs4.OpSetattr, args)
						if n%8 == 7 {
							ops = on("prey").do(nfs4.OpReaddir, &nfs4.ReaddirArgs{DirCount: 1 << 20, MaxCount: 1 << 20, Request: nfs4.BitmapOf(nfs4.AttrACL)})
						}
						switch status, _ := l.sequenced(ops.n, ops.bytes); status {
						case nfs4.OK:
							set.Add(1)
						case nfs4.ErrNoSpc, nfs4.ErrDQuot, nfs4.ErrFBig, nfs4.ErrBadXDR:
							refused.Add(1)
						default:
							a.Errorf("%d: %v", n%8, status)
						}
					})
				}
			})
			a.note("%d set or listed, %d had no room", set.Load(), refused.Load())
			if set.Load() == 0 || refused.Load() == 0 {
				a.Error("there is no limit")
			}
		},
	},
}

// mounted42 makes the volume, of some MiB, with a file, and mounts it with version 3.
func (a *assault) mounted42(mib int) (*nfstest.Client, nfs3.FH) {
	a.Helper()
	a.volume("prey", fmt.Sprint(mib, "Mi"))
	c, root := a.client("prey")
	a.create(c, root, "0", nfs3.Sattr{})
	return c, root
}

// client42 is a client of version 4.2 with a session from the attacker's nth address.
func (a *assault) client42(n int) *client4 {
	a.Helper()
	c := a.client4(n)
	c.in42 = true
	if !c.introduce(fmt.Sprint("4.2 ", n)) || !c.createSession() {
		a.Fatalf("client %d gets no session", n)
	}
	return c
}

// stillFits checks what a volume of some MiB takes on the disk.
func (a *assault) stillFits(size int64) {
	a.Helper()
	used := int64(0)
	must(a, filepath.WalkDir(a.path("prey"), func(path string, _ os.DirEntry, err error) error {
		var st syscall.Stat_t
		if err == nil {
			err = syscall.Lstat(path, &st)
		}
		used += st.Blocks * 512
		return err
	}))
	most := size << 20 * 5 / 4 // the blocks of extents and of directories are counted later
	if a.fs == "xfs" {
		most += size << 20 // an open file has as much again ahead of its end
	}
	if used < size<<20*3/4 || used > most {
		a.Errorf("%s are used in a volume of %d MiB, which was filled", mib(used), size)
	}
	a.note("%s used", mib(used))
}

package nfstest4

import (
	"fmt"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/podnas/podnas/nfs/nfs3"
	"github.com/podnas/podnas/nfs/nfs4"
	"github.com/podnas/podnas/test/conformance/nfstest"
)

// fragmented writes each second block of a file, so that each is an extent of its own, and returns where the last one is.
func (e *env) fragmented(c *client, fh nfs4.FH, id nfs4.Stateid, extents int) (last uint64) {
	e.Helper()
	const block, atOnce = 4 << 10, 12
	for i := 0; i < extents; i += atOnce {
		ops := []op{putfh(fh)}
		for j := i; j < min(i+atOnce, extents); j++ {
			last = uint64(j) * 2 * block
			ops = append(ops, write(id, last, stamp(0)))
		}
		if i%(100*atOnce) == 0 || i+atOnce >= extents { // btrfs keeps much room for what is not on the disk
			ops = append(ops, commit(0, 0))
		}
		c.ok(ops...)
	}
	return last
}

// reads are the data of a reply's READs.
func reads(r *reply) (data []string) {
	for _, res := range r.res {
		if read, ok := res.(*nfs4.ReadRes); ok {
			data = append(data, string(read.Data))
		}
	}
	return data
}

func stamp(n int) string { return fmt.Sprintf("%08d", n) }

// Section 15.13.3: other operations see all of it or nothing, however many extents the file has, and files beside it are not
// kept waiting.
func testCloneIsOne(e *env) {
	c, user, neighbour := e.in42(), e.in42(), e.in42()
	src, from := e.opened(c, "from", "")
	dst, to := e.opened(c, "to", "content")
	if r := c.do(putfh(src), savefh(), putfh(dst), clone(from, to, 0, 0, 0)); r.status == nfs4.ErrNotSupp {
		e.Skip("named skip: CLONE: the file system of the volume shares no blocks")
	}
	last := e.fragmented(c, src, from, 9000)
	c.ok(putfh(dst), write(to, 0, stamp(0)), write(to, last, stamp(0)))
	_, writes := user.open(e.dir, opening{name: "from"})
	_, only := user.open(e.dir, opening{name: "to", access: nfs4.ShareAccessRead})
	user.ok(putfh(src), write(writes, 0, stamp(1)), write(writes, last, stamp(1)))

	done := make(chan struct{})
	var users sync.WaitGroup
	users.Go(func() { // its WRITEs come one after the other
		for i := 2; ; i++ {
			select {
			case <-done:
				return
			default:
			}
			r, err := user.try(&call{minor: 2, ops: []op{
				user.next(), putfh(dst), read(only, 0, 8), putfh(src), write(writes, 0, stamp(i)), write(writes, last, stamp(i)), putfh(dst), read(only, last, 8),
			}})
			if err != nil || r.status != nfs4.OK {
				e.Errorf("while it is cloned: %v, %+v", err, r)
				return
			}
			if found := reads(r); found[0] != stamp(0) && found[1] == stamp(0) {
				e.Errorf("READ finds that it begins and ends with %q", found)
			}
		}
	})
	longest, calls := time.Duration(0), 0
	users.Go(func() {
		for {
			select {
			case <-done:
				return
			default:
			}
			began := time.Now()
			r, err := neighbour.try(&call{minor: 2, ops: []op{
				neighbour.next(), putfh(e.dir), open(neighbour.openArgs(opening{name: "n", create: true})), write(nfs4.CurrentStateid(), 0, "data"),
				closeOp(nfs4.CurrentStateid()), putfh(dst), getattrs(nfs4.AttrSize), putfh(e.dir), remove("n"),
			}})
			if err != nil || r.status != nfs4.OK {
				e.Errorf("a neighbour: %v, %+v", err, r)
				return
			}
			longest, calls = max(longest, time.Since(began)), calls+1
		}
	})
	began := time.Now()
	c.ok(putfh(src), savefh(), putfh(dst), clone(from, to, 0, 0, 0))
	took := time.Since(began)
	close(done)
	users.Wait()
	e.Logf("CLONE of 9,000 extents took %v; %d calls of a neighbour meanwhile, %v at most", took, calls, longest)
	found := reads(c.ok(putfh(dst), read(to, 0, 8), read(to, last, 8)))
	begins, err := strconv.Atoi(found[0])
	ends, err2 := strconv.Atoi(found[1])
	if err != nil || err2 != nil || ends != begins && ends != begins-1 {
		e.Errorf("the copy begins and ends with %q, which was never so: %v %v", found, err, err2)
	}
}

// Section 15.13.3: who truncates one of the files does so before a CLONE or after it.
func testCloneTruncated(e *env) {
	c, user := e.in42(), e.in42()
	src, from := e.opened(c, "from", "")
	dst, to := e.opened(c, "to", "content")
	if r := c.do(putfh(src), savefh(), putfh(dst), clone(from, to, 0, 0, 0)); r.status == nfs4.ErrNotSupp {
		e.Skip("named skip: CLONE: the file system of the volume shares no blocks")
	}
	type truncation struct {
		way, name string
		do        func(name string)
	}
	byOpen := func(name string) {
		args := user.openArgs(opening{name: name, create: true})
		args.Attr = size(0)
		user.ok(putfh(e.dir), open(args), closeOp(nfs4.CurrentStateid()))
	}
	byCreate := func(name string) {
		e.version3(func(v3 *nfstest.Client) (nfs3.Status, error) {
			res, err := v3.Create(e.Context(), truncating3(e, name))
			return res.Status, err
		})
	}
	truncations := []truncation{{"OPEN", "to", byOpen}, {"CREATE of version 3", "to", byCreate}, {"CREATE of version 3", "from", byCreate}}
	if e.target.MountAddr == "" {
		truncations = []truncation{{"OPEN", "to", byOpen}, {"OPEN", "from", byOpen}}
	}
	last := e.fragmented(c, src, from, 9000)
	for _, by := range truncations {
		e.Run(by.way+" of "+by.name, func(t *testing.T) {
			c := c.with(t)
			c.ok(putfh(dst), setattr(to, size(0)))
			c.ok(putfh(src), write(from, 0, stamp(1)), write(from, last, stamp(1)))
			done := make(chan *reply, 1)
			go func() {
				r, err := c.try(&call{minor: 2, ops: []op{c.next(), putfh(src), savefh(), putfh(dst), clone(from, to, 0, 0, 0)}})
				if err != nil {
					t.Error(err)
				}
				done <- r
			}()
			time.Sleep(5 * time.Millisecond) // most often it has begun
			by.do(by.name)
			r := <-done
			if r == nil || r.status != nfs4.OK {
				t.Fatalf("CLONE: %+v", r)
			}
			copied := c.attr([]op{putfh(dst)}, nfs4.AttrSize).Size
			if copied == 0 { // it was truncated after that, or what it was made of was before
				return
			}
			if got := reads(c.ok(putfh(dst), read(to, 0, 8), read(to, last, 8))); copied != last+8 || got[0] != stamp(1) || got[1] != stamp(1) {
				t.Errorf("the copy has %d bytes, and begins and ends with %q", copied, got)
			}
		})
	}
}

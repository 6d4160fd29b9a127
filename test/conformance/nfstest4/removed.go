package nfstest4

import (
	"errors"
	"fmt"

	"github.com/podnas/podnas/nfs/nfs3"
	"github.com/podnas/podnas/nfs/nfs4"
	"github.com/podnas/podnas/test/conformance/nfstest"
)

// removal is a way in which a file that is open loses its last name.
type removal struct {
	name string
	do   func(e *env, other *client, name string)
}

var removals = []removal{
	{"REMOVE", func(e *env, _ *client, name string) { e.ok(putfh(e.dir), remove(name)) }},
	{"REMOVE by another client", func(e *env, other *client, name string) { other.ok(putfh(e.dir), remove(name)) }},
	{"RENAME over it", func(e *env, _ *client, name string) {
		e.ok(putfh(e.dir), symlink("new "+name, "x"), putfh(e.dir), savefh(), rename("new "+name, name))
	}},
	{"RENAME over it by another client", func(e *env, other *client, name string) {
		other.ok(putfh(e.dir), symlink("new "+name, "x"), putfh(e.dir), savefh(), rename("new "+name, name))
	}},
	{"REMOVE of both its names", func(e *env, other *client, name string) {
		e.ok(putfh(e.dir), lookup(name), savefh(), putfh(e.dir), link("link "+name))
		e.ok(putfh(e.dir), remove(name))
		other.ok(putfh(e.dir), remove("link "+name))
	}},
	{"RENAME over one of its names, and REMOVE", func(e *env, _ *client, name string) {
		e.ok(putfh(e.dir), lookup(name), savefh(), putfh(e.dir), link("link "+name), putfh(e.dir), symlink("new "+name, "x"))
		e.ok(putfh(e.dir), savefh(), rename("new "+name, "link "+name), putfh(e.dir), remove(name))
	}},
	{"REMOVE after RENAME", func(e *env, _ *client, name string) {
		e.ok(putfh(e.dir), savefh(), rename(name, "moved "+name), remove("moved "+name))
	}},
	{"version 3: REMOVE", func(e *env, _ *client, name string) {
		e.version3(func(v3 *nfstest.Client) (nfs3.Status, error) {
			res, err := v3.Remove(e.Context(), nfs3.FH(e.dir), name)
			return res.Status, err
		})
	}},
	{"version 3: RENAME over it", func(e *env, _ *client, name string) {
		e.ok(putfh(e.dir), symlink("new "+name, "x"))
		e.version3(func(v3 *nfstest.Client) (nfs3.Status, error) {
			res, err := v3.Rename(e.Context(), nfs3.FH(e.dir), "new "+name, nfs3.FH(e.dir), name)
			return res.Status, err
		})
	}},
}

// version3 makes a call of version 3.
func (e *env) version3(do func(v3 *nfstest.Client) (nfs3.Status, error)) {
	e.Helper()
	v3, err := nfstest.Dial(e.Context(), e.target.Addr, e.target.MountAddr)
	if err != nil {
		e.Fatal(err)
	}
	defer v3.Close()
	if status, err := do(v3); err != nil || status != nfs3.OK {
		e.Fatalf("version 3: %v, %v", status, err)
	}
}

// removedFile is a file that was removed, and that the client has open.
type removedFile struct {
	way string
	fh  nfs4.FH
	id  nfs4.Stateid
}

// openFiles opens a file for each way in which it can be removed, and writes to it.
func (e *env) openFiles() (files []removedFile) {
	e.Helper()
	for i, way := range removals {
		fh, id := e.client.open(e.dir, opening{name: fmt.Sprint("f", i), create: true})
		e.ok(putfh(fh), write(id, 0, way.name))
		files = append(files, removedFile{way.name, fh, id})
	}
	return files
}

// removeFiles removes the files of openFiles.
func (e *env) removeFiles(other *client) {
	e.Helper()
	for i, way := range removals {
		way.do(e, other, fmt.Sprint("f", i))
	}
}

// usable checks that a removed file can be used as before, by its stateid, and is gone with the last
// CLOSE.
func (e *env) usable(f *removedFile) {
	e.Helper()
	if r := e.do(putfh(f.fh), read(f.id, 0, 100)); r.status != nfs4.OK {
		e.Errorf("%s: READ says %v", f.way, r.status)
		return
	} else if res := get[nfs4.ReadRes](e, r); string(res.Data) != f.way {
		e.Errorf("%s: read %q", f.way, res.Data)
	}
	e.ok(putfh(f.fh), write(f.id, 0, "WROTE"), commit(0, 0), setattr(f.id, size(4)), access(nfs4.AccessRead))
	if res := get[nfs4.ReadRes](e, e.ok(putfh(f.fh), read(f.id, 0, 100))); string(res.Data) != "WROT" {
		e.Errorf("%s: read %q of what was written", f.way, res.Data)
	}
	if a := e.attr([]op{putfh(f.fh)}, nfs4.AttrNumLinks, nfs4.AttrSize); a.NumLinks != 0 || a.Size != 4 {
		e.Errorf("%s: %d links, size %d", f.way, a.NumLinks, a.Size)
	}
	// What is removed does not come back.
	e.refused([]op{putfh(f.fh), savefh(), putfh(e.dir), link("back")}, nfs4.ErrNoEnt)
	e.refused([]op{putfh(f.fh), lookupp()}, nfs4.ErrNotDir)
	e.version3(func(v3 *nfstest.Client) (nfs3.Status, error) {
		res, err := v3.Getattr(e.Context(), nfs3.FH(f.fh))
		if res.Status != nfs3.ErrStale {
			e.Errorf("%s: version 3 gets %v", f.way, res.Status)
		}
		return nfs3.OK, err
	})
	again := e.openArgs(opening{owner: "again"})
	again.Claim = nfs4.ClaimFH
	id := get[nfs4.OpenRes](e, e.ok(putfh(f.fh), open(again))).Stateid
	e.ok(putfh(f.fh), closeOp(f.id))
	e.ok(putfh(f.fh), read(id, 0, 1))
	e.ok(putfh(f.fh), closeOp(id))
	if r := e.do(putfh(f.fh), getattrs(nfs4.AttrType)); r.status != nfs4.ErrStale {
		e.Errorf("%s: after the last CLOSE: %v", f.way, r.status)
	}
}

// A file that was removed while it is open stays, however it was removed.
func testHandoverRemoved(e *env) {
	other := e.another()
	files := e.openFiles()
	e.removeFiles(other)
	e.handover()
	e.handover()
	for i := range files {
		e.usable(&files[i])
	}
}

// After a crash its client reclaims it by its handle, as any other; also if it is removed in the
// grace period, when the server does not know yet who has it open.
func testReclaimRemoved(e *env) {
	other := e.another()
	removed := e.openFiles()
	e.removeFiles(other)
	later := make([]removedFile, 0, len(removals))
	for i, way := range removals {
		fh, id := e.client.open(e.dir, opening{name: fmt.Sprint("g", i), create: true})
		e.ok(putfh(fh), write(id, 0, way.name))
		later = append(later, removedFile{way.name + " in the grace period", fh, id})
	}
	forgotten := e.fh(putfh(e.dir), open(e.openArgs(opening{name: "forgotten", create: true})))
	e.ok(putfh(e.dir), remove("forgotten"))
	e.restart()
	e.lost()
	other.lost()
	for i, way := range removals {
		way.do(e, other, fmt.Sprint("g", i))
	}
	for _, files := range [][]removedFile{removed, later} {
		for i := range files {
			f := &files[i]
			r := e.do(putfh(f.fh), open(e.previous(opening{})))
			if r.status != nfs4.OK {
				e.Fatalf("%s: OPEN says %v", f.way, r.status)
			}
			f.id = get[nfs4.OpenRes](e, r).Stateid
		}
	}
	e.ok(reclaimComplete(false))
	other.ok(reclaimComplete(false))
	for i := range removed {
		e.usable(&removed[i])
		later[i].way = removals[i].name // which it has in it
		e.usable(&later[i])
	}
	if r := e.do(putfh(forgotten), getattrs(nfs4.AttrType)); r.status != nfs4.ErrStale {
		e.Errorf("what nobody has reclaimed: %v", r.status)
	}
}

// Section 18.16.3: OPEN by a name is of the file that the name leads to, however often another client
// gives the name to another file meanwhile, and the last one is gone.
func testOpenWhileReplaced(e *env) {
	e.file("f", "")
	e.whileOther(200, func(other *client) []op {
		args := other.openArgs(opening{name: "new", create: true})
		return []op{putfh(e.dir), open(args), closeOp(nfs4.CurrentStateid()), putfh(e.dir), savefh(), rename("new", "f")}
	}, func() {
		e.ok(putfh(e.dir), open(e.openArgs(opening{name: "f"})), getattrs(nfs4.AttrSize), closeOp(nfs4.CurrentStateid()))
	})
}

// OPEN, UNCHECKED, makes what is not there: open(2) with O_CREAT does not know ENOENT.
func testOpenWhileItGoes(e *env) {
	e.whileOther(200, func(other *client) []op {
		args := other.openArgs(opening{name: "f", create: true})
		return []op{putfh(e.dir), open(args), closeOp(nfs4.CurrentStateid()), putfh(e.dir), remove("f")}
	}, func() {
		e.ok(putfh(e.dir), open(e.openArgs(opening{name: "f", create: true})), closeOp(nfs4.CurrentStateid()))
	})
}

// whileOther does something again and again while another client makes a call so many times.
func (e *env) whileOther(times int, ops func(other *client) []op, do func()) {
	e.Helper()
	other := e.another()
	done := make(chan error, 1)
	go func() {
		done <- func() error {
			for range times {
				r, err := other.try(&call{minor: other.minor, ops: append([]op{other.next()}, ops(other)...)})
				if err != nil {
					return err
				}
				if r.status != nfs4.OK {
					return errors.New(r.status.String())
				}
			}
			return nil
		}()
	}()
	for {
		select {
		case err := <-done:
			if err != nil {
				e.Errorf("the other client: %v", err)
			}
			return
		default:
			do()
		}
	}
}

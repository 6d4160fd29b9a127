package nfstest

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/podnas/podnas/nfs/mount3"
	"github.com/podnas/podnas/nfs/nfs3"
)

// env is a test's environment: a client, and a directory of its own, empty at the
// start. Its methods end the test if the server doesn't answer, or the reply can't
// be decoded.
type env struct {
	*testing.T
	target  Target
	client  *Client
	root    nfs3.FH // of the export
	dir     nfs3.FH // of the test's own directory
	dirName string

	skipped *bool // whether this test has skipped a wrong status
}

func newEnv(t *testing.T, target Target) *env {
	t.Helper()
	e := &env{T: t, target: target, skipped: new(bool)}
	e.connect()
	e.dirName = fmt.Sprintf("nfstest-%d", time.Now().UnixNano())
	e.dir = e.mkdir(e.root, e.dirName)
	t.Cleanup(func() {
		defer e.client.Close()
		// A failed server may have moved files here that are not the test's, so
		// the directory is left for a person to inspect.
		if t.Failed() {
			t.Logf("%s is left in the export", e.dirName)
			return
		}
		// The test's own context has ended.
		ctx, cancel := context.WithTimeout(context.Background(), callTimeout)
		defer cancel()
		if err := removeTree(ctx, e.client, e.root, e.dirName); err != nil {
			t.Logf("clean up: %v", err)
		}
	})
	return e
}

// connect dials and mounts. After a restart it replaces the lost connection.
func (e *env) connect() {
	e.Helper()
	if e.client != nil {
		e.client.Close()
	}
	e.client = e.dial()
	e.root = e.mount(e.client)
}

// dial returns a client with connections of its own.
func (e *env) dial() *Client {
	e.Helper()
	c, err := Dial(e.Context(), e.target.Addr, e.target.MountAddr)
	if err != nil {
		e.Fatal(err)
	}
	_, c.lenient = e.target.Lacks[FeatureExactResults]
	return c
}

func (e *env) mount(c *Client) nfs3.FH {
	e.Helper()
	res, err := c.Mount(e.Context(), e.target.Export)
	if err != nil || res.Status != mount3.OK {
		e.Fatalf("MNT %s: %v, %v", e.target.Export, res.Status, err)
	}
	return res.Handle
}

// dialRaw returns a connection for tests that write records by hand. It is
// closed when the test ends, and its reads and writes time out.
func (e *env) dialRaw() net.Conn {
	e.Helper()
	conn, err := net.Dial("tcp", e.target.Addr)
	if err != nil {
		e.Fatal(err)
	}
	e.Cleanup(func() { conn.Close() })
	if err := conn.SetDeadline(time.Now().Add(callTimeout)); err != nil {
		e.Fatal(err)
	}
	return conn
}

// as returns the environment for another user.
func (e *env) as(uid, gid uint32, groups ...uint32) *env {
	other := *e
	other.client = e.client.As(uid, gid, groups...)
	return &other
}

// path returns the path on the disk of an entry of the test's directory.
func (e *env) path(name string) string {
	return filepath.Join(e.target.Dir, e.dirName, name)
}

// ok ends the test unless a call succeeded.
func (e *env) ok(what string, status nfs3.Status) {
	e.Helper()
	if status != nfs3.OK {
		e.Fatalf("%s: %v", what, status)
	}
}

// refused checks that a call failed with one of the given statuses. If the target
// lacks FeatureErrorCodes any failure passes, and a wrong one is reported as
// skipped: the first of a test by a subtest, the others by a line in its log.
func (e *env) refused(what string, status nfs3.Status, want ...nfs3.Status) {
	e.Helper()
	switch reason, lacks := e.target.Lacks[FeatureErrorCodes]; {
	case status == nfs3.OK:
		e.Errorf("%s succeeded, want %v", what, want)
	case slices.Contains(want, status):
	case lacks && *e.skipped:
		e.Logf("named skip: %s: %s: %v, want %v", FeatureErrorCodes, what, status, want)
	case lacks:
		*e.skipped = true
		e.Run("status", func(t *testing.T) {
			t.Skipf("named skip: %s: %s (%s: %v, want %v)", FeatureErrorCodes, reason, what, status, want)
		})
	default:
		e.Errorf("%s: %v, want %v", what, status, want)
	}
}

// answered ends the test if a call had no proper reply.
func (e *env) answered(what string, err error) {
	e.Helper()
	if err != nil {
		e.Fatalf("%s: %v", what, err)
	}
}

// create makes a new empty file of mode 0644.
func (e *env) create(dir nfs3.FH, name string) nfs3.FH {
	e.Helper()
	res := e.createRes(nfs3.CreateArgs{Where: *where(dir, name), Mode: nfs3.Guarded, Attr: mode(0o644)})
	e.ok(fmt.Sprintf("CREATE %q", name), res.Status)
	return e.made(dir, name, res)
}

// mkdir makes a directory of mode 0755.
func (e *env) mkdir(dir nfs3.FH, name string) nfs3.FH {
	e.Helper()
	res := e.mkdirRes(dir, name)
	e.ok(fmt.Sprintf("MKDIR %q", name), res.Status)
	return e.made(dir, name, res)
}

// symlink makes a symbolic link.
func (e *env) symlink(dir nfs3.FH, name, target string) nfs3.FH {
	e.Helper()
	res := e.symlinkRes(dir, name, target)
	e.ok(fmt.Sprintf("SYMLINK %q", name), res.Status)
	return e.made(dir, name, res)
}

// made returns the handle in the reply of a call that creates something, or looks
// it up: a server may omit it.
func (e *env) made(dir nfs3.FH, name string, res nfs3.CreateRes) nfs3.FH {
	e.Helper()
	if res.Object != nil {
		return res.Object
	}
	return e.handle(dir, name)
}

// handle looks up a name that must exist.
func (e *env) handle(dir nfs3.FH, name string) nfs3.FH {
	e.Helper()
	res := e.lookup(dir, name)
	e.ok(fmt.Sprintf("LOOKUP %q", name), res.Status)
	return res.Object
}

// gone checks that a name doesn't exist.
func (e *env) gone(dir nfs3.FH, name string) {
	e.Helper()
	e.refused(fmt.Sprintf("LOOKUP of %q", name), e.lookup(dir, name).Status, nfs3.ErrNoEnt)
}

// attr is GETATTR of an object that must exist.
func (e *env) attr(fh nfs3.FH) nfs3.Fattr {
	e.Helper()
	res := e.getattr(fh)
	e.ok("GETATTR", res.Status)
	return res.Attr
}

// setattr is SETATTR without a guard.
func (e *env) setattr(fh nfs3.FH, attr nfs3.Sattr) nfs3.Status {
	e.Helper()
	return e.setattrRes(nfs3.SetattrArgs{Object: fh, Attr: attr}).Status
}

// write writes all of data.
func (e *env) write(fh nfs3.FH, offset uint64, data []byte) {
	e.Helper()
	for len(data) > 0 {
		res := e.writeRes(fh, offset, nfs3.Unstable, data)
		e.ok("WRITE", res.Status)
		if res.Count == 0 || int(res.Count) > len(data) {
			e.Fatalf("WRITE of %d bytes at %d wrote %d", len(data), offset, res.Count)
		}
		offset += uint64(res.Count)
		data = data[res.Count:]
	}
}

// read reads n bytes, or up to the end of the file.
func (e *env) read(fh nfs3.FH, offset uint64, n int) []byte {
	e.Helper()
	var data []byte
	for {
		res := e.readRes(fh, offset+uint64(len(data)), uint32(n-len(data)))
		e.ok("READ", res.Status)
		if int(res.Count) != len(res.Data) || len(res.Data) > n-len(data) {
			e.Fatalf("READ of %d bytes: count %d, %d bytes of data", n-len(data), res.Count, len(res.Data))
		}
		data = append(data, res.Data...)
		if res.EOF || len(data) == n {
			return data
		}
		if len(res.Data) == 0 {
			e.Fatalf("READ at %d: no data, and not the end of the file", offset+uint64(len(data)))
		}
	}
}

// content checks a file's content, and that nothing follows it.
func (e *env) content(fh nfs3.FH, want []byte) {
	e.Helper()
	if got := e.read(fh, 0, len(want)+100); !bytes.Equal(got, want) {
		e.Errorf("the file holds %s, want %s", abbreviate(got), abbreviate(want))
	}
	if size := e.attr(fh).Size; size != uint64(len(want)) {
		e.Errorf("the file's size is %d, want %d", size, len(want))
	}
}

func abbreviate(b []byte) string {
	if len(b) > 64 {
		return fmt.Sprintf("%q... (%d bytes)", b[:64], len(b))
	}
	return fmt.Sprintf("%q", b)
}

// names lists a directory without "." and "..", sorted.
func (e *env) names(dir nfs3.FH) []string {
	e.Helper()
	l := listing{page: e.readdirPage(dir, 8192)}
	for !l.eof {
		e.next(&l)
	}
	slices.Sort(l.names)
	return l.names
}

// mode is an Sattr that sets the mode.
func mode(m uint32) nfs3.Sattr {
	return nfs3.Sattr{Mode: nfs3.SetUint32{Set: true, Value: m}}
}

// size is an Sattr that sets the size.
func size(n uint64) nfs3.Sattr {
	return nfs3.Sattr{Size: nfs3.SetUint64{Set: true, Value: n}}
}

// pattern returns n bytes that depend on seed and offset.
func pattern(seed, n int) []byte {
	b := make([]byte, n)
	x := uint32(seed)*2654435761 + 1
	for i := range b {
		x = x*1664525 + 1013904223
		b[i] = byte(x >> 24)
	}
	return b
}

// removeTree removes a name and everything in it.
func removeTree(ctx context.Context, c *Client, dir nfs3.FH, name string) error {
	found, err := c.Lookup(ctx, dir, name)
	if err != nil {
		return err
	}
	if found.Status == nfs3.ErrNoEnt {
		return nil
	}
	attr, err := c.Getattr(ctx, found.Object)
	if err != nil {
		return err
	}
	if attr.Attr.Type != nfs3.TypeDir {
		res, err := c.Remove(ctx, dir, name)
		if err == nil && res.Status != nfs3.OK {
			err = fmt.Errorf("REMOVE %q: %v", name, res.Status)
		}
		return err
	}
	// A removal may invalidate cookies, so each page read is the first one,
	// until it has no name to remove.
	for {
		res, err := c.Readdir(ctx, nfs3.ReaddirArgs{Dir: found.Object, Count: 64 << 10})
		if err != nil {
			return err
		}
		removed := false
		for _, entry := range res.Entries {
			if n := string(entry.Name); n != "." && n != ".." {
				if err := removeTree(ctx, c, found.Object, n); err != nil {
					return err
				}
				removed = true
			}
		}
		if !removed {
			break
		}
	}
	res, err := c.Rmdir(ctx, dir, name)
	if err == nil && res.Status != nfs3.OK {
		err = fmt.Errorf("RMDIR %q: %v", name, res.Status)
	}
	return err
}

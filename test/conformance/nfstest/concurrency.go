package nfstest

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"sync"

	"github.com/podnas/podnas/nfs/nfs3"
)

var concurrencyTests = []test{
	{"own files", testOwnFiles},
	{"one file", testOneFile},
	{"one directory", testOneDirectory},
	{"one name", testOneName},
	{"a name that comes and goes", testComesAndGoes},
	{"own changes", testOwnChanges},
}

const clients = 6

// inParallel runs f once for each of several clients with their own connections.
// f must not end the test, but return an error.
func (e *env) inParallel(f func(i int, c *Client) error) {
	e.Helper()
	var wg sync.WaitGroup
	for i := range clients {
		c := e.dial()
		wg.Go(func() {
			defer c.Close()
			if err := f(i, c); err != nil {
				e.Errorf("client %d: %v", i, err)
			}
		})
	}
	wg.Wait()
}

// createAll makes files of mode 0644. Some are made at a time, so that a server can sync
// them together: most of what making a file takes is that.
func (e *env) createAll(dir nfs3.FH, names []string) []nfs3.FH {
	e.Helper()
	const atATime = 16
	made := make([]nfs3.CreateRes, len(names))
	errs := make([]error, len(names))
	var wg sync.WaitGroup
	for first := range atATime {
		wg.Go(func() {
			for i := first; i < len(names); i += atATime {
				args := nfs3.CreateArgs{Where: *where(dir, names[i]), Mode: nfs3.Guarded, Attr: mode(0o644)}
				made[i], errs[i] = e.client.Create(e.Context(), args)
			}
		})
	}
	wg.Wait()
	handles := make([]nfs3.FH, len(names))
	for i, name := range names {
		e.answered("CREATE", errs[i])
		e.ok(fmt.Sprintf("CREATE %q", name), made[i].Status)
		handles[i] = e.made(dir, name, made[i])
	}
	return handles
}

// writeAll and readAll are for concurrent clients, which can't end the test. Both
// accept any count that the server does at once.
func (e *env) writeAll(c *Client, fh nfs3.FH, offset uint64, data []byte) error {
	for len(data) > 0 {
		res, err := c.Write(e.Context(), fh, offset, nfs3.Unstable, data)
		if err != nil || res.Status != nfs3.OK || res.Count == 0 || int(res.Count) > len(data) {
			return fmt.Errorf("WRITE of %d bytes at %d: %v, count %d, %w", len(data), offset, res.Status, res.Count, err)
		}
		offset += uint64(res.Count)
		data = data[res.Count:]
	}
	return nil
}

func (e *env) readAll(c *Client, fh nfs3.FH, offset uint64, n int) ([]byte, error) {
	var data []byte
	for len(data) < n {
		res, err := c.Read(e.Context(), fh, offset+uint64(len(data)), uint32(n-len(data)))
		if err != nil || res.Status != nfs3.OK || len(res.Data) == 0 {
			return nil, fmt.Errorf("READ at %d: %v, %d bytes, %w", offset+uint64(len(data)), res.Status, len(res.Data), err)
		}
		data = append(data, res.Data...)
	}
	return data, nil
}

func testOwnFiles(e *env) {
	const blocks, size = 40, 10_000
	e.inParallel(func(i int, c *Client) error {
		made, err := c.Create(e.Context(), nfs3.CreateArgs{Where: *where(e.dir, fmt.Sprint("file", i)), Mode: nfs3.Guarded})
		if err != nil || made.Status != nfs3.OK {
			return fmt.Errorf("CREATE: %v, %w", made.Status, err)
		}
		found, err := c.Lookup(e.Context(), e.dir, fmt.Sprint("file", i))
		if err != nil || found.Status != nfs3.OK {
			return fmt.Errorf("LOOKUP: %v, %w", found.Status, err)
		}
		for b := range blocks {
			if err := e.writeAll(c, found.Object, uint64(b*size), pattern(i*blocks+b, size)); err != nil {
				return err
			}
		}
		for b := range blocks {
			got, err := e.readAll(c, found.Object, uint64(b*size), size)
			if err != nil {
				return err
			}
			if !bytes.Equal(got, pattern(i*blocks+b, size)) {
				return fmt.Errorf("block %d is not what was written", b)
			}
		}
		return nil
	})
}

// Writes of several clients to one file don't affect one another, though their
// blocks share pages.
func testOneFile(e *env) {
	const rounds, size = 30, 1001
	file := e.create(e.dir, "file")
	e.inParallel(func(i int, c *Client) error {
		for r := range rounds {
			n := r*clients + i
			if err := e.writeAll(c, file, uint64(n*size), pattern(n, size)); err != nil {
				return err
			}
		}
		return nil
	})
	var want []byte
	for n := range rounds * clients {
		want = append(want, pattern(n, size)...)
	}
	e.content(file, want)
}

func testOneDirectory(e *env) {
	const rounds = 40
	e.inParallel(func(i int, c *Client) error {
		for r := range rounds {
			name := fmt.Sprintf("%d-%d", i, r)
			made, err := c.Create(e.Context(), nfs3.CreateArgs{Where: *where(e.dir, name), Mode: nfs3.Guarded})
			if err != nil || made.Status != nfs3.OK {
				return fmt.Errorf("CREATE: %v, %w", made.Status, err)
			}
			renamed, err := c.Rename(e.Context(), e.dir, name, e.dir, "renamed-"+name)
			if err != nil || renamed.Status != nfs3.OK {
				return fmt.Errorf("RENAME: %v, %w", renamed.Status, err)
			}
			if r%2 == 0 {
				removed, err := c.Remove(e.Context(), e.dir, "renamed-"+name)
				if err != nil || removed.Status != nfs3.OK {
					return fmt.Errorf("REMOVE: %v, %w", removed.Status, err)
				}
			}
		}
		return nil
	})
	var want []string
	for i := range clients {
		for r := 1; r < rounds; r += 2 {
			want = append(want, fmt.Sprintf("renamed-%d-%d", i, r))
		}
	}
	slices.Sort(want)
	e.sameNames("the directory", e.names(e.dir), want)
}

// If several clients create the same name, one wins.
func testOneName(e *env) {
	for r := range 20 {
		name := fmt.Sprint("name", r)
		var mu sync.Mutex
		won := 0
		var lost []nfs3.Status
		e.inParallel(func(_ int, c *Client) error {
			res, err := c.Mkdir(e.Context(), e.dir, name, mode(0o755))
			if err != nil {
				return fmt.Errorf("MKDIR: %w", err)
			}
			mu.Lock()
			defer mu.Unlock()
			if res.Status == nfs3.OK {
				won++
			} else {
				lost = append(lost, res.Status)
			}
			return nil
		})
		for _, status := range lost {
			e.refused("MKDIR of what another client has just made", status, nfs3.ErrExist)
		}
		if won != 1 {
			e.Errorf("%d clients have made %s", won, name)
		}
	}
}

// CREATE of a name that others make and remove finds it or makes it: open(2) with O_CREAT does not
// know ENOENT, and with O_EXCL it knows EEXIST alone.
func testComesAndGoes(e *env) {
	e.need(FeatureExclusiveCreate)
	const rounds = 40
	e.inParallel(func(i int, c *Client) error {
		for r := range rounds {
			args := nfs3.CreateArgs{Where: *where(e.dir, "lock"), Mode: nfs3.Unchecked, Attr: mode(0o644)}
			if i%3 == 0 {
				args = nfs3.CreateArgs{Where: *where(e.dir, "lock"), Mode: nfs3.Exclusive, Verf: [8]byte{byte(i + 1), byte(r)}}
			}
			made, err := c.Create(e.Context(), args)
			if err != nil {
				return fmt.Errorf("CREATE: %w", err)
			}
			if made.Status != nfs3.OK && (args.Mode != nfs3.Exclusive || made.Status != nfs3.ErrExist) {
				return fmt.Errorf("CREATE, %v, of a name that comes and goes: %v", args.Mode, made.Status)
			}
			if removed, err := c.Remove(e.Context(), e.dir, "lock"); err != nil || removed.Status != nfs3.OK && removed.Status != nfs3.ErrNoEnt {
				return fmt.Errorf("REMOVE: %v, %w", removed.Status, err)
			}
		}
		return nil
	})
}

// A client whose cache was valid before its change considers it valid afterwards. So
// no other client's change may lie between the directory's attributes before and after,
// or the server must omit them.
func testOwnChanges(e *env) {
	e.need(FeatureOwnChanges)
	const rounds = 40
	var mu sync.Mutex
	var all []nfs3.WccData
	e.inParallel(func(i int, c *Client) error {
		for r := range rounds {
			made, err := c.Create(e.Context(), nfs3.CreateArgs{Where: *where(e.dir, fmt.Sprintf("%d-%d", i, r)), Mode: nfs3.Guarded})
			if err != nil || made.Status != nfs3.OK {
				return fmt.Errorf("CREATE: %v, %w", made.Status, err)
			}
			mu.Lock()
			all = append(all, made.DirWcc)
			mu.Unlock()
		}
		return nil
	})
	for _, own := range all {
		for _, other := range all {
			if own.Before.Present && own.After.Present && other.After.Present &&
				earlier(own.Before.Ctime, other.After.Attr.Ctime) && earlier(other.After.Attr.Ctime, own.After.Attr.Ctime) {
				e.Fatalf("from %+v to %+v there was another's change at %+v", own.Before.Ctime, own.After.Attr.Ctime, other.After.Attr.Ctime)
			}
		}
	}
}

func earlier(a, b nfs3.Time) bool {
	return cmp.Or(cmp.Compare(a.Sec, b.Sec), cmp.Compare(a.Nsec, b.Nsec)) < 0
}

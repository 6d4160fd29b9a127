package vfs_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/podnas/podnas/server/actas"
	"github.com/podnas/podnas/server/inode"
	"github.com/podnas/podnas/server/snapshot"
	"github.com/podnas/podnas/server/stats"
	"github.com/podnas/podnas/server/vfs"
	"github.com/podnas/podnas/test/testdisk"
)

// permit is the connection of one call, which has a permit from MayWait until Wait.
type permit struct {
	without *atomic.Int32 // calls that have given their permit back, and have none again
	ours    bool
}

func (p *permit) MayWait(uint64, bool) bool {
	if !p.ours {
		p.ours = true
		p.without.Add(-1)
	}
	return true
}

func (p *permit) Alone() bool { return true }

func (p *permit) Wait() {
	if p.ours {
		p.ours = false
		p.without.Add(1)
	}
}

func (p *permit) Woken() {}

// Of many calls that wait for one directory, or for the data of one file, few keep a permit: the others of the volume need
// those. When it is free, each goes on with one.
func TestFewWaitWithPermit(t *testing.T) {
	w := newWorld(t)
	mustDo(t, os.WriteFile(filepath.Join(w.dir, "file"), nil, 0o644))
	root := w.root
	holdNames := func(c *vfs.Call, during func()) {
		dir := w.open(c, inode.UseNames)
		defer inode.LockNames(dir, dir).Unlock()
		during()
	}
	holdData := func(c *vfs.Call, during func()) {
		var together inode.Together
		mustDo(t, together.Do(w.open(c, inode.UseAttr, "file"), w.open(c, inode.UseWrite, "file"), func() error {
			during()
			return nil
		}))
	}
	file := func() []byte {
		c := w.call(0)
		return w.open(c, inode.UseAttr, "file").Handle()
	}()
	for _, tt := range []struct {
		name string
		hold func(c *vfs.Call, during func())
		do   func(c *vfs.Call, n int) error
	}{
		{"a name is made", holdNames, func(c *vfs.Call, n int) error {
			dir, err := c.Open(root, inode.UseNames)
			if err != nil {
				return err
			}
			_, err = c.Mkdir(dir, fmt.Append(nil, n), &vfs.SetAttr{})
			return err
		}},
		{"a file is moved", holdNames, func(c *vfs.Call, n int) error {
			dir, err := c.Open(root, inode.UseNames)
			if err != nil {
				return err
			}
			_, _, err = c.Rename(dir, fmt.Append(nil, n), dir, fmt.Append(nil, "to", n))
			return err
		}},
		{"data is written", holdData, func(c *vfs.Call, n int) error {
			f, err := c.Open(file, inode.UseWrite)
			if err != nil {
				return err
			}
			_, err = c.Write(f, []byte("x"), uint64(n))
			return err
		}},
		{"the size is set", holdData, func(c *vfs.Call, n int) error {
			f, err := c.Open(file, inode.UseAttr)
			if err != nil {
				return err
			}
			data, err := c.Open(file, inode.UseWrite)
			if err != nil {
				return err
			}
			size := uint64(n)
			_, _, err = c.SetAttr(f, data, &vfs.SetAttr{Size: &size}, nil)
			return err
		}},
		{"a hole is made", holdData, func(c *vfs.Call, _ int) error {
			f, err := c.Open(file, inode.UseWrite)
			if err != nil {
				return err
			}
			return c.Deallocate(f, 0, 1)
		}},
	} {
		t.Run(tt.name, func(t *testing.T) { fewWait(t, w, tt.hold, tt.do) })
	}
}

const manyWait, fewWithPermit = 50, 10

// fewWait makes many calls while something is held that they wait for, and fails if more than a few of them keep a permit.
func fewWait(t *testing.T, w *world, hold func(c *vfs.Call, during func()), do func(c *vfs.Call, n int) error) {
	t.Helper()
	var without atomic.Int32
	var calls sync.WaitGroup
	mustDo(t, w.once(0, func(c *vfs.Call) error {
		hold(c, func() {
			for n := range manyWait {
				calls.Go(func() {
					conn := &permit{without: &without, ours: true}
					c := &vfs.Call{}
					c.Begin(w.service, conn, vfs.Caller{}, &stats.Call{})
					defer c.End()
					if err := do(c, n); err != nil {
						t.Error(err)
					}
				})
			}
			for until := time.Now().Add(20 * time.Second); without.Load() < manyWait-fewWithPermit; time.Sleep(time.Millisecond) {
				if time.Now().After(until) {
					t.Errorf("of %d calls that wait %d have no permit", manyWait, without.Load())
					return
				}
			}
		})
		return nil
	}))
	calls.Wait()
}

// Of many calls that wait for a snapshot few keep a permit: for its cut, if they may take long, and for a file that is captured as it
// was before they change it, which takes as long as it has pieces.
func TestFewWaitForSnapshots(t *testing.T) {
	const large = 17 << 20 // has as many blocks as may be in many pieces
	on := testdisk.OneXFS(t)
	dir := filepath.Join(on, "volume")
	mustDo(t, os.Mkdir(dir, 0o755))
	w := newWorldIn(t, dir)
	mustDo(t, os.WriteFile(filepath.Join(dir, "file"), make([]byte, large), 0o644))
	v, _ := w.table.ByID(1)
	var file []byte
	var dirs [manyWait][]byte
	mustDo(t, w.in(0, w.root, func(c *vfs.Call, root *inode.File) error {
		file = w.open(c, inode.UseAttr, "file").Handle()
		for i := range dirs {
			made, err := c.Mkdir(root, fmt.Append(nil, i), &vfs.SetAttr{})
			if err != nil {
				return err
			}
			dirs[i] = made.Object.Handle()
		}
		return nil
	}))
	snapshots := 0
	// take begins a snapshot, and returns what waits for its end.
	take := func(own *snapshot.Own, p *snapshot.Progress) (wait func()) {
		snapshots++
		work := filepath.Join(on, fmt.Sprint("work", snapshots))
		mustDo(t, os.Mkdir(work, 0o700))
		root, err := os.OpenRoot(work)
		mustDo(t, err)
		ended := make(chan error)
		go func() { ended <- v.Snapshots.Take(t.Context(), &v.Files, own, root, nil, p) }()
		return func() {
			if err := errors.Join(<-ended, root.Close()); err != nil {
				t.Error(err)
			}
		}
	}
	until := func(done func() bool) {
		for !done() {
			time.Sleep(time.Millisecond)
		}
	}
	holdCut := func(_ *vfs.Call, during func()) {
		part := v.Snapshots.EnterLong(v.Files.RootID())
		wait := take(nil, new(snapshot.Progress))
		until(v.Snapshots.IsCutting)
		during()
		v.Snapshots.LeaveLong(part)
		wait()
	}
	holdCapture := func(c *vfs.Call, during func()) {
		captured := make(chan struct{})
		var captures atomic.Int32
		wait := take(&snapshot.Own{Still: func(do func()) {
			captures.Add(1)
			<-captured
			do()
		}}, new(snapshot.Progress))
		until(func() bool { return captures.Load() == 1 }) // of the root
		changed := make(chan error)
		f := w.open(c, inode.UseAttr, "file")
		go func() { changed <- f.Chmod(actas.AsProcess(), 0o600) }()
		until(func() bool { return captures.Load() == 2 })
		during()
		close(captured)
		mustDo(t, <-changed)
		wait()
	}
	// changing opens the file for its attributes and for its data.
	changing := func(change func(c *vfs.Call, f, data *inode.File, n int) error) func(c *vfs.Call, n int) error {
		return func(c *vfs.Call, n int) error {
			f, err := c.Open(file, inode.UseAttr)
			if err != nil {
				return err
			}
			data, err := c.Open(file, inode.UseWrite)
			if err != nil {
				return err
			}
			return change(c, f, data, n)
		}
	}
	set := func(set vfs.SetAttr) func(c *vfs.Call, f, data *inode.File, _ int) error {
		return func(c *vfs.Call, f, data *inode.File, _ int) error {
			set := set // of which SetAttr takes what it has set
			_, _, err := c.SetAttr(f, data, &set, nil)
			return err
		}
	}
	size, mode := uint64(large), uint32(0o640)
	hole := func(c *vfs.Call, _, data *inode.File, _ int) error { return c.Deallocate(data, 0, 1) }
	for _, tt := range []struct {
		name   string
		hold   func(c *vfs.Call, during func())
		change func(c *vfs.Call, f, data *inode.File, n int) error
	}{
		{"a hole is made before the cut", holdCut, hole},
		{"the size is set before the cut", holdCut, set(vfs.SetAttr{Size: &size})},
		{"data is written", holdCapture, func(c *vfs.Call, _, data *inode.File, n int) error {
			_, err := c.Write(data, []byte("x"), uint64(n))
			return err
		}},
		{"a hole is made", holdCapture, hole},
		{"the size is set", holdCapture, set(vfs.SetAttr{Size: &size})},
		{"the mode is set", holdCapture, set(vfs.SetAttr{Mode: &mode})},
		{"an attribute is set", holdCapture, func(c *vfs.Call, f, _ *inode.File, _ int) error {
			_, err := c.SetXattr(f, []byte("a"), []byte("b"), 0)
			return err
		}},
		{"a link is made", holdCapture, func(c *vfs.Call, f, _ *inode.File, n int) error {
			into, err := c.Open(dirs[n], inode.UseNames) // else they would wait for each other
			if err == nil {
				_, err = c.Link(f, into, []byte("link"))
			}
			return err
		}},
		{"a link is removed", holdCapture, func(c *vfs.Call, _, _ *inode.File, n int) error {
			from, err := c.Open(dirs[n], inode.UseNames)
			if err == nil {
				_, err = c.Remove(from, []byte("link"))
			}
			return err
		}},
	} {
		t.Run(tt.name, func(t *testing.T) { fewWait(t, w, tt.hold, changing(tt.change)) })
	}
}

// limited is the connection of one call, which waits in MayWait while others have all permits. Calls get them in the order in which
// they ask.
type limited struct {
	permits chan struct{} // has one for each call with a permit, and room for no more
	asked   *atomic.Int32 // calls that have asked for one, or have it
	gave    *atomic.Int32 // calls that have given theirs back
	ours    bool
}

func (l *limited) MayWait(uint64, bool) bool {
	if !l.ours {
		l.asked.Add(1)
		l.permits <- struct{}{}
		l.ours = true
	}
	return true
}

func (l *limited) Alone() bool { return true }

func (l *limited) Wait() {
	if l.ours {
		l.ours = false
		l.gave.Add(1)
		select {
		case <-l.permits:
		default: // the test has ended the wait of all
		}
	}
}

func (l *limited) Woken() {}

// Calls that wait for directories with a permit may have all of them: those that own the directories need none any more.
func TestOwnersNeedNoPermit(t *testing.T) {
	for round := range 4 { // it depends on who is quicker
		if !t.Run(fmt.Sprint(round), ownersNeedNoPermit) {
			return
		}
	}
}

func ownersNeedNoPermit(t *testing.T) {
	const dirs, few = 2, 8
	w := newWorld(t)
	handles := make([][]byte, dirs)
	for i := range handles {
		mustDo(t, w.in(0, w.root, func(c *vfs.Call, root *inode.File) error {
			made, err := c.Mkdir(root, fmt.Append(nil, "dir", i), &vfs.SetAttr{})
			if err == nil {
				handles[i] = made.Object.Handle()
			}
			return err
		}))
	}
	permits := make(chan struct{}, dirs*few)
	var asked, gave atomic.Int32
	var calls sync.WaitGroup
	// change begins a call that changes a directory, and returns when it waits, for that or for a permit.
	change := func(dir int) {
		n := asked.Load()
		calls.Go(func() {
			conn := &limited{permits: permits, asked: &asked, gave: &gave}
			c := &vfs.Call{}
			c.Begin(w.service, conn, vfs.Caller{}, &stats.Call{})
			defer conn.Wait() // as the end of a call gives its permit back
			defer c.End()
			d, err := c.Open(handles[dir], inode.UseNames)
			if err == nil {
				_, err = c.Mkdir(d, fmt.Append(nil, n), &vfs.SetAttr{})
			}
			if err != nil {
				t.Error(err)
			}
		})
		for asked.Load() == n {
			time.Sleep(time.Millisecond)
		}
		time.Sleep(2 * time.Millisecond)
	}
	holder := w.call(0)
	var held [dirs]inode.LockedNames
	for i := range held {
		d, err := holder.Open(handles[i], inode.UseNames)
		mustDo(t, err)
		held[i] = inode.LockNames(d, d)
	}
	for i := range dirs {
		for range few + 1 {
			change(i)
		}
	}
	for i := range dirs {
		for range 4 * few { // some find that a few wait already, and pass their permit on
			change(i)
		}
	}
	if len(permits) != cap(permits) || gave.Load() == 0 {
		t.Errorf("%d calls wait with a permit, %d without: the test tries nothing", len(permits), gave.Load())
	}
	for _, names := range held {
		names.Unlock()
		time.Sleep(20 * time.Millisecond)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		calls.Wait()
	}()
	select {
	case <-ended:
	case <-time.After(20 * time.Second):
		t.Error("all calls wait")
		for done := false; !done; { // more permits end that
			select {
			case <-permits:
			case <-ended:
				done = true
			}
		}
	}
}

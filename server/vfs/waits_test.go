package vfs_test

import (
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/podnas/podnas/server/inode"
	"github.com/podnas/podnas/server/stats"
	"github.com/podnas/podnas/server/vfs"
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
	const many, few = 50, 10
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
		t.Run(tt.name, func(t *testing.T) {
			var without atomic.Int32
			var calls sync.WaitGroup
			mustDo(t, w.once(0, func(c *vfs.Call) error {
				tt.hold(c, func() {
					for n := range many {
						calls.Go(func() {
							conn := &permit{without: &without, ours: true}
							c := &vfs.Call{}
							c.Begin(w.service, conn, vfs.Caller{}, &stats.Call{})
							defer c.End()
							if err := tt.do(c, n); err != nil {
								t.Error(err)
							}
						})
					}
					for until := time.Now().Add(20 * time.Second); without.Load() < many-few; time.Sleep(time.Millisecond) {
						if time.Now().After(until) {
							t.Errorf("of %d calls that wait %d have no permit", many, without.Load())
							return
						}
					}
				})
				return nil
			}))
			calls.Wait()
		})
	}
}

package vfs_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/podnas/podnas/server/inode"
	"github.com/podnas/podnas/server/snapshot"
	"github.com/podnas/podnas/server/stats"
	"github.com/podnas/podnas/server/vfs"
	"github.com/podnas/podnas/test/testdisk"
)

// once makes a call of a user, who is in no other groups, and ends it.
func (w *world) once(uid uint32, do func(c *vfs.Call) error) error {
	c := &vfs.Call{}
	c.Begin(w.service, &conn{alone: true}, vfs.Caller{UID: uid, GID: uid}, &stats.Call{})
	defer c.End()
	return do(c)
}

// in makes a call of a user for the directory of a client.
func (w *world) in(uid uint32, handle []byte, do func(c *vfs.Call, dir *inode.File) error) error {
	return w.once(uid, func(c *vfs.Call) error {
		dir, err := c.Open(handle, inode.UseNames)
		if err != nil {
			return err
		}
		return do(c, dir)
	})
}

// take takes a snapshot, and returns where it is.
func (w *world) take(work string) string {
	w.Helper()
	mustDo(w, os.Mkdir(work, 0o700))
	root, err := os.OpenRoot(work)
	mustDo(w, err)
	defer root.Close()
	v, _ := w.table.ByID(1)
	mustDo(w, v.Snapshots.Take(context.Background(), &v.Files, nil, root, nil, new(snapshot.Progress)))
	return filepath.Join(work, snapshot.Tree)
}

// facts are what a call sets of a file, and what lstat(2) says of it then.
type facts struct {
	mode, owner uint32
	size, mtime int64
}

func (f facts) set() vfs.SetAttr {
	size, mode, owner := uint64(f.size), f.mode, f.owner
	set := vfs.SetAttr{UID: &owner, GID: &owner, Mtime: inode.SetTime{Set: true, Time: time.Unix(f.mtime, 0)}}
	if f.mode > 0 {
		set.Mode = &mode
	}
	if f.size > 0 {
		set.Size = &size
	}
	return set
}

// differs says what of a file is not as it was set.
func (f facts) differs(path string) string {
	var st syscall.Stat_t
	if err := syscall.Lstat(path, &st); err != nil {
		return err.Error()
	}
	got := facts{st.Mode & 0o7777, st.Uid, st.Size, st.Mtim.Sec}
	if f.mode == 0 { // of a symbolic link, which has no mode
		got.mode = 0
	}
	if f.size == 0 {
		got.size = 0
	}
	if got != f || st.Gid != st.Uid {
		return fmt.Sprintf("%+v, and the group %d", got, st.Gid)
	}
	return ""
}

// aclOf is an ACL that names a user.
func aclOf(uid uint32, perm uint16) []inode.ACLEntry {
	return []inode.ACLEntry{
		{Tag: inode.ACLUserObj, Perm: 7}, {Tag: inode.ACLUser, Perm: perm, ID: uid}, {Tag: inode.ACLGroupObj, Perm: 5}, {Tag: inode.ACLMask, Perm: perm}, {Tag: inode.ACLOther},
	}
}

// aclAt is an ACL as it is on the disk.
func aclAt(path string, kind inode.ACLKind) string {
	b := make([]byte, 1000)
	n, err := syscall.Getxattr(path, string(kind), b)
	return fmt.Sprintf("%x %v", b[:max(n, 0)], err)
}

// kindOfCall is a call that changes several things of a file.
type kindOfCall struct {
	name string
	// prepare makes what the calls are for, in the directory of their client.
	prepare func(c *vfs.Call, dir *inode.File) error
	call    func(c *vfs.Call, dir *inode.File, n int) error
	uid     uint32
	// check says what of the client's directory, in a snapshot, no call can have left.
	check func(dir string) string
}

// These are all kinds of calls that make more than one system call.
func severalChanges() []kindOfCall {
	states := []facts{{0o600, 1001, 1000, 1_000_000}, {0o640, 1002, 20_000, 2_000_000}}
	oneOf := func(name string) func(string) string {
		return func(dir string) string {
			at := filepath.Join(dir, name)
			if _, err := os.Lstat(at); errors.Is(err, os.ErrNotExist) || states[0].differs(at) == "" {
				return ""
			}
			return states[1].differs(at)
		}
	}
	open := func(c *vfs.Call, dir *inode.File, name string, use inode.Use) (*inode.File, error) {
		_, handle, err := dir.Describe([]byte(name), nil)
		if err != nil {
			return nil, err
		}
		return c.Open(handle, use)
	}
	perms := []uint16{4, 6}
	// acls has a client set both ACLs of a directory to the same.
	acls := func(name string, set func(c *vfs.Call, f *inode.File, both vfs.ACLs) error) kindOfCall {
		return kindOfCall{name: name, prepare: func(c *vfs.Call, dir *inode.File) error {
			_, err := c.Mkdir(dir, []byte("d"), &vfs.SetAttr{})
			return err
		}, call: func(c *vfs.Call, dir *inode.File, n int) error {
			f, err := open(c, dir, "d", inode.UseAttr)
			if err != nil {
				return err
			}
			acl := aclOf(1234, perms[n%2])
			return set(c, f, vfs.ACLs{Access: acl, Default: acl})
		}, check: func(dir string) string {
			access, inherited := aclAt(filepath.Join(dir, "d"), inode.AccessACL), aclAt(filepath.Join(dir, "d"), inode.DefaultACL)
			if access != inherited {
				return access + " and " + inherited
			}
			return ""
		}}
	}
	// made has a client make a file, and remove it.
	made := func(name string, of facts, call func(c *vfs.Call, dir *inode.File, name []byte, set *vfs.SetAttr) error) kindOfCall {
		return kindOfCall{name: name, call: func(c *vfs.Call, dir *inode.File, n int) error {
			if n%2 == 1 {
				_, err := c.RemoveAny(dir, []byte("new"))
				return err
			}
			set := of.set()
			return call(c, dir, []byte("new"), &set)
		}, check: func(dir string) string {
			at := filepath.Join(dir, "new")
			if _, err := os.Lstat(at); errors.Is(err, os.ErrNotExist) {
				return ""
			}
			return of.differs(at)
		}}
	}
	return []kindOfCall{
		{
			name: "SETATTR",
			prepare: func(c *vfs.Call, dir *inode.File) error {
				set := states[0].set()
				_, err := c.Create(dir, []byte("f"), vfs.Guarded, &set, [8]byte{})
				return err
			},
			call: func(c *vfs.Call, dir *inode.File, n int) error {
				f, err := open(c, dir, "f", inode.UseAttr)
				if err != nil {
					return err
				}
				data, err := open(c, dir, "f", inode.UseWrite)
				if err != nil {
					return err
				}
				set := states[n%2].set()
				_, _, err = c.SetAttr(f, data, &set, nil)
				return err
			},
			check: oneOf("f"),
		},
		acls("SETATTR of an ACL", func(c *vfs.Call, f *inode.File, both vfs.ACLs) error {
			_, _, err := c.SetAttr(f, nil, &vfs.SetAttr{ACLs: &both}, nil)
			return err
		}),
		acls("SETACL", func(c *vfs.Call, f *inode.File, both vfs.ACLs) error { return c.SetACLs(f, both, true, true) }),
		made("CREATE", facts{0o640, 1003, 5000, 3_000_000}, func(c *vfs.Call, dir *inode.File, name []byte, set *vfs.SetAttr) error {
			_, err := c.Create(dir, name, vfs.Guarded, set, [8]byte{})
			return err
		}),
		made("exclusive CREATE", facts{0o640, 1003, 0, 0x01020304}, func(c *vfs.Call, dir *inode.File, name []byte, set *vfs.SetAttr) error {
			set.Mtime = inode.SetTime{}
			_, err := c.Create(dir, name, vfs.Exclusive, set, [8]byte{0, 0, 0, 1, 1, 2, 3, 4})
			return err
		}),
		made("MKDIR", facts{0o2750, 1003, 0, 3_000_000}, func(c *vfs.Call, dir *inode.File, name []byte, set *vfs.SetAttr) error {
			_, err := c.Mkdir(dir, name, set)
			return err
		}),
		made("SYMLINK", facts{0, 1003, 0, 3_000_000}, func(c *vfs.Call, dir *inode.File, name []byte, set *vfs.SetAttr) error {
			_, err := c.Symlink(dir, name, []byte("target"), set)
			return err
		}),
		made("MKNOD", facts{0o620, 1003, 0, 3_000_000}, func(c *vfs.Call, dir *inode.File, name []byte, set *vfs.SetAttr) error {
			_, err := c.Mknod(dir, name, inode.TypeFIFO, 0, 0, set)
			return err
		}),
		{
			name: "a CREATE that fails", uid: 1234,
			call: func(c *vfs.Call, dir *inode.File, _ int) error {
				other := uint32(4321) // a group that the caller is not in
				_, err := c.Create(dir, []byte("refused"), vfs.Guarded, &vfs.SetAttr{GID: &other}, [8]byte{})
				if !errors.Is(err, syscall.EPERM) {
					return fmt.Errorf("told %w, want EPERM", err)
				}
				return nil
			},
			check: func(dir string) string {
				if names, err := os.ReadDir(dir); err != nil || len(names) > 0 {
					return fmt.Sprint(names, err)
				}
				return ""
			},
		},
	}
}

// A snapshot has all that a call has changed, or nothing of it, also of a call that makes several system calls.
func TestCallsAreWholeInSnapshots(t *testing.T) {
	testdisk.Sharing(t, func(t *testing.T, disk string) {
		dir := filepath.Join(disk, "volume")
		mustDo(t, os.Mkdir(dir, 0o755))
		w := newWorldIn(t, dir)
		kinds := severalChanges()
		handles := make([][]byte, len(kinds))
		for i, k := range kinds {
			mustDo(t, w.in(0, w.root, func(c *vfs.Call, root *inode.File) error {
				mode := uint32(0o777)
				made, err := c.Mkdir(root, []byte(fmt.Sprint(i)), &vfs.SetAttr{Mode: &mode})
				if err == nil {
					handles[i] = made.Object.Handle()
				}
				return err
			}))
			if k.prepare != nil {
				mustDo(t, w.in(0, handles[i], k.prepare))
			}
		}
		var stop atomic.Bool
		var running sync.WaitGroup
		calls := make([]int, len(kinds))
		for i, k := range kinds {
			running.Go(func() {
				for n := 0; !stop.Load(); n++ {
					if err := w.in(k.uid, handles[i], func(c *vfs.Call, dir *inode.File) error { return k.call(c, dir, n) }); err != nil {
						t.Errorf("%s: %v", k.name, err)
						return
					}
					calls[i] = n
					time.Sleep(time.Duration(rand.IntN(200)) * time.Microsecond)
				}
			})
		}
		torn := map[string]int{}
		for round := range testdisk.Rounds(40, 300) {
			work := filepath.Join(disk, fmt.Sprint("work", round))
			tree := w.take(work)
			for i, k := range kinds {
				if wrong := k.check(filepath.Join(tree, fmt.Sprint(i))); wrong != "" {
					if torn[k.name]++; torn[k.name] == 1 {
						t.Errorf("%s: snapshot %d has %s", k.name, round, wrong)
					}
				}
			}
			mustDo(t, os.RemoveAll(work))
		}
		stop.Store(true)
		running.Wait()
		for i, k := range kinds {
			if calls[i] < 10 {
				t.Errorf("%s: only %d calls", k.name, calls[i])
			}
			if torn[k.name] > 0 {
				t.Logf("%s: torn in %d snapshots", k.name, torn[k.name])
			}
		}
	})
}

package actas_test

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/podnas/podnas/server/actas"
)

// needIdentities skips where threads can't act as other users.
func needIdentities(t *testing.T) {
	t.Helper()
	if err := actas.ProbeIdentities(); err != nil {
		t.Skip(err)
	}
}

// Calls of many users at once: each makes a file that must be its own, and the threads are the
// process's again, also after a panic.
func TestUsers(t *testing.T) {
	needIdentities(t)
	dir := t.TempDir()
	must(t, os.Chmod(dir, 0o777))
	// The parents of a test's directory are closed to others.
	fd, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY, 0)
	must(t, err)
	defer unix.Close(fd)
	users := actas.NewUsers(nil)
	makeFile := func(i int) error {
		var file int
		file, err := unix.Openat(fd, fmt.Sprint("file", i), unix.O_CREAT|unix.O_EXCL|unix.O_WRONLY, 0o600)
		if err == nil {
			err = unix.Close(file)
		}
		groups, groupsErr := unix.Getgroups()
		if groupsErr == nil && (len(groups) != 1 || groups[0] != 3000+i%3) {
			groupsErr = fmt.Errorf("groups %v, want %d", groups, 3000+i%3)
		}
		return errors.Join(err, groupsErr)
	}
	var pending sync.WaitGroup
	for i := range 400 {
		uid, gid := uint32(1000+i%7), uint32(2000+i%5)
		id := actas.Squash{}.Identity(uid, gid, []uint32{uint32(3000 + i%3)})
		pending.Go(func() {
			defer func() {
				if v := recover(); (v != nil) != (i%11 == 0) {
					t.Errorf("call %d: panic %v", i, v)
				}
				isProcess(t)
			}()
			err := users.As(&id, func(actas.Thread) error {
				err := makeFile(i)
				if i%11 == 0 {
					panic("in a call")
				}
				return err
			})
			if err != nil {
				t.Errorf("uid %d: %v", uid, err)
			}
		})
	}
	pending.Wait()
	for i := range 400 {
		var st unix.Stat_t
		must(t, unix.Fstatat(fd, fmt.Sprint("file", i), &st, 0))
		if st.Uid != uint32(1000+i%7) || st.Gid != uint32(2000+i%5) {
			t.Fatalf("file %d belongs to %d:%d", i, st.Uid, st.Gid)
		}
	}
	for range 100 {
		var wg sync.WaitGroup
		wg.Go(func() { isProcess(t) })
		wg.Wait()
	}
}

// isProcess fails the test if the thread acts as a user.
func isProcess(t *testing.T) {
	t.Helper()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	uid, uidErr := unix.SetfsuidRetUid(-1)
	gid, gidErr := unix.SetfsgidRetGid(-1)
	if err := errors.Join(uidErr, gidErr); err != nil || uid != 0 || gid != 0 {
		t.Errorf("a thread of the process runs as %d:%d, %v", uid, gid, err)
	}
}

// A user that no thread can become gets an error that is none of a file's, and nothing is done.
func TestUsersRefused(t *testing.T) {
	needIdentities(t)
	id := actas.Identity{UID: actas.NoID, GID: actas.NoID}
	err := actas.NewUsers(nil).As(&id, func(actas.Thread) error {
		t.Error("it is done as somebody else")
		return nil
	})
	if errno := unix.Errno(0); !errors.Is(err, actas.ErrIdentity) || errors.As(err, &errno) {
		t.Errorf("told %v, want %v and no errno", err, actas.ErrIdentity)
	}
	isProcess(t)
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

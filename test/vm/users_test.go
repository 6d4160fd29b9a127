//go:build vm

package vm_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestUsers: a volume's root has mode 0777, so whoever a pod runs as can use it,
// and what one user writes the others read.
func TestUsers(t *testing.T) {
	a := serve(t)
	pv := a.volume("users", "64Mi")
	mnt := mount(t, pv)
	if st, err := os.Stat(mnt); err != nil || st.Mode().Perm() != 0o777 {
		t.Fatalf("the volume's root: %v, %v; want mode 0777", st.Mode(), err)
	}
	letThrough(t, mnt)
	users := []int{0, 1000, 65534}
	for _, uid := range users {
		err := as(uid, func() error {
			dir := filepath.Join(mnt, fmt.Sprint(uid))
			if err := os.Mkdir(dir, 0o755); err != nil {
				return err
			}
			if err := write(filepath.Join(dir, "f"), data(byte(uid), 10_000)); err != nil {
				return err
			}
			return os.Rename(filepath.Join(dir, "f"), filepath.Join(mnt, fmt.Sprint("by-", uid)))
		})
		if err != nil {
			t.Errorf("uid %d: %v", uid, err)
		}
	}
	dropCaches(t)
	for _, uid := range users {
		err := as(uid, func() error {
			for _, other := range users {
				holds(t, filepath.Join(mnt, fmt.Sprint("by-", other)), data(byte(other), 10_000))
			}
			return nil
		})
		if err != nil {
			t.Errorf("uid %d: %v", uid, err)
		}
	}
}

// TestOrdinaryUser: podnas needs no privilege to serve a disk that its user owns.
func TestOrdinaryUser(t *testing.T) {
	a := newAppliance(t, settings{uid: 1000})
	letThrough(t, a.claims)
	a.start()
	pv := a.volume("own", "16Mi")
	mnt := mount(t, pv)
	b := data(1, 5<<20)
	mustWrite(t, filepath.Join(mnt, "f"), b)
	dropCaches(t)
	holds(t, filepath.Join(mnt, "f"), b)
	if !bytes.Contains(bytes.ToLower(a.output()), []byte("quota")) {
		t.Errorf("the log does not say that there is no quota:\n%s", a.output())
	}
	a.unclaim("own")
	eventually(t, 20*time.Second, "the volume is gone from the disk", func() bool {
		_, err := os.Lstat(a.dir(pv))
		return os.IsNotExist(err) && len(a.trash()) == 0
	})
	a.stop()
}

// as runs do under another user's identity, as far as files are concerned.
func as(uid int, do func() error) error {
	done := make(chan error)
	go func() {
		// The identity is the thread's, and the thread ends with the goroutine.
		runtime.LockOSThread()
		done <- func() error {
			if err := unix.Setgroups(nil); err != nil {
				return err
			}
			if _, err := unix.SetfsgidRetGid(uid); err != nil {
				return err
			}
			if _, err := unix.SetfsuidRetUid(uid); err != nil {
				return err
			}
			if now, err := unix.SetfsuidRetUid(uid); err != nil || now != uid {
				return fmt.Errorf("became uid %d, not %d: %v", now, uid, err)
			}
			return do()
		}()
	}()
	return <-done
}

// letThrough lets other users than root reach a test's folder: the ones between
// it and /tmp are private.
func letThrough(t *testing.T, dir string) {
	t.Helper()
	for dir = filepath.Dir(dir); dir != os.TempDir(); dir = filepath.Dir(dir) {
		if err := os.Chmod(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
}

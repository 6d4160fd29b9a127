//go:build vm

package vm_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// TestUsers: a volume's root has mode 0777, so any user of a pod can use it,
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
		err := actAs(t, identity{uid: uid, gid: uid})(func() error {
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
		err := actAs(t, identity{uid: uid, gid: uid})(func() error {
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

// TestOrdinaryUser: podnas needs no privilege to serve a disk that its user owns. The native
// engine finds files by the index then, does everything as that user, and the log says so.
func TestOrdinaryUser(t *testing.T) {
	nativeOnly(t, "it chooses the engine by itself")
	a := newAppliance(t, settings{uid: 1000, engine: "auto"})
	letThrough(t, a.claims)
	a.start()
	pv := a.volume("own", "16Mi")
	mnt := mount(t, pv)
	b := data(1, 5<<20)
	mustWrite(t, filepath.Join(mnt, "f"), b)
	dropCaches(t)
	holds(t, filepath.Join(mnt, "f"), b)
	if err := os.Link(filepath.Join(mnt, "f"), filepath.Join(mnt, "link")); err != nil {
		t.Error(err)
	}
	if f, err := os.OpenFile(filepath.Join(mnt, "closed"), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o400); err != nil {
		t.Error(err)
	} else if _, err := f.WriteString("content"); err != nil || f.Close() != nil {
		t.Errorf("a file that only its maker may write: %v", err)
	}
	if st := new(syscall.Stat_t); syscall.Stat(filepath.Join(mnt, "closed"), st) != nil || st.Uid != 1000 {
		t.Errorf("the file belongs to user %d, want 1000", st.Uid)
	}
	if !bytes.Contains(bytes.ToLower(a.output()), []byte("quota")) {
		t.Errorf("the log does not say that there is no quota:\n%s", a.output())
	}
	for _, says := range []string{"engine=native", "DAC_READ_SEARCH", "podnas's own user 1000"} {
		if !bytes.Contains(a.output(), []byte(says)) {
			t.Errorf("the log does not say %q:\n%s", says, a.output())
		}
	}
	a.unclaim("own")
	eventually(t, "the volume is gone from the disk", func() bool {
		_, err := os.Lstat(a.dir(pv))
		return os.IsNotExist(err) && len(a.trash()) == 0
	})
	a.stop()
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

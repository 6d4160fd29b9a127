//go:build vm

package vm_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// TestExecute runs a program that lies on the mount, as users who may and may
// not. One who may execute but not read it makes the client read it all the same.
func TestExecute(t *testing.T) {
	nativeOnly(t, "it acts as one user for all callers")
	a := serve(t)
	pv := a.volume("programs", "64Mi")
	mnt := mount(t, pv)
	letThrough(t, mnt)
	path, err := exec.LookPath("busybox") // static, so that no library is read
	if err != nil {
		t.Fatal(err)
	}
	program, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		mode uint32
		uid  uint32
		want error
	}{
		{0o755, 1003, nil},
		{0o711, 1003, nil},
		{0o700, 1003, syscall.EACCES},
		{0o644, 1003, syscall.EACCES},
		{0o644, 0, syscall.EACCES},
		{0o100, ownerUID, nil},
		{0o011, ownerUID, syscall.EACCES},
	} {
		name := filepath.Join(mnt, fmt.Sprintf("%o-%d", c.mode, c.uid))
		mustWrite(t, name, program)
		if err := errors.Join(os.Chown(name, ownerUID, ownerGID), unix.Chmod(name, c.mode)); err != nil {
			t.Fatal(err)
		}
		dropCaches(t)
		cmd := exec.Command(name)
		cmd.Args = []string{"busybox", "true"} // it looks at its name
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: c.uid, Gid: c.uid}}
		if out, err := cmd.CombinedOutput(); !errors.Is(err, c.want) || c.want == nil && err != nil {
			t.Errorf("mode %o run by uid %d: %v, want %v\n%s", c.mode, c.uid, err, c.want, out)
		}
	}
}

// TestOpenBeforeChmod: the owner of a file that is open goes on with it when its mode no longer
// allows it. Another user loses what the mode takes, as with the kernel's own server.
func TestOpenBeforeChmod(t *testing.T) {
	nativeOnly(t, "it acts as one user for all callers")
	a := serve(t)
	pv := a.volume("open", "64Mi")
	mnt := mount(t, pv)
	letThrough(t, mnt)
	owner := actAs(t, identity{uid: ownerUID, gid: ownerGID})
	for who, uid := range map[string]int{"owner": ownerUID, "stranger": strangerUID} {
		name := filepath.Join(mnt, who)
		mustWrite(t, name, nil)
		if err := errors.Join(os.Chmod(name, 0o666), os.Chown(name, ownerUID, ownerGID)); err != nil {
			t.Fatal(err)
		}
		err := actAs(t, identity{uid: uid, gid: uid})(func() error {
			return useAfterChmod(name, func() error { return owner(func() error { return os.Chmod(name, 0) }) })
		})
		want, content := error(nil), "written"
		if uid != ownerUID {
			want, content = syscall.EACCES, ""
		}
		if !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", who, err, want)
		}
		holds(t, filepath.Join(a.dir(pv), who), []byte(content))
	}
}

// useAfterChmod opens a file and uses it after a change, after which it can't be opened again.
func useAfterChmod(name string, chmod func() error) error {
	f, err := os.OpenFile(name, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := chmod(); err != nil {
		return err
	}
	if _, err := f.WriteString("written with mode 0"); err != nil {
		return err
	}
	if err := f.Sync(); err != nil {
		return err
	}
	if err := unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED); err != nil {
		return err
	}
	if _, err := f.ReadAt(make([]byte, 10), 0); err != nil {
		return err
	}
	if err := f.Truncate(7); err != nil {
		return err
	}
	if _, err := os.Open(name); !errors.Is(err, syscall.EACCES) {
		return fmt.Errorf("another open: %w, want EACCES", err)
	}
	return f.Close()
}

// TestDefaultACL: what is made in a directory with a default ACL gets it.
func TestDefaultACL(t *testing.T) {
	nativeOnly(t, "it acts as one user for all callers")
	a := serve(t)
	pv := a.volume("acl", "64Mi")
	mnt := mount(t, pv)
	letThrough(t, mnt)
	disk := a.dir(pv)
	inherited := acl(mode{0o750, []aclEntry{{aclUser, 1003, 7}, {aclMask, 0, 7}}})
	for _, name := range []string{"system.posix_acl_access", "system.posix_acl_default"} {
		if err := unix.Setxattr(disk, name, inherited, 0); err != nil {
			t.Fatal(err)
		}
	}
	by41 := os.Getenv("NFS") == "4.1"
	file, dir := filepath.Join(mnt, "f"), filepath.Join(mnt, "d")
	if err := errors.Join(write(file, []byte("f")), os.Mkdir(dir, 0o777)); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		uid       int
		want      error
		wantInDir error
	}{
		// A client of version 4.1, which sees no ACL and can't tell its umask (022), takes that off the
		// mode: the mask then lets nobody write.
		{1003, nil, map[bool]error{true: syscall.EACCES}[by41]},
		{1004, syscall.EACCES, syscall.EACCES},
	} {
		do := actAs(t, identity{uid: c.uid, gid: c.uid})
		if err := do(func() error { _, err := os.ReadFile(file); return err }); !errors.Is(err, c.want) {
			t.Errorf("uid %d reads: %v, want %v", c.uid, err, c.want)
		}
		if err := do(func() error { return write(filepath.Join(dir, "x"), nil) }); !errors.Is(err, c.wantInDir) {
			t.Errorf("uid %d writes in the directory: %v, want %v", c.uid, err, c.wantInDir)
		}
		if err := do(func() error { _, err := os.ReadDir(dir); return err }); !errors.Is(err, c.want) {
			t.Errorf("uid %d lists: %v, want %v", c.uid, err, c.want)
		}
	}
	umask := uint32(0)
	if by41 {
		umask = 0o022
	}
	for name, want := range map[string]uint32{"f": 0o660 &^ umask, "d": 0o770 &^ umask} {
		var st unix.Stat_t
		if err := unix.Stat(filepath.Join(disk, name), &st); err != nil || st.Mode&0o7777 != want {
			t.Errorf("%s has mode %o, %v; want %o", name, st.Mode&0o7777, err, want)
		}
		b := make([]byte, 100)
		n, err := unix.Getxattr(filepath.Join(disk, name), "system.posix_acl_access", b)
		if err != nil || n != len(inherited) {
			t.Errorf("%s has an ACL of %d bytes, %v; want %d", name, n, err, len(inherited))
		}
	}
}

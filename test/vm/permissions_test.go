//go:build vm

package vm_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// Who owns what in the matrix of permissions.
const (
	ownerUID    = 1000
	ownerGID    = 2000
	strangerUID = 4000
)

// TestPermissions lets several users do everything that depends on modes, ACLs,
// owners and groups, on a mount and on the local XFS: the outcome must be the
// same, in errno and in what is on the disk afterwards.
func TestPermissions(t *testing.T) {
	nativeOnly(t, "it acts as one user for all callers")
	// Of a short run.
	leftOut := []string{"root", "group", "owner", "owner in the group", "other"}
	if version4() {
		leftOut = []string{"owner in the group", "supplementary group"}
	}
	a := serve(t)
	a.class("uncached", "Delete", "noac") // what the client believes is not the question
	a.claim("permissions", "uncached", "256Mi")
	pv := a.provisioned("permissions")
	mnt := mount(t, pv)
	letThrough(t, mnt)
	local, err := os.MkdirTemp(xfs, "local-")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(local, 0o777); err != nil {
		t.Fatal(err)
	}
	for _, user := range []struct {
		name string
		identity
	}{
		{"root", identity{0, 0, nil}},
		{"owner", identity{ownerUID, ownerUID, []int{ownerUID}}},
		{"owner in the group", identity{ownerUID, ownerGID, []int{ownerUID, ownerGID}}},
		{"group", identity{1001, ownerGID, nil}},
		{"supplementary group", identity{1002, 1002, []int{5, 1002, ownerGID}}},
		{"other", identity{1003, 1003, []int{1003, 2001}}},
	} {
		t.Run(user.name, func(t *testing.T) {
			if slices.Contains(leftOut, user.name) {
				notInShortRun(t, "who calls does not depend on the version")
			}
			do := actAs(t, user.identity)
			n, differ := 0, 0
			compare := func(setup func(dir string) error, name string, op func(dir string) error) {
				n++
				var outcomes [2]result
				sub := fmt.Sprintf("%d-%d-%d", user.uid, user.gid, n)
				for i, place := range []struct{ disk, at string }{{local, local}, {a.dir(pv), mnt}} {
					disk := filepath.Join(place.disk, sub)
					if err := setup(disk); err != nil {
						t.Fatalf("%s: %v", name, err)
					}
					err := do(func() error { return op(filepath.Join(place.at, sub)) })
					outcomes[i] = result{outcome(err), snapshot(t, disk)}
					if err := os.RemoveAll(disk); err != nil {
						t.Fatal(err)
					}
				}
				if local, nfs := outcomes[0], outcomes[1]; local != nfs && !clientsOwn(name, local, nfs) {
					differ++
					t.Errorf("%s: %s\nlocally: %s\n%sover NFS: %s\n%s", user.name, name, local.errno, local.files, nfs.errno, nfs.files)
				}
			}
			for _, mode := range fileModes() {
				for _, op := range fileOps() {
					compare(fileSetup(mode), fmt.Sprintf("%s of a file %v", op.name, mode), op.run)
				}
			}
			for _, mode := range dirModes() {
				if user.name == "owner in the group" {
					break // the group decides nothing that the files have not shown
				}
				for _, op := range dirOps() {
					compare(dirSetup(mode, user.uid), fmt.Sprintf("%s in a directory %v", op.name, mode), op.run)
				}
			}
			t.Logf("%d cases, %d differ", n, differ)
		})
	}
}

// result is what came of an operation: its errno, and what is on the disk.
type result struct{ errno, files string }

// clientsOwn tells whether results may differ, because the Linux client decides
// by itself and the server is not asked.
func clientsOwn(name string, local, nfs result) bool {
	op, _, _ := strings.Cut(name, " of a file ")
	op, mode, _ := strings.Cut(op, " in a directory ")
	switch op {
	case "truncate to the same size", "chown -1:-1":
		// There is nothing to change, so it sends nothing, and setuid and setgid
		// stay.
		return nfs.errno == "ok"
	case "ftruncate to the same size":
		// It sends mtime alone.
		return local.errno == "ok" && nfs.errno == "ok"
	case "O_CREAT":
		// With version 3 Linux 7.2 sends CREATE, UNCHECKED, which may be of a file that is there, and asks for
		// no ACCESS, whoever serves. The server checks each WRITE.
		if !version4() && nfs.errno == "ok" && local.errno == "EACCES" {
			return local.files == nfs.files
		}
	}
	if local.files != nfs.files || local.errno != "EACCES" {
		return false
	}
	// It leaves the right to write in a directory to the server (nfs_permission
	// in fs/nfs/dir.c), so the checks that locally come after that one come first.
	if sticky := strings.HasPrefix(mode, "1"); sticky || op == "mknod of a device" {
		return nfs.errno == "EPERM"
	}
	return op == "unlink of a directory" && nfs.errno == "EISDIR"
}

// mode is what a file or directory of ownerUID:ownerGID lets whom do.
type mode struct {
	bits uint32
	acl  []aclEntry // beside what bits say; of a directory, the default ACL too
}

func (m mode) String() string {
	if m.acl != nil {
		return fmt.Sprintf("%04o with ACL %v", m.bits, m.acl)
	}
	return fmt.Sprintf("%04o", m.bits)
}

func (m mode) apply(name string) error {
	// chown(2) takes setuid and setgid away, so the mode comes after it.
	err := errors.Join(os.Lchown(name, ownerUID, ownerGID), unix.Chmod(name, m.bits))
	if m.acl != nil {
		err = errors.Join(err, unix.Setxattr(name, "system.posix_acl_access", acl(m), 0))
	}
	return err
}

// fileSetup makes dir with a file f of that mode. The folder itself is open to
// everyone.
func fileSetup(m mode) func(dir string) error {
	return func(dir string) error {
		f := filepath.Join(dir, "f")
		return errors.Join(openDir(dir), os.WriteFile(f, []byte("0123456789"), 0o600), m.apply(f))
	}
}

// dirSetup makes dir with a directory d of that mode, and in d: mine, a file of
// the user's; theirs and sub, a file and a directory of somebody else's that
// everyone may use. Beside d lies out, open to everyone, with another file of
// the user's, in.
func dirSetup(m mode, uid int) func(dir string) error {
	return func(dir string) error {
		d := filepath.Join(dir, "d")
		err := errors.Join(openDir(dir), openDir(d), openDir(filepath.Join(dir, "out")), openDir(filepath.Join(d, "sub")),
			os.Chown(filepath.Join(d, "sub"), strangerUID, strangerUID))
		for name, owner := range map[string]int{"d/mine": uid, "d/theirs": strangerUID, "out/in": uid} {
			f := filepath.Join(dir, name)
			err = errors.Join(err, os.WriteFile(f, []byte(name), 0o600), os.Chmod(f, 0o666), os.Chown(f, owner, owner))
		}
		return errors.Join(err, m.apply(d))
	}
}

func openDir(dir string) error {
	return errors.Join(os.Mkdir(dir, 0o700), os.Chmod(dir, 0o777))
}

// outcome names the errno, so that the same error in another place is the same.
func outcome(err error) string {
	var errno syscall.Errno
	switch {
	case err == nil:
		return "ok"
	case errors.As(err, &errno):
		return unix.ErrnoName(errno)
	}
	return err.Error()
}

// snapshot tells all that the operations can have changed in a folder.
func snapshot(t *testing.T, dir string) string {
	t.Helper()
	var b strings.Builder
	err := filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		var st unix.Stat_t
		if err := unix.Lstat(path, &st); err != nil {
			return err
		}
		size := st.Size
		if st.Mode&unix.S_IFMT == unix.S_IFDIR {
			size = 0
		}
		fmt.Fprintf(&b, "  %-9s %06o %d:%d links %d size %d dev %d\n",
			strings.TrimPrefix(path, dir), st.Mode, st.Uid, st.Gid, st.Nlink, size, st.Rdev)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return b.String()
}

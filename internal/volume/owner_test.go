package volume

import (
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

const ordinaryUser = 65534

// asOrdinaryUser has files looked at, opened and made as an ordinary user. The test's
// thread ends with it.
func asOrdinaryUser(t *testing.T, do func()) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // for good: Go ends a thread that is left locked
		_ = unix.Setfsuid(ordinaryUser)
		do()
	}()
	<-done
}

func needRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root, to be two users")
	}
}

// chownAll gives a whole tree to a user.
func chownAll(t *testing.T, dir string, uid int) {
	t.Helper()
	if err := filepath.WalkDir(dir, func(p string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return os.Lchown(p, uid, uid)
	}); err != nil {
		t.Fatal(err)
	}
}

// Root's podnas on the disk of an ordinary user leaves nothing there that this user
// can't read.
func TestStateKeepsItsOwner(t *testing.T) {
	needRoot(t)
	root := t.TempDir()
	s, _ := open(t, root)
	if _, err := s.Create(t.Context(), Spec{Name: "old", Size: 1 << 20}); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	chownAll(t, root, ordinaryUser)
	_ = os.Remove(filepath.Join(root, lockFile)) // it is made anew

	s, _ = open(t, root)
	if _, err := s.Create(t.Context(), Spec{Name: "new", Size: 1 << 20}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Resize(t.Context(), "old", 2<<20, 0); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := filepath.WalkDir(filepath.Join(root, StateDir), func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err == nil && info.Sys().(*syscall.Stat_t).Uid != ordinaryUser {
			t.Errorf("%s is root's now", p)
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
}

// What may not be read is not damaged: podnas refuses to serve the disk, and says what
// to do.
func TestDeniedIsNotDamaged(t *testing.T) {
	needRoot(t)
	for _, name := range []string{StateDir, InstanceFile, lockFile, volumesDir, archiveDir, trashDir, recordFile("data")} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			s, _ := open(t, root)
			if _, err := s.Create(t.Context(), Spec{Name: "data", Size: 1 << 20}); err != nil {
				t.Fatal(err)
			}
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			chownAll(t, root, ordinaryUser)
			if err := os.Chown(filepath.Join(root, name), 0, 0); err != nil {
				t.Fatal(err)
			}
			if err := os.Chmod(filepath.Dir(root), 0o755); err != nil { //nolint:gosec // t.TempDir lets only its maker in
				t.Fatal(err)
			}
			var err error
			asOrdinaryUser(t, func() { s, err = Open(Config{Root: root, Exports: &exports{}, Log: slog.New(slog.DiscardHandler)}) })
			if err == nil {
				t.Fatal("opened", s.Close())
			}
			for _, want := range []string{"permission denied", "user 0", "chown -R"} {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("error %q does not tell %q", err, want)
				}
			}
		})
	}
}

// Without CHOWN a volume can't belong to another user, and the error says so.
func TestOwnerNeedsChown(t *testing.T) {
	needRoot(t)
	root := t.TempDir()
	s, _ := open(t, root)
	chownAll(t, root, ordinaryUser)
	mustDo(t, os.Chmod(filepath.Dir(root), 0o755)) // on the way to it
	asOrdinaryUser(t, func() {
		_, err := s.Create(t.Context(), Spec{Name: "v", Size: 1 << 20, UID: 1000})
		if !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), "CHOWN") {
			t.Errorf("%v, want ErrInvalid for want of CHOWN", err)
		}
		if entries, err := os.ReadDir(root); err != nil || len(entries) != 1 {
			t.Errorf("left: %v, %v", entries, err)
		}
	})
}

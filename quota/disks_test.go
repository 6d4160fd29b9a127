package quota

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// onDisks runs a test on an XFS and on an ext4. They must be mounted with
// prjquota, by root: the suite in test/vm does that, in a machine of its own. The
// ext4 is made here, and mounted there alone.
func onDisks(t *testing.T, test func(t *testing.T, disk string)) {
	xfs := os.Getenv("PODNAS_TEST_XFS")
	if xfs == "" {
		t.Skip("PODNAS_TEST_XFS does not name a directory on an XFS with prjquota; `make vm` runs this test")
	}
	t.Run("XFS", func(t *testing.T) { test(t, xfs) })
	t.Run("ext4", func(t *testing.T) { test(t, loopExt4(t, "prjquota")) })
}

// loopExt4 makes an ext4 in a file and mounts it until the test ends.
func loopExt4(t *testing.T, options string) (target string) {
	t.Helper()
	image := filepath.Join(t.TempDir(), "image")
	must(t, os.WriteFile(image, nil, 0o600), os.Truncate(image, 128<<20))
	command(t, "mkfs.ext4", "-q", "-O", "quota,project", "-E", "quotatype=prjquota", image)
	command(t, "modprobe", "loop")
	dev := strings.TrimSpace(command(t, "losetup", "--find", "--show", image))
	t.Cleanup(func() { command(t, "losetup", "--detach", dev) })
	target = t.TempDir()
	must(t, unix.Mount(dev, target, "ext4", 0, options))
	t.Cleanup(func() { must(t, unix.Unmount(target, 0)) })
	return target
}

func command(t *testing.T, name string, args ...string) string {
	t.Helper()
	out, err := exec.Command(name, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s %q: %v\n%s", name, args, err, out)
	}
	return string(out)
}

func must(t *testing.T, errs ...error) {
	t.Helper()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

// eventually waits: XFS frees removed files in the background.
func eventually(t *testing.T, done func() (bool, error), otherwise string) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		ok, err := done()
		must(t, err)
		if ok {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal(otherwise)
		}
	}
}

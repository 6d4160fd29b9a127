//go:build vm

package vm_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// run runs one of podnas's commands, and returns what it prints and its exit code.
func run(t *testing.T, args ...string) (string, int) {
	t.Helper()
	cmd := exec.Command(os.Getenv("PODNAS"), args...)
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return string(out), cmd.ProcessState.ExitCode()
}

// On a real node: podnas doctor mount finds what the node has, tries the mount from
// the wire, and looks at the kernel's own mount, with its locks. While the server is
// away it says so, and does not hang.
func TestDoctorMount(t *testing.T) {
	a := serve(t)
	pv := a.volume("doctor", "16Mi")
	mnt := mount(t, pv)
	address := pv.Spec.NFS.Server + ":" + pv.Spec.NFS.Path
	options := "--options=" + strings.Join(pv.Spec.MountOptions, ",")

	out, code := run(t, "doctor", "mount", address, options)
	if code != 0 || !strings.Contains(out, "mount.nfs is there") || !strings.Contains(out, "the file was removed") {
		t.Errorf("from the wire: %d\n%s", code, out)
	}
	out, code = run(t, "doctor", "mount", mnt)
	if code != 0 || !strings.Contains(out, "flock works") || !strings.Contains(out, "fcntl works") {
		t.Errorf("what is mounted: %d\n%s", code, out)
	}
	for _, dir := range []string{mnt, a.dir(pv)} {
		if left, err := filepath.Glob(filepath.Join(dir, ".podnas-doctor*")); err != nil || len(left) > 0 {
			t.Errorf("left are %v, %v", left, err)
		}
	}
	if out, code = run(t, "doctor", "--root="+a.root); code != 0 {
		t.Errorf("podnas doctor: %d\n%s", code, out)
	}
	if out, code = run(t, "mounted", "--root="+a.root); code != 4 || !strings.Contains(out, "127.0.0.1") {
		t.Errorf("podnas mounted with a client: %d\n%s", code, out)
	}

	a.prepare()
	a.stop()
	begin := time.Now()
	out, code = run(t, "doctor", "mount", mnt)
	if code != 1 || !strings.Contains(out, "no answer within 10s") {
		t.Errorf("while the server is away: %d after %s\n%s", code, time.Since(begin), out)
	}
	a.start()
	if out, code = run(t, "doctor", "mount", mnt); code != 0 {
		t.Errorf("the server is back: %d\n%s", code, out)
	}
}

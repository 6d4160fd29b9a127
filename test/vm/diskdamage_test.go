//go:build vm

package vm_test

import (
	"errors"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestDiskImageDamaged: what is wrong with an image is said with what to do about
// it, and that does it. Podnas itself mends nothing.
func TestDiskImageDamaged(t *testing.T) {
	a := newImageAppliance(t, xfsDir(t), "320Mi")
	a.start()
	pv := a.volume("damaged", "64Mi")
	keep := data(1, 4<<20)
	mustWrite(t, filepath.Join(a.dir(pv), "keep"), keep)

	// An XFS that has shut itself down, as one does whose disk fails: the probe and
	// the doctor say so, and a restart mounts it again and replays its log.
	cutPower(t, a.root)
	if said := notReady(t); !strings.Contains(said, "restart podnas") || !strings.Contains(said, a.image) {
		t.Errorf("of an XFS that is shut down the probe says\n%s", said)
	}
	out, err := exec.Command(os.Getenv("PODNAS"), "doctor", "--root", a.root).CombinedOutput()
	if exit := (&exec.ExitError{}); !errors.As(err, &exit) || !strings.Contains(string(out), "restart podnas") {
		t.Errorf("of an XFS that is shut down the doctor says (%v)\n%s", err, out)
	}
	a.kill()
	a.start()
	holds(t, filepath.Join(a.dir(pv), "keep"), keep)
	if out := command(t, os.Getenv("PODNAS"), "doctor", "--root", a.root); !strings.Contains(out, "Nothing is wrong.") {
		t.Errorf("after a restart the doctor says\n%s", out)
	}
	a.stop()
	a.gone()
	command(t, "xfs_repair", "-n", a.image) // it was unmounted well: nothing is wrong in it

	// The checksum of the superblock, at sb_crc of struct xfs_dsb.
	overwriteAt(t, a.image, 224, make([]byte, 4))
	before := sum(t, a.image)
	said := podnasFails(t, os.Getenv("PODNAS"), t.TempDir(), a.args[len(a.args)-1])
	fix := regexp.MustCompile(`xfs_repair /\S+`).FindString(said)
	if fix != "xfs_repair "+a.image || !strings.Contains(said, "damaged") {
		t.Fatalf("of a damaged image podnas says, without what to run:\n%s", said)
	}
	if sum(t, a.image) != before {
		t.Error("a damaged image was written to")
	}
	command(t, "sh", "-c", fix)
	a.start()
	holds(t, filepath.Join(a.dir(pv), "keep"), keep)
	a.stop()
	a.gone()
}

// notReady is what the readiness probe says is wrong, as soon as it says so: what it has found
// is good for a second.
func notReady(t *testing.T) (said string) {
	t.Helper()
	eventually(t, "the probe fails", func() bool {
		resp, err := http.Get("http://" + probes + "/readyz")
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		said = string(body)
		return resp.StatusCode == http.StatusServiceUnavailable
	})
	return said
}

func overwriteAt(t *testing.T, name string, offset int64, b []byte) {
	t.Helper()
	f, err := os.OpenFile(name, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	_, err = f.WriteAt(b, offset)
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		t.Fatal(err)
	}
}

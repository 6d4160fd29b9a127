//go:build !e2e

package e2e

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/podnas/podnas/test/testdisk"
)

// Where the history is not there, as in a shallow clone, the upgrade is from the present
// code, and previous.sh says so. In CI that is an error.
func TestPreviousWithoutHistory(t *testing.T) {
	repository, out := t.TempDir(), t.TempDir()
	if text, err := exec.Command("git", "init", "--quiet", "--bare", repository).CombinedOutput(); err != nil {
		t.Fatalf("git init: %v\n%s", err, text)
	}
	cmd := exec.Command("./previous.sh", out)
	cmd.Env = append(os.Environ(), "GIT_DIR="+repository, "CI=true")
	if text, err := cmd.CombinedOutput(); err == nil || !strings.Contains(string(text), "clone with history") {
		t.Errorf("previous.sh in CI: %v\n%s", err, text)
	}
	t.Run("not in CI", func(t *testing.T) {
		testdisk.OnlyCI(t) // it builds podnas once more
		cmd := exec.Command("./previous.sh", out)
		cmd.Env = append(os.Environ(), "GIT_DIR="+repository, "CI=")
		text, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("previous.sh: %v\n%s", err, text)
		}
		if !strings.Contains(string(text), "previous IS THE PRESENT CODE") {
			t.Errorf("previous.sh does not say what it took:\n%s", text)
		}
		present, err := os.ReadFile("../../deploy/podnas.yaml")
		if err != nil {
			t.Fatal(err)
		}
		manifest, err := os.ReadFile(filepath.Join(out, "previous.yaml"))
		if err != nil {
			t.Fatal(err)
		}
		if want := regexp.MustCompile(`(image: ghcr\.io/podnas/podnas:).*`).ReplaceAll(present, []byte("${1}previous")); !bytes.Equal(manifest, want) {
			t.Errorf("the manifest is not the present one with another tag:\n%s", manifest)
		}
		if image, err := os.Stat(filepath.Join(out, "podnas-previous.tar")); err != nil || image.Size() == 0 {
			t.Errorf("there is no image: %v", err)
		}
	})
}

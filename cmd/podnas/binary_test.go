package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
)

// builtPodnas builds podnas once, without the race detector and its memory, for the tests that
// look at a process of podnas from outside.
var builtPodnas = sync.OnceValues(func() (string, error) {
	path := filepath.Join(binaryDir, "podnas")
	if out, err := exec.Command("go", "build", "-o", path, ".").CombinedOutput(); err != nil {
		return "", fmt.Errorf("build podnas: %w\n%s", err, out)
	}
	return path, nil
})

// binaryDir is where it is, until all tests have ended.
var binaryDir string

func TestMain(m *testing.M) {
	var err error
	if binaryDir, err = os.MkdirTemp("", "podnas"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := m.Run()
	os.RemoveAll(binaryDir)
	os.Exit(code)
}

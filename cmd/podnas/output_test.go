package main

import (
	"errors"
	"os"
	"strings"
	"syscall"
	"testing"
)

// What can't be printed is an error, also where it is a sentence.
func TestFullOutput(t *testing.T) {
	root, _ := serveStandalone(t)
	t.Setenv("PODNAS_ROOT", root)
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer full.Close()
	for _, command := range []string{
		"client list", "client list -o json", "mounted", "mounted --wait", "mounted -o yaml", "volume create a --size 1Mi", "volume list", "volume list -o name",
		"volume show a", "volume resize a 2Mi", "volume delete a --yes", "volume --help", "volume", "version", "completion bash",
	} {
		cmd := newCommand()
		cmd.SetArgs(strings.Fields(command))
		cmd.SetIn(strings.NewReader(""))
		cmd.SetOut(full)
		cmd.SetErr(&syncBuffer{})
		if err := execute(t.Context(), cmd); exitCode(err) != exitFailed || !errors.Is(err, syscall.ENOSPC) {
			t.Errorf("%s: %v, exit code %d", command, err, exitCode(err))
		}
	}
}

//go:build e2e

package e2e

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// podnas runs one of podnas's own commands in its pod, which the plug-in of kubectl finds.
func podnas(t *testing.T, args ...string) string {
	t.Helper()
	return kubectl(t, append([]string{"podnas"}, args...)...)
}

// apply gives manifests to the cluster.
func apply(t *testing.T, manifests string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "manifests.yaml")
	if err := os.WriteFile(file, []byte(manifests), 0o600); err != nil {
		t.Fatal(err)
	}
	kubectl(t, "apply", "-f", file)
}

// kubectl runs kubectl and returns what it prints.
func kubectl(t *testing.T, args ...string) string {
	t.Helper()
	out, err := tryKubectl(t, args...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func tryKubectl(t *testing.T, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	cmd := kubectlCommand(ctx, args...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return stdout.String(), fmt.Errorf("kubectl %s: %w\n%s", strings.Join(args, " "), err, stderr.Bytes())
	}
	return stdout.String(), nil
}

func kubectlCommand(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, filepath.Join(cluster.bin, "kubectl"), args...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+cluster.kubeconfig)
	return cmd
}

// describeAll shows the state of the cluster after a failure.
func describeAll(t *testing.T) {
	for _, args := range [][]string{
		{"get", "pods,pvc,pv,svc,endpointslices", "-A", "-o", "wide"},
		{"get", "events", "-A", "--sort-by=.lastTimestamp"},
		{"-n", "podnas", "logs", "podnas-0", "--tail=60"},
		{"-n", "podnas", "logs", "podnas-0", "--tail=30", "--previous"},
		{"-n", "podnas", "describe", "pod", "podnas-0"},
		{"logs", "writer", "--tail=20"},
		{"exec", "disk", "--", "ls", "-lanR", "/disk"},
	} {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		out, err := kubectlCommand(ctx, args...).CombinedOutput()
		cancel()
		t.Logf("kubectl %s (%v)\n%s", strings.Join(args, " "), err, out)
	}
}

func eventually(t *testing.T, timeout time.Duration, what string, isTrue func() bool) {
	t.Helper()
	deadline := time.Now().Add(timeout)
	for !isTrue() {
		if time.Now().After(deadline) {
			t.Fatalf("not within %s: %s", timeout, what)
		}
		time.Sleep(500 * time.Millisecond)
	}
}

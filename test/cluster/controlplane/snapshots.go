package controlplane

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// SnapshotCRDs returns the folder of a kustomization with the CustomResourceDefinitions of VolumeSnapshots, of the version
// that module, the folder of snapshotcontroller/go.mod, names.
func SnapshotCRDs(ctx context.Context, module string) (string, error) {
	cmd := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", "github.com/kubernetes-csi/external-snapshotter/client/v8")
	cmd.Dir, cmd.Env = module, append(os.Environ(), "GOFLAGS=-mod=readonly", "GOWORK=off")
	dir, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("find the CustomResourceDefinitions of VolumeSnapshots: %w", err)
	}
	return filepath.Join(strings.TrimSpace(string(dir)), "config", "crd"), nil
}

// StartSnapshotController starts the stock snapshot-controller, which ends with the control plane. It gives up where the
// CustomResourceDefinitions are missing.
func (c *ControlPlane) StartSnapshotController() error {
	return c.startController("snapshot-controller", []string{"--kubeconfig=" + c.Kubeconfig(), "--retry-interval-max=5s"})
}

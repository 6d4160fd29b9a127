//go:build vm

package vm_test

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"sigs.k8s.io/yaml"
)

// persistentVolume is as much of a PersistentVolume as kubelet reads to mount it,
// and these tests to judge it.
type persistentVolume struct {
	Metadata struct {
		Name string `json:"name"`
	} `json:"metadata"`
	Spec struct {
		Capacity map[string]string `json:"capacity"`
		NFS      struct {
			Server string `json:"server"`
			Path   string `json:"path"`
		} `json:"nfs"`
		MountOptions []string `json:"mountOptions"`
		ClaimRef     struct {
			Name string `json:"name"`
		} `json:"claimRef"`
		ReclaimPolicy string `json:"persistentVolumeReclaimPolicy"`
	} `json:"spec"`
}

const class = `apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata:
  name: %s
provisioner: podnas.io/nfs
reclaimPolicy: %s
`

const claim = `apiVersion: v1
kind: PersistentVolumeClaim
metadata:
  name: %s
  namespace: default
spec:
  storageClassName: %s
  accessModes: [ReadWriteMany]
  resources:
    requests:
      storage: %s
`

// class writes a StorageClass, with options to go under mountOptions. Without a version among
// them its volumes mount with that of the run, which is podnas's own choice or version 3.
func (a *appliance) class(name, reclaimPolicy string, mountOptions ...string) {
	a.t.Helper()
	// A class without a version has 4.2.
	if version := cmp.Or(os.Getenv("NFS"), "3"); version != "4.2" && !slices.ContainsFunc(mountOptions, func(o string) bool { return strings.HasPrefix(o, "nfsvers=") }) {
		mountOptions = append(slices.Clone(mountOptions), "nfsvers="+version)
	}
	text := fmt.Sprintf(class, name, reclaimPolicy)
	if len(mountOptions) > 0 {
		text += "mountOptions: [" + strings.Join(mountOptions, ", ") + "]\n"
	}
	a.manifest("class-"+name, text)
}

// claim writes a claim of a class.
func (a *appliance) claim(name, class, size string) {
	a.t.Helper()
	a.manifest(name, fmt.Sprintf(claim, name, class, size))
}

// unclaim removes the claim's file.
func (a *appliance) unclaim(name string) {
	a.t.Helper()
	if err := os.Remove(filepath.Join(a.claims, name+".yaml")); err != nil {
		a.t.Fatal(err)
	}
}

func (a *appliance) manifest(name, text string) {
	a.t.Helper()
	if err := os.WriteFile(filepath.Join(a.claims, name+".yaml"), []byte(text), 0o644); err != nil {
		a.t.Fatal(err)
	}
}

// volume claims size of a class that deletes, and returns the volume it becomes.
func (a *appliance) volume(name, size string) persistentVolume {
	a.t.Helper()
	a.class("standard", "Delete")
	a.claim(name, "standard", size)
	return a.provisioned(name)
}

// provisioned waits for the claim's volume.
func (a *appliance) provisioned(claim string) persistentVolume {
	a.t.Helper()
	var pv persistentVolume
	eventually(a.t, "a volume for claim "+claim, func() bool {
		found, ok := a.find(claim)
		pv = found
		return ok
	})
	return pv
}

// find looks through CLAIMS/provisioned for the claim's volume.
func (a *appliance) find(claim string) (persistentVolume, bool) {
	a.t.Helper()
	files, err := filepath.Glob(filepath.Join(a.claims, "provisioned", "*.yaml"))
	if err != nil {
		a.t.Fatal(err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if os.IsNotExist(err) {
			continue // removed meanwhile
		}
		if err != nil {
			a.t.Fatal(err)
		}
		var pv persistentVolume
		if err := yaml.Unmarshal(text, &pv); err != nil {
			a.t.Fatalf("%s: %v\n%s", file, err, text)
		}
		if pv.Spec.ClaimRef.Name != claim {
			continue
		}
		if got := strings.TrimSuffix(filepath.Base(file), ".yaml"); got != pv.Metadata.Name {
			a.t.Errorf("%s is named %q inside", file, pv.Metadata.Name)
		}
		return pv, true
	}
	return persistentVolume{}, false
}

// dir is where the volume lies on the disk.
func (a *appliance) dir(pv persistentVolume) string { return filepath.Join(a.root, pv.Metadata.Name) }

// trash lists what the trash still holds.
func (a *appliance) trash() []os.DirEntry {
	a.t.Helper()
	entries, err := os.ReadDir(filepath.Join(a.root, ".podnas", "trash"))
	if err != nil && !os.IsNotExist(err) {
		a.t.Fatal(err)
	}
	return entries
}

// mountCommand is what kubelet runs for the volume: it puts an IPv6 server in
// brackets, and the options through a set, so they come sorted (nfs.go and
// JoinMountOptions in k8s.io/kubernetes/pkg/volume).
func mountCommand(ctx context.Context, pv persistentVolume, target string) *exec.Cmd {
	return mountCommandWith(ctx, pv, pv.Spec.MountOptions, target)
}

func mountCommandWith(ctx context.Context, pv persistentVolume, options []string, target string) *exec.Cmd {
	server := pv.Spec.NFS.Server
	if strings.Contains(server, ":") {
		server = "[" + server + "]"
	}
	options = slices.Compact(slices.Sorted(slices.Values(options)))
	return exec.CommandContext(ctx, "mount", "-t", "nfs", "-o", strings.Join(options, ","), server+":"+pv.Spec.NFS.Path, target)
}

// mount mounts the volume until the test ends.
func mount(t *testing.T, pv persistentVolume) string {
	t.Helper()
	return mountWith(t, pv, pv.Spec.MountOptions)
}

func mountWith(t *testing.T, pv persistentVolume, options []string) string {
	t.Helper()
	target := t.TempDir()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if out, err := mountCommandWith(ctx, pv, options, target).CombinedOutput(); err != nil {
		t.Fatalf("mount %s: %v\n%s", pv.Metadata.Name, err, out)
	}
	t.Cleanup(func() { unmount(t, target) })
	return target
}

// unmount unmounts target, by force where that takes too long: it writes what
// the client still holds, and so hangs when the server is gone.
func unmount(t *testing.T, target string) {
	t.Helper()
	done := make(chan error, 1)
	go func() { done <- unix.Unmount(target, 0) }()
	select {
	case err := <-done:
		if err == nil {
			return
		}
		t.Errorf("unmount %s: %v", target, err)
	case <-time.After(time.Minute):
		t.Errorf("unmount %s hangs", target)
	}
	if err := unix.Unmount(target, unix.MNT_FORCE|unix.MNT_DETACH); err != nil {
		t.Errorf("unmount %s by force: %v", target, err)
	}
}

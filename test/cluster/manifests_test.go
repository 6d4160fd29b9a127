//go:build cluster

package cluster_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// prometheusOperator is where the definitions of ServiceMonitor and its like are
// taken from, as its users install them.
const prometheusOperator = "github.com/prometheus-operator/prometheus-operator@v0.85.0"

// The API server takes everything in deploy/ that a user applies: every field
// is known to it, and every object valid.
func TestManifests(t *testing.T) {
	installMonitoring(t)
	if _, err := snapshotAPI(); err != nil {
		t.Fatal(err)
	}
	for _, path := range files(t, "../../deploy/podnas.yaml", "../../deploy/examples/*.yaml", "../../deploy/examples/*/*.yaml", "../../deploy/components/disk-image/repair.yaml") {
		if filepath.Base(path) == "kustomization.yaml" {
			continue // it is below
		}
		t.Run(filepath.Base(path), func(t *testing.T) { dryRun(t, nil, "-f", path) })
	}
	t.Run("ha/repair.yaml", func(t *testing.T) {
		text, err := os.ReadFile("../../deploy/components/ha/repair.yaml")
		if err != nil {
			t.Fatal(err)
		}
		// In a namespace that lets privileged pods in, as the overlay's does.
		dryRun(t, bytes.Replace(text, []byte("namespace: podnas"), []byte("namespace: default"), 1), "-f", "-")
	})
	var applied []byte // the rights that the cluster has
	t.Cleanup(func() {
		if err := applyRBAC(context.Background(), "../../deploy/base"); err != nil {
			t.Error(err)
		}
	})
	for _, path := range kustomizations(t, "../../deploy") {
		t.Run(strings.TrimPrefix(path, "../../deploy/"), func(t *testing.T) {
			rendered, err := kubectl(t.Context(), nil, "kustomize", path) // as kubectl apply -k does
			if err != nil {
				t.Fatal(err)
			}
			if strings.Contains(path, "/overlays/") {
				// A dry run doesn't change the Namespace, whose label says what
				// its pods may ask for.
				rights, err := rbac(rendered)
				if err != nil {
					t.Fatal(err)
				}
				if !bytes.Equal(rights, applied) {
					if _, err := kubectl(t.Context(), rights, "apply", "-f", "-"); err != nil {
						t.Fatal(err)
					}
					applied = rights
				}
			}
			dryRun(t, rendered, "-f", "-")
		})
	}
}

// It takes what the Helm chart makes too. That the chart makes what the overlays do is
// test/chart's to check; here is what only the chart has.
func TestChart(t *testing.T) {
	installMonitoring(t)
	for name, values := range map[string]string{
		"default":    `{}`,
		"disk image": `{"disk": {"hostPath": "/srv"}, "nodeSelector": {"disk": "large"}, "diskImage": {"size": "9Gi"}}`,
		"most of it": `{
			"imagePullSecrets": [{"name": "secret"}],
			"provisioner": "example.com/nas",
			"disk": {"existingClaim": "old"},
			"overcommit": 1.5,
			"log": {"level": "debug", "format": "json"},
			"extraArgs": ["--workers=5"],
			"nodeSelector": {"disk": "large"},
			"tolerations": [{"key": "disk", "operator": "Exists", "effect": "NoSchedule"}],
			"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
				{"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "busy"}}}
			]}},
			"priorityClassName": "system-cluster-critical",
			"image": {"digest": "sha256:` + strings.Repeat("0a", 32) + `"},
			"fullnameOverride": "nas",
			"commonLabels": {"team": "storage"},
			"extraEnv": [{"name": "GOMEMLIMIT", "value": "1GiB"}],
			"podAnnotations": {"note": "x"},
			"podLabels": {"note": "x"},
			"serviceAccount": {"annotations": {"note": "x"}},
			"service": {"clusterIP": "fd00:10:96::77", "ipFamilies": ["IPv6"], "ipFamilyPolicy": "SingleStack", "annotations": {"note": "x"}},
			"storageClass": {
				"name": "team", "default": true, "reclaimPolicy": "Retain", "volumeBindingMode": "WaitForFirstConsumer",
				"parameters": {"gid": "1001"}, "mountOptions": ["hard"]
			},
			"networkPolicy": {"enabled": true, "nodes": ["172.18.0.0/16", "fd00::/8"], "http": [{"namespaceSelector": {"matchLabels": {"app": "prometheus"}}}]},
			"guard": {"enabled": true},
			"monitoring": {"podMonitor": true, "serviceMonitor": true, "rules": true, "dashboard": true, "labels": {"release": "prometheus"}}
		}`,
	} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "values.yaml") // JSON is YAML
			if err := os.WriteFile(file, []byte(values), 0o600); err != nil {
				t.Fatal(err)
			}
			rendered, err := helm("template", "podnas", "../../deploy/helm/podnas", "--namespace", podnasNamespace, "--values", file)
			if err != nil {
				t.Fatal(err)
			}
			if name == "disk image" { // as the chart's notes say
				setEnforced(t, podnasNamespace, "privileged")
				defer setEnforced(t, podnasNamespace, "baseline")
				eventually(t, 10*time.Second, "the API server sees the label", func() bool {
					_, err := kubectl(t.Context(), []byte(rendered), "apply", "--dry-run=server", "-f", "-")
					return err == nil
				})
			}
			dryRun(t, []byte(rendered), "-f", "-")
		})
	}
}

// helm runs Helm as the administrator and returns what it prints.
func helm(args ...string) (string, error) {
	args = append([]string{"tool", "-modfile=../tools/helm/go.mod", "helm", "--kubeconfig=" + cluster.plane.Kubeconfig()}, args...)
	return output("go", args...)
}

// kustomizations returns the folders below dir that are for kubectl apply -k.
func kustomizations(t *testing.T, dir string) []string {
	t.Helper()
	var found []string
	err := filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		if err != nil || filepath.Base(path) != "kustomization.yaml" {
			return err
		}
		text, err := os.ReadFile(path)
		if bytes.Contains(text, []byte("\nkind: Kustomization\n")) {
			found = append(found, filepath.Dir(path))
		}
		return err
	})
	if err != nil || !slices.Contains(found, dir+"/base") || !slices.Contains(found, dir+"/overlays/kind") {
		t.Fatalf("%v: found %q", err, found)
	}
	return found
}

// installMonitoring makes the kinds of the Prometheus operator known to the API
// server, which then checks theirs too.
func installMonitoring(t *testing.T) {
	t.Helper()
	answer, err := output("go", "mod", "download", "-json", prometheusOperator)
	if err != nil {
		t.Fatal(err)
	}
	var module struct{ Dir string }
	if err := json.Unmarshal([]byte(answer), &module); err != nil {
		t.Fatal(err)
	}
	for _, kind := range []string{"servicemonitors", "podmonitors", "prometheusrules"} {
		name := "monitoring.coreos.com_" + kind
		// Not by kubectl apply alone, which keeps a copy in an annotation: too large for one.
		file := filepath.Join(module.Dir, "example/prometheus-operator-crd", name+".yaml")
		if _, err := kubectl(t.Context(), nil, "apply", "--server-side", "-f", file); err != nil {
			t.Fatal(err)
		}
		eventually(t, 30*time.Second, kind+" is established", func() bool { // kubectl fails while there is no condition at all
			_, err := kubectl(t.Context(), nil, "wait", "--for=condition=Established", "--timeout=5s", "crd/"+kind+".monitoring.coreos.com")
			return err == nil
		})
	}
}

// dryRun has the API server do all of an apply but keep it, or of a create where the file is for that: an object of
// generateName can't be applied. kubectl fails here on a warning too.
func dryRun(t *testing.T, stdin []byte, flag, path string) {
	t.Helper()
	verb := "apply"
	if text, err := os.ReadFile(path); err == nil && bytes.Contains(text, []byte("generateName:")) {
		verb = "create"
	}
	out, err := kubectl(t.Context(), stdin, verb, "--dry-run=server", flag, path)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%s", out)
}

// files returns what matches the patterns, of which each matches something.
func files(t *testing.T, patterns ...string) []string {
	t.Helper()
	var all []string
	for _, pattern := range patterns {
		paths, err := filepath.Glob(pattern)
		if err != nil || len(paths) == 0 {
			t.Fatalf("nothing in %s (%v)", pattern, err)
		}
		all = append(all, paths...)
	}
	return all
}

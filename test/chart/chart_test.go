//go:build chart

// Package chart_test holds the Helm chart to the manifests that kubectl applies:
// for each overlay there are values that make the same objects of the chart, so that
// neither can be changed alone.
package chart_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"sigs.k8s.io/yaml"
)

const (
	deploy = "../../deploy/"
	chart  = deploy + "helm/podnas"
)

type object map[string]any

// movable is the end of values that do what components/movable does.
const movable = `, "tolerations": [
	{"key": "node.kubernetes.io/unreachable", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 30},
	{"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 30}
]}`

func TestSameAsManifests(t *testing.T) {
	for _, tt := range []struct {
		kustomization string
		values        string
	}{
		{"base", `{}`},
		{"overlays/kind", `{"image": {"pullPolicy": "Never"}, "disk": {"storageClassName": "standard"}}`},
		{"overlays/minikube", `{
			"image": {"pullPolicy": "Never"}, "disk": {"storageClassName": "standard"},
			"nodeSelector": {"minikube.k8s.io/primary": "true"}
		}`},
		{"overlays/k3s", `{"disk": {"storageClassName": "local-path"}}`},
		{"overlays/piraeus", `{"disk": {"storageClassName": "podnas-piraeus"}` + movable},
		{"overlays/longhorn", `{"disk": {"storageClassName": "podnas-longhorn"}` + movable},
		{"overlays/ceph-rbd", `{"disk": {"storageClassName": "podnas-ceph-rbd"}` + movable},
		{"overlays/mayastor", `{"disk": {"storageClassName": "podnas-mayastor"}` + movable},
		{"overlays/iscsi", `{"disk": {"storageClassName": "podnas-iscsi"}` + movable},
		{"overlays/hostpath", `{"disk": {"hostPath": "/var/lib/podnas"}, "nodeSelector": {"podnas.io/disk": "true"}}`},
		{"overlays/xfs-quota", `{"quota": "kernel"}`},
		{"overlays/disk-image", `{"diskImage": {"size": "9Gi"}}`},
		{"overlays/ha", `{"ha": {"enabled": true}, "disk": {"storageClassName": "podnas-ha"}` + movable},
		{"overlays/handles", `{"kernelHandles": true}`},
		{"overlays/restricted", `{"podSecurity": "restricted"}`},
		{"overlays/ipv6", `{"service": {"ipFamilies": ["IPv6"], "ipFamilyPolicy": "SingleStack"}}`},
		{"overlays/networkpolicy-nfs", `{"networkPolicy": {"enabled": true, "nodes": ["172.18.0.0/16"]}}`},
		{"overlays/drain", `{"drain": {"enabled": true}}`},
		{"overlays/node-failure", `{"nodeFailure": {"enabled": true}}`},
		{"overlays/guard", `{"guard": {"enabled": true}}`},
		{"overlays/snapshots", `{"snapshots": {"enabled": true}}`},
		{"monitoring", `{"monitoring": {"podMonitor": true, "rules": true, "dashboard": true}}`},
	} {
		t.Run(tt.kustomization, func(t *testing.T) {
			want := objects(t, tool(t, kustomize, "build", deploy+tt.kustomization))
			if tt.kustomization == "monitoring" { // goes beside the base
				maps.Copy(want, objects(t, tool(t, kustomize, "build", deploy+"base")))
			}
			// helm install --create-namespace makes it; NOTES.txt says how to label it.
			delete(want, "Namespace podnas")
			// The disk's own class, or the disk itself: with the chart it is applied by its file (deploy/README.md).
			disk := strings.Replace(tt.kustomization, "overlays/", " podnas-", 1)
			delete(want, "StorageClass"+disk)
			delete(want, "PersistentVolume"+disk)
			got := objects(t, render(t, "podnas", "podnas", tt.values))
			if diff := difference(t, want, got); diff != "" {
				t.Errorf("the chart with %s does not make what deploy/%s does (-), but (+):\n%s", tt.values, tt.kustomization, diff)
			}
		})
	}
}

// What is refused is refused before anything is installed.
func TestSchema(t *testing.T) {
	for _, tt := range []struct{ name, values, want string }{
		{"a slip", `{"disk": {"sise": "10Gi"}}`, "sise"},
		{"no size", `{"disk": {"size": "lots"}}`, "/disk/size"},
		{"two disks", `{"disk": {"existingClaim": "a", "hostPath": "/b"}}`, "/disk"},
		{"a label that is the chart's own", `{"podLabels": {"app.kubernetes.io/name": "a"}}`, "app.kubernetes.io/name"},
		{"a label by which podnas finds who serves", `{"podLabels": {"podnas.io/role": "active"}}`, "podnas.io/role"},
		{"a delay that is longer than the pod has to end", `{"shutdownDelay": "1m"}`, "terminationGracePeriodSeconds"},
		{"half a digest", `{"image": {"digest": "sha256:12"}}`, "/image/digest"},
		{"a priority of the system's", `{"priorityClass": {"value": 2000000000}}`, "/priorityClass/value"},
		{"a folder of no node", `{"disk": {"hostPath": "/srv"}}`, "/nodeSelector"},
		{"a level that asks for nothing", `{"podSecurity": "privileged"}`, "/podSecurity"},
		{"the kernel's handles need more than restricted", `{"podSecurity": "restricted", "kernelHandles": true}`, "/kernelHandles"},
		{"kernel quotas need more than restricted", `{"podSecurity": "restricted", "quota": "kernel"}`, "/quota"},
		{"root is not restricted", `{"podSecurity": "restricted", "runAsUser": 0}`, "/runAsUser"},
		{"a folder needs more than restricted", `{"podSecurity": "restricted", "disk": {"hostPath": "/srv"}, "nodeSelector": {"a": "b"}}`, "/disk/hostPath"},
		{"a disk image needs more than restricted", `{"podSecurity": "restricted", "diskImage": {"size": "9Gi"}}`, "/podSecurity"},
		{"a disk image whose quotas nobody uses", `{"quota": "server", "diskImage": {"size": "9Gi"}}`, "/quota"},
		{"two podnas that are restricted", `{"podSecurity": "restricted", "ha": {"enabled": true}}`, "/podSecurity"},
		{"two podnas and a folder of one node", `{"ha": {"enabled": true}, "disk": {"hostPath": "/srv"}, "nodeSelector": {"a": "b"}}`, "/disk/hostPath"},
		{"two podnas and a file", `{"ha": {"enabled": true}, "diskImage": {"size": "9Gi"}}`, "/diskImage/size"},
		{"two podnas whose quotas nobody uses", `{"ha": {"enabled": true}, "quota": "server"}`, "/quota"},
		{"a parameter that is no string", `{"storageClass": {"parameters": {"gid": 1001}}}`, "/storageClass/parameters/gid"},
		{"a provisioner without a domain", `{"provisioner": "podnas"}`, "/provisioner"},
		{"a NetworkPolicy that lets no node in", `{"networkPolicy": {"enabled": true}}`, "/networkPolicy/nodes"},
		{"a policy that is no switch", `{"policy": true}`, "/policy"},
		{"a right that is no switch", `{"drain": {"enable": true}}`, "enable"},
		{"a guard that is no switch", `{"guard": true}`, "/guard"},
		{"a slip in the monitoring", `{"monitoring": {"serviceMonitr": true}}`, "serviceMonitr"},
		{"a node that is no network", `{"networkPolicy": {"enabled": true, "nodes": ["10.0.0.1"]}}`, "/networkPolicy/nodes/0"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			out, err := tryRender("podnas", "podnas", tt.values)
			if err == nil {
				t.Fatalf("taken:\n%s", out)
			}
			if !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%v\nwant an error with %q", err, tt.want)
			}
		})
	}
}

// Every value does something: it changes what is rendered.
func TestValues(t *testing.T) {
	digest, long := strings.Repeat("0a", 32), strings.Repeat("a", 62)
	plain := string(render(t, "podnas", "podnas", `{}`))
	for want, values := range map[string]string{
		"image: \"example.com/nas:v2\"":       `{"image": {"repository": "example.com/nas", "tag": "v2"}}`,
		"version: \"v2\"":                     `{"image": {"tag": "v2"}}`,
		"version: \"" + long + "\"\n":         `{"image": {"tag": "` + long + `-b"}}`, // longer than a label may be
		"- name: secret":                      `{"imagePullSecrets": [{"name": "secret"}]}`,
		"- --provisioner=example.com/nas":     `{"provisioner": "example.com/nas"}`,
		"orValue('') == 'example.com/nas'":    `{"provisioner": "example.com/nas"}`,
		"name: podnas-drain":                  `{"drain": {"enabled": true}}`,
		"name: podnas-node-failure":           `{"nodeFailure": {"enabled": true}}`,
		"storage: 1Ti":                        `{"disk": {"size": "1Ti"}}`,
		"claimName: old":                      `{"disk": {"existingClaim": "old"}}`,
		"- --overcommit=1.5":                  `{"overcommit": 1.5}`,
		"- --log-level=debug":                 `{"log": {"level": "debug"}}`,
		"- --log-format=json":                 `{"log": {"format": "json"}}`,
		"- --workers=5":                       `{"extraArgs": ["--workers=5"]}`,
		"- --shutdown-delay=1s":               `{"shutdownDelay": "1s"}`,
		"terminationGracePeriodSeconds: 90":   `{"terminationGracePeriodSeconds": 90}`,
		"memory: 1Gi":                         `{"resources": {"requests": {"memory": "1Gi"}}}`,
		"- key: disk":                         `{"tolerations": [{"key": "disk"}]}`,
		"nodeAffinity: {}":                    `{"affinity": {"nodeAffinity": {}}}`,
		"podnas.io/role: active":              `{"ha": {"enabled": true}}`,
		"kind: PodDisruptionBudget":           `{"ha": {"enabled": true}}`,
		"priorityClassName: high":             `{"priorityClassName": "high"}`,
		"value: 5\n":                          `{"priorityClass": {"value": 5}}`,
		"@sha256:" + digest:                   `{"image": {"digest": "sha256:` + digest + `"}}`,
		"name: nas-0":                         `{"fullnameOverride": "nas-0"}`,
		"team: a\n":                           `{"commonLabels": {"team": "a"}}`,
		"        team: a\n    spec:":          `{"podLabels": {"team": "a"}}`,
		"- name: GOMEMLIMIT":                  `{"extraEnv": [{"name": "GOMEMLIMIT", "value": "1GiB"}]}`,
		"annotations:\n    role: a":           `{"serviceAccount": {"annotations": {"role": "a"}}}`,
		"kind: ServiceMonitor":                `{"monitoring": {"serviceMonitor": true}}`,
		"annotations:\n        note: x":       `{"podAnnotations": {"note": "x"}}`,
		"clusterIP: \"10.96.7.7\"":            `{"service": {"clusterIP": "10.96.7.7"}}`,
		"\n    note: x":                       `{"service": {"annotations": {"note": "x"}}}`,
		"name: team":                          `{"storageClass": {"name": "team"}}`,
		"is-default-class: \"true\"":          `{"storageClass": {"default": true}}`,
		"reclaimPolicy: Retain":               `{"storageClass": {"reclaimPolicy": "Retain"}}`,
		"WaitForFirstConsumer":                `{"storageClass": {"volumeBindingMode": "WaitForFirstConsumer"}}`,
		"allowVolumeExpansion: false":         `{"storageClass": {"allowVolumeExpansion": false}}`,
		"parameters:\n  gid: \"1001\"":        `{"storageClass": {"parameters": {"gid": "1001"}}}`,
		"mountOptions:\n  - hard":             `{"storageClass": {"mountOptions": ["hard"]}}`,
		"oldObject.metadata.name == 'old' ||": `{"guard": {"enabled": true}, "disk": {"existingClaim": "old"}}`,
		"kind: PodMonitor":                    `{"monitoring": {"podMonitor": true}}`,
		"kind: PrometheusRule":                `{"monitoring": {"rules": true}}`,
		"kind: ConfigMap":                     `{"monitoring": {"dashboard": true}}`,
		"    release: prometheus\nspec":       `{"monitoring": {"podMonitor": true, "labels": {"release": "prometheus"}}}`,
		"    release: prometheus\n# The":      `{"monitoring": {"rules": true, "labels": {"release": "prometheus"}}}`,
		"namespaceSelector: {}\n      ports:\n        - port: http": `{"networkPolicy": {"enabled": true, "nodes": ["fd00::/8"], "http": [{"namespaceSelector": {}}]}}`,
	} {
		if strings.Contains(plain, want) {
			t.Errorf("%q is there without %s: this tests nothing", want, values)
		}
		if got := string(render(t, "podnas", "podnas", values)); !strings.Contains(got, want) {
			t.Errorf("with %s there is no %q in\n%s", values, want, got)
		}
	}
	const own = `{"ha": {"enabled": true}, "guard": {"enabled": true}, "affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
		{"topologyKey": "zone", "labelSelector": {"matchLabels": {"app": "other"}}}]}}}`
	apart := string(render(t, "podnas", "podnas", own))
	for _, want := range []string{"topologyKey: zone", "topologyKey: kubernetes.io/hostname", "kubectl podnas mounted -n ' + params.metadata.namespace +\n        ' --name podnas tells"} {
		if !strings.Contains(apart, want) {
			t.Errorf("with %s there is no %q in\n%s", own, want, apart)
		}
	}
	folder := string(render(t, "podnas", "podnas", `{"disk": {"hostPath": "/srv"}, "nodeSelector": {"a": "b"}, "diskImage": {"size": "9Gi"}}`))
	for _, want := range []string{"path: /srv", "emptyDir: {}", "mountPath: /disk"} {
		if !strings.Contains(folder, want) {
			t.Errorf("with a disk image in a folder there is no %q in\n%s", want, folder)
		}
	}
	for kind, values := range map[string]string{
		"kind: StorageClass":  `{"storageClass": {"create": false}}`,
		"kind: PriorityClass": `{"priorityClass": {"create": false}}`,
		"priorityClassName:":  `{"priorityClass": {"create": false}}`,
		"value: 1000000":      `{"priorityClassName": "high"}`,
	} {
		if got := string(render(t, "podnas", "podnas", values)); strings.Contains(got, kind) || !strings.Contains(plain, kind) {
			t.Errorf("with %s there is %q, or there is none without", values, kind)
		}
	}
}

// No object has a key twice, which Helm takes and kustomize does not, whatever labels are said twice. The last one said is the one.
func TestNoKeyTwice(t *testing.T) {
	const said = `{
		"commonLabels": {"team": "common", "other": "common"}, "podLabels": {"team": "pod"}, "service": {"annotations": {"helm.sh/resource-policy": "keep", "note": "x"}},
		"monitoring": {"podMonitor": true, "serviceMonitor": true, "rules": true, "dashboard": true, "labels": {"team": "monitoring", "app.kubernetes.io/part-of": "monitoring"}}
	}`
	rendered := render(t, "podnas", "podnas", said)
	for _, doc := range bytes.Split(append([]byte("\n"), rendered...), []byte("\n---\n")) {
		var o object
		if err := yaml.UnmarshalStrict(doc, &o); err != nil {
			t.Errorf("%v in\n%s", err, doc)
		}
	}
	for _, want := range []string{"        other: common\n        team: pod\n", "    helm.sh/resource-policy: keep\n    note: x\n", "    other: common\n    team: monitoring\n"} {
		if !strings.Contains(string(rendered), want) {
			t.Errorf("with %s there is no %q in\n%s", said, want, rendered)
		}
	}
}

// A cluster without policies gets none, and so does who wants none.
func TestWithoutPolicy(t *testing.T) {
	const policy = "kind: ValidatingAdmissionPolicy"
	for _, tt := range []struct {
		values, version string
		want            bool
	}{
		{`{}`, "v1.29.9", false},
		{`{}`, "v1.30.0-eks-1234567", true},
		{`{"policy": {"enabled": false}}`, "v1.36.0", false},
	} {
		out, err := run(strings.NewReader(tt.values), helm, "template", "podnas", chart, "--kube-version", tt.version, "--values", "-")
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(out), policy) != tt.want {
			t.Errorf("%s on Kubernetes %s: a policy is %v", tt.values, tt.version, !tt.want)
		}
	}
}

// A release may be called by a number, which is a label all the same.
func TestNumberedRelease(t *testing.T) {
	if got := string(render(t, "2024", "podnas", `{}`)); strings.Contains(got, "instance: 2024\n") || !strings.Contains(got, "instance: \"2024\"\n") {
		t.Errorf("the label of the release 2024 is no string:\n%s", got)
	}
}

// Two releases in one cluster share nothing.
func TestTwoReleases(t *testing.T) {
	const all = `"guard": {"enabled": true}, "monitoring": {"podMonitor": true, "rules": true}`
	second := render(t, "team", "team", `{"provisioner": "podnas.io/team", "storageClass": {"name": "team"}, `+all+`}`)
	first := objects(t, render(t, "podnas", "podnas", `{`+all+`}`))
	for key := range objects(t, second) {
		if _, shared := first[key]; shared {
			t.Errorf("both make %s", key)
		}
	}
	// Whatever is called podnas alone is the first one's; the container and the application are nobody's.
	others := regexp.MustCompile(`(^|[^-])\bpodnas-(0\.?\s|volumes)|'podnas'\s|-n podnas`)
	for line := range strings.Lines(strings.NewReplacer("- name: podnas\n", "", "app.kubernetes.io/part-of: podnas\n", "").Replace(string(second))) {
		f := strings.Fields(line)
		if len(f) > 0 && f[len(f)-1] == "podnas" || others.MatchString(line) {
			t.Errorf("the second release has the first one's name: %s", line)
		}
	}
}

// What helm install says at the end names what was installed.
func TestNotes(t *testing.T) {
	out := string(tool(t, helm, "install", "team", chart, "--namespace", "storage", "--dry-run=client",
		"--set", "storageClass.name=shared", "--set", "provisioner=podnas.io/team"))
	_, notes, found := strings.Cut(out, "NOTES:")
	if !found {
		t.Fatalf("no notes in\n%s", out)
	}
	for _, want := range []string{"team-podnas-0 -- podnas doctor", "-n storage", "storageClassName: shared", "namespace storage pod-security.kubernetes.io/enforce=baseline"} {
		if !strings.Contains(notes, want) {
			t.Errorf("no %q in\n%s", want, notes)
		}
	}
}

// They name the level of Pod Security that the same overlay's namespace has.
func TestNotesPodSecurity(t *testing.T) {
	for overlay, values := range map[string]string{
		"overlays/restricted": `{"podSecurity": "restricted"}`,
		"overlays/handles":    `{"kernelHandles": true}`,
		"overlays/xfs-quota":  `{"quota": "kernel"}`,
		"overlays/hostpath":   `{"disk": {"hostPath": "/var/lib/podnas"}, "nodeSelector": {"podnas.io/disk": "true"}}`,
		"overlays/disk-image": `{"diskImage": {"size": "9Gi"}}`,
		"overlays/ha":         `{"ha": {"enabled": true}}`,
		"overlays/kind":       `{}`,
	} {
		namespace := objects(t, tool(t, kustomize, "build", deploy+overlay))["Namespace podnas"]
		labels, _ := namespace["metadata"].(map[string]any)["labels"].(map[string]any)
		level, _ := labels["pod-security.kubernetes.io/enforce"].(string)
		out, err := run(strings.NewReader(values), helm, "install", "podnas", chart, "--dry-run=client", "--values", "-")
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(out), "pod-security.kubernetes.io/enforce="+level+"\n") || level == "" {
			t.Errorf("%s has the level %q, and the notes of %s say\n%s", overlay, level, values, out)
		}
	}
}

func TestLint(t *testing.T) {
	t.Log(string(tool(t, helm, "lint", "--strict", chart)))
}

// objects takes YAML documents apart, without what is Helm's own.
func objects(t *testing.T, rendered []byte) map[string]object {
	t.Helper()
	all := map[string]object{}
	for _, doc := range bytes.Split(append([]byte("\n"), rendered...), []byte("\n---\n")) {
		var o object
		if err := yaml.Unmarshal(doc, &o); err != nil {
			t.Fatalf("%v in\n%s", err, doc)
		}
		if len(o) == 0 {
			continue
		}
		metadata, ok := o["metadata"].(map[string]any)
		if !ok {
			t.Fatalf("no metadata in\n%s", doc)
		}
		for field, owned := range map[string][]string{
			"labels":      {"app.kubernetes.io/managed-by", "helm.sh/chart"},
			"annotations": {"helm.sh/resource-policy"},
		} {
			if m, ok := metadata[field].(map[string]any); ok {
				maps.DeleteFunc(m, func(key string, _ any) bool { return slices.Contains(owned, key) })
				if len(m) == 0 {
					delete(metadata, field)
				}
			}
		}
		key := fmt.Sprintf("%s %s", o["kind"], metadata["name"])
		if _, twice := all[key]; twice {
			t.Fatalf("%s is there twice", key)
		}
		all[key] = o
	}
	return all
}

// difference says how two sets of objects differ, as diff does.
func difference(t *testing.T, want, got map[string]object) string {
	t.Helper()
	files := [2]string{filepath.Join(t.TempDir(), "deploy"), filepath.Join(t.TempDir(), "chart")}
	for i, set := range []map[string]object{want, got} {
		text, err := yaml.Marshal(set) // ordered by key
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(files[i], text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	diff, err := exec.Command("diff", "-U5", files[0], files[1]).Output()
	if exit := (*exec.ExitError)(nil); err != nil && (!errors.As(err, &exit) || exit.ExitCode() != 1) {
		t.Fatal(err)
	}
	return string(diff)
}

func render(t *testing.T, release, namespace, values string) []byte {
	t.Helper()
	out, err := tryRender(release, namespace, values)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func tryRender(release, namespace, values string) ([]byte, error) {
	if !json.Valid([]byte(values)) {
		return nil, fmt.Errorf("the test's own values are no JSON: %s", values)
	}
	return run(strings.NewReader(values), helm, "template", release, chart, "--namespace", namespace, "--values", "-")
}

func tool(t *testing.T, program func() (string, error), args ...string) []byte {
	t.Helper()
	out, err := run(strings.NewReader(""), program, args...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func run(stdin io.Reader, program func() (string, error), args ...string) ([]byte, error) {
	path, err := program()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(path, args...)
	cmd.Stdin = stdin
	out, err := cmd.Output()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		return nil, fmt.Errorf("%s: %w\n%s", strings.Join(args, " "), err, exit.Stderr)
	}
	return out, err
}

// The programs, which go builds when they are first asked for: that takes minutes.
var (
	kustomize = sync.OnceValues(func() (string, error) { return build("../tools/go.mod", "kustomize") })
	helm      = sync.OnceValues(func() (string, error) { return build("../tools/helm/go.mod", "helm") })
)

// build returns where a tool's program is.
func build(module, name string) (string, error) {
	cmd := exec.Command("go", "tool", "-modfile="+module, "-n", name)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("build %s of test/%s: %w", name, module, err)
	}
	return strings.TrimSpace(string(out)), nil
}

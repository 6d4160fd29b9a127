//go:build e2e

package e2e

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// doctorPod tries the mount with podnas's own check.
const doctorPod = `{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "nfs4"}, "spec": {
	"restartPolicy": "Never", "terminationGracePeriodSeconds": 0,
	"volumes": [{"name": "shared", "persistentVolumeClaim": {"claimName": "locked"}}],
	"containers": [{"name": "doctor", "image": %q, "args": ["doctor", "mount", "/shared"], "volumeMounts": [{"name": "shared", "mountPath": "/shared"}]}]}}`

// class41 has a class whose volumes mount with 4.1.
const class41 = deploy + "examples/nfs41/storageclass.yaml"

// second is one more claim of a class, and a pod that has a file of it open.
const second = `{"apiVersion": "v1", "kind": "List", "items": [
{"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "second"}, "spec": {
	"storageClassName": %q, "accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "16Mi"}}}},
{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "second"}, "spec": {
	"restartPolicy": "Never", "terminationGracePeriodSeconds": 0,
	"volumes": [{"name": "second", "persistentVolumeClaim": {"claimName": "second"}}],
	"containers": [{"name": "second", "image": "busybox:stable", "imagePullPolicy": "IfNotPresent",
		"command": ["sh", "-c", "exec sleep infinity 3>/second/open"], "volumeMounts": [{"name": "second", "mountPath": "/second"}]}]}}]}`

// nodeHasBoth mounts a volume of a class on the node where a locker has one of the other minor version, and checks that
// podnas has one node there, beside that of the other locker.
func nodeHasBoth(t *testing.T, class, option string) {
	t.Helper()
	apply(t, fmt.Sprintf(second, class))
	kubectl(t, "wait", "--for=condition=Ready", "pod/second", "--timeout=180s")
	if got := boundVolume(t, "second").Spec.MountOptions; !slices.Contains(got, option) {
		t.Errorf("mount options %q, want %s", got, option)
	}
	list := podnas(t, "client", "list")
	if strings.Count(list, "Linux NFSv4 ") != 2 || strings.Count(list, " 4.1,4.2 ") != 1 {
		t.Errorf("podnas client list says\n%s\nwant two nodes, one of them with both minor versions", list)
	}
	kubectl(t, "delete", "pod", "second", "--timeout=180s")
	kubectl(t, "delete", "pvc", "second", "--timeout=180s")
}

// nfs4: a class that names no version gives a claim a volume that kubelet mounts with 4.2, through
// the Service. Locks work there, podnas knows the node, and what pods have open and locked
// outlives every way in which podnas is replaced: restarts_test.go.
func nfs4(t *testing.T) {
	l := startLockers(t, "podnas")
	v := boundVolume(t, "locked")
	if got := v.Spec.MountOptions; !slices.Contains(got, "nfsvers=4.2") || slices.Contains(got, "nolock") {
		t.Errorf("mount options %q", got)
	}
	apply(t, fmt.Sprintf(doctorPod, imageOf(t)))
	kubectl(t, "wait", "--for=jsonpath={.status.phase}=Succeeded", "pod/nfs4", "--timeout=180s")
	if out := kubectl(t, "logs", "nfs4"); !strings.Contains(out, "flock works, between all nodes") || !strings.Contains(out, "Nothing is wrong.") {
		t.Errorf("podnas doctor mount in the pod says\n%s", out)
	}
	kubectl(t, "delete", "pod", "nfs4", "--timeout=180s")
	if mounts := strings.ReplaceAll(podnas(t, "client", "list"), "\n", " | "); strings.Count(mounts, "Linux NFSv4 ") != 2 {
		t.Errorf("podnas client list says %s, want the two clients of the lockers", mounts)
	}
	if out := podnas(t, "volume", "show", v.Name); !regexp.MustCompile(`log-a +open write +Linux NFSv4 `).MatchString(out) {
		t.Errorf("podnas volume show says\n%s", out)
	}
	kubectl(t, "apply", "-f", class41)
	nodeHasBoth(t, "podnas-nfs41", "nfsvers=4.1")
	kubectl(t, "delete", "-f", class41)

	l.restarts(t)
	l.stop(t)
	l.remove(t)
}

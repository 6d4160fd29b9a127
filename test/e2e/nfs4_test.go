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

// nfs4: a class that names no version gives a claim a volume that kubelet mounts with 4.1, through
// the Service. Locks work there, podnas knows the node, and what pods have open and locked
// outlives every way in which podnas is replaced: restarts_test.go.
func nfs4(t *testing.T) {
	l := startLockers(t)
	v := boundVolume(t, "locked")
	if got := v.Spec.MountOptions; !slices.Contains(got, "nfsvers=4.1") || slices.Contains(got, "nolock") {
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

	l.restarts(t)
	l.stop(t)
}

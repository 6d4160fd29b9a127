//go:build e2e

package e2e

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// nfs4Pod writes to a file that it keeps open, and tries the mount with podnas's own check.
const nfs4Pod = `{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "nfs4"}, "spec": {
	"restartPolicy": "Never", "terminationGracePeriodSeconds": 0,
	"volumes": [{"name": "shared", "persistentVolumeClaim": {"claimName": "locked"}}],
	"containers": [
		{"name": "writer", "image": "busybox:stable", "imagePullPolicy": "IfNotPresent", "volumeMounts": [{"name": "shared", "mountPath": "/shared"}],
			"command": ["sh", "-c", "exec 3>>/shared/log; i=0; while true; do echo \"$i\" >&3 && sync /shared/log && i=$((i + 1)); sleep 1; done"]},
		{"name": "doctor", "image": %q, "args": ["doctor", "mount", "/shared"], "volumeMounts": [{"name": "shared", "mountPath": "/shared"}]}]}}`

// killerPod kills podnas's process.
const killerPod = `{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "killer"}, "spec": {
	"restartPolicy": "Never", "terminationGracePeriodSeconds": 0, "hostPID": true,
	"containers": [{"name": "killer", "image": "busybox:stable", "imagePullPolicy": "IfNotPresent",
		"command": ["sh", "-c", "kill -KILL $(pidof podnas)"]}]}}`

// nfs4: a class with nfsvers=4.1 gives a claim a volume that kubelet mounts with that, through
// the Service. Locks work there, podnas knows the node, and what a pod has open outlives
// podnas's pod and a kill of its process.
func nfs4(t *testing.T) {
	kubectl(t, "apply", "-f", deploy+"examples/nfs4/storageclass.yaml", "-f", deploy+"examples/nfs4/claim.yaml")
	v := boundVolume(t, "locked")
	if got := v.Spec.MountOptions; !slices.Contains(got, "nfsvers=4.1") || slices.Contains(got, "nolock") {
		t.Errorf("mount options %q", got)
	}
	image := strings.TrimSpace(kubectl(t, "-n", "podnas", "get", "pod", "podnas-0", "-o", "jsonpath={.spec.containers[0].image}"))
	apply(t, fmt.Sprintf(nfs4Pod, image))
	lines := func() []int {
		return sequence(t, kubectl(t, "exec", "nfs4", "-c", "writer", "--", "cat", "/shared/log"))
	}
	eventually(t, 3*time.Minute, "the check of the mount has ended", func() bool {
		return kubectl(t, "get", "pod", "nfs4", "-o", `jsonpath={.status.containerStatuses[?(@.name=="doctor")].state.terminated.reason}`) != ""
	})
	if out := kubectl(t, "logs", "nfs4", "-c", "doctor"); !strings.Contains(out, "flock works, between all nodes") || !strings.Contains(out, "Nothing is wrong.") {
		t.Errorf("podnas doctor mount in the pod says\n%s", out)
	}
	if mounts := kubectl(t, "exec", "nfs4", "-c", "writer", "--", "cat", "/proc/mounts"); !regexp.MustCompile(` /shared nfs4 .*vers=4\.1`).MatchString(mounts) {
		t.Errorf("/shared is no NFSv4.1 mount:\n%s", mounts)
	}
	if out := podnas(t, "client", "list"); !strings.Contains(out, "Linux NFSv4.1 ") {
		t.Errorf("podnas client list says\n%s", out)
	}
	if out := podnas(t, "volume", "show", v.Name); !regexp.MustCompile(`log +open write +Linux NFSv4\.1 `).MatchString(out) {
		t.Errorf("podnas volume show says\n%s", out)
	}

	kubectl(t, "-n", "podnas", "delete", "pod", "podnas-0", "--timeout=180s")
	kubectl(t, "-n", "podnas", "rollout", "status", "statefulset/podnas", "--timeout=120s")
	goesOn := func() {
		t.Helper()
		var before int
		eventually(t, 3*time.Minute, "the file can be read again", func() bool {
			got := lines()
			before = len(got)
			return before > 0
		})
		eventually(t, 3*time.Minute, "the writer goes on", func() bool { return len(lines()) >= before+3 })
		inSequence(t, "the file that was open", lines())
	}
	goesOn()
	if log := kubectl(t, "-n", "podnas", "logs", "podnas-0"); !strings.Contains(log, "clients go on with what they have open and locked") {
		t.Errorf("the new pod has not taken over what the old one has left:\n%s", log)
	}

	// Without a chance to leave anything.
	apply(t, killerPod)
	restarts := func() string {
		return kubectl(t, "-n", "podnas", "get", "pod", "podnas-0", "-o", "jsonpath={.status.containerStatuses[0].restartCount}")
	}
	eventually(t, 3*time.Minute, "podnas's container is started again", func() bool { return restarts() == "1" })
	kubectl(t, "-n", "podnas", "wait", "--for=condition=Ready", "pod/podnas-0", "--timeout=120s")
	goesOn()
	if log := kubectl(t, "-n", "podnas", "logs", "podnas-0"); !strings.Contains(log, "clients may reclaim what they had open and locked") {
		t.Errorf("the new process does not let clients reclaim what they had:\n%s", log)
	}
	kubectl(t, "delete", "pod", "killer", "--timeout=180s")
	if log := kubectl(t, "logs", "nfs4", "-c", "writer"); log != "" {
		t.Errorf("the writer had errors:\n%s", log)
	}

	kubectl(t, "delete", "pod", "nfs4", "--timeout=180s")
	kubectl(t, "delete", "-f", deploy+"examples/nfs4/claim.yaml", "-f", deploy+"examples/nfs4/storageclass.yaml", "--timeout=180s")
	eventually(t, time.Minute, "the volume is gone", func() bool { return !slices.Contains(diskFolders(t), v.Name) })
}

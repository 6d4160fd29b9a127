//go:build e2e

package e2e

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/podnas/podnas/test/e2e/locker/report"
)

// The storage machine of TestNodeDies.
const (
	sanNumber  = 3
	sanAddress = "10.9.3.2"
)

// diskPod shows the volume of the lockers where they expect a folder of podnas's disk.
const diskPod = `{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "disk"}, "spec": {
	"restartPolicy": "Never", "terminationGracePeriodSeconds": 0,
	"volumes": [{"name": "locked", "persistentVolumeClaim": {"claimName": "locked"}}],
	"containers": [{"name": "disk", "image": "busybox:stable", "imagePullPolicy": "IfNotPresent",
		"command": ["sleep", "infinity"], "volumeMounts": [{"name": "locked", "mountPath": "/disk/%s"}]}]}}`

// TestNodeDies: three nodes with a kubelet each, podnas's disk on a SAN that kubelet attaches by iSCSI (deploy/overlays/iscsi). Pods on the
// third node lock, append and sync. podnas is told to go to another node, then its node is killed and "kubectl podnas failover" called.
// The times that it prints are those of docs/internals/failovers.md.
func TestNodeDies(t *testing.T) {
	if !several() {
		t.Skip("run.sh starts three nodes for it")
	}
	l := onThreeNodes(t, "iscsi", func() {
		kubectl(t, "-n", "podnas", "rollout", "status", "statefulset/podnas", "--timeout=300s")
	})

	first := runsOn(t)
	kubectl(t, "cordon", first.name)
	l.measure(t, "podnas is told to go to another node", func() {
		uid := podUID(t, "podnas", "podnas-0")
		kubectl(t, "-n", "podnas", "delete", "pod", "podnas-0", "--timeout=180s")
		eventually(t, time.Minute, "there is another pod", func() bool {
			now, err := tryKubectl(t, "-n", "podnas", "get", "pod", "podnas-0", "-o", "jsonpath={.metadata.uid}")
			return err == nil && now != uid
		})
		kubectl(t, "-n", "podnas", "wait", "--for=condition=Ready", "pod/podnas-0", "--timeout=300s")
	})
	tookOver(t)
	kubectl(t, "uncordon", first.name)

	second := runsOn(t)
	if second == first {
		t.Fatalf("podnas is on %s again", first.name)
	}
	died := time.Now()
	second.kill(t)
	eventually(t, 3*time.Minute, "the node is not Ready", func() bool {
		n, err := cluster.client.CoreV1().Nodes().Get(t.Context(), second.name, metav1.GetOptions{})
		return err == nil && !nodeReady(n)
	})
	progress("Kubernetes saw after %.1f s that the node is not Ready", time.Since(died).Seconds())
	told := time.Now()
	progress("podnas failover says:\n%s", podnas(t, "failover", second.name, "--it-is-off"))
	progress("from podnas failover: podnas serves after %.1f s", time.Since(told).Seconds())
	l.goOn(t)
	l.firstAfter(t, "podnas failover", told)
	if third := runsOn(t); third != first {
		t.Errorf("podnas is on %s, want %s", third.name, first.name)
	}

	if err := second.start(); err != nil {
		t.Fatal(err)
	}
	if err := second.waitReady(t.Context()); err != nil {
		t.Fatal(err)
	}
	eventually(t, 2*time.Minute, "the taint can go", func() bool {
		out, err := tryKubectl(t, "podnas", "failover", second.name, "--over")
		if err != nil {
			progress("failover --over: %v %s", err, out)
		}
		return err == nil
	})
	l.goOn(t)
	l.stop(t)
	uninstall(t)
}

// TestTakesOver: two podnas on two nodes with one disk (deploy/overlays/ha). The node of the active one is killed, and nobody does
// anything; then the clients are cut off, the active one is cut off from the API server, the API server is away for a while, and all
// is replaced.
func TestTakesOver(t *testing.T) {
	if !several() {
		t.Skip("run.sh starts three nodes for it")
	}
	both := func() {
		kubectl(t, "-n", "podnas", "wait", "--for=condition=Ready", "pod/podnas-0", "pod/podnas-1", "--timeout=300s")
	}
	l := onThreeNodes(t, "ha", both)
	first, was := activeOn(t)
	died := time.Now()
	first.kill(t)
	eventually(t, 2*time.Minute, "the other one is active", func() bool {
		n, _ := activeOn(t)
		return n != nil && n != first
	})
	progress("from the death of the node to the label of the other podnas: %.1f s", time.Since(died).Seconds())
	l.goOn(t)
	l.firstAfter(t, "the death of the node", died)
	if err := first.start(); err != nil {
		t.Fatal(err)
	}
	if err := first.waitReady(t.Context()); err != nil {
		t.Fatal(err)
	}
	standsBy(t, was, died)

	second, is := activeOn(t)
	if second == first || is == was {
		t.Errorf("%s on %s is active, as before", is, second.name)
	}
	l.clientsCut(t, second, is)
	third, is := l.apiCut(t, second, is)
	if err := cluster.plane.RestartAPIServer(t.Context(), 20*time.Second); err != nil {
		t.Fatal(err)
	}
	l.goOn(t)
	if n, name := activeOn(t); n != third || name != is {
		t.Errorf("while the API server was away the disk went from %s to %s", is, name)
	}

	began := time.Now()
	kubectl(t, "-n", "podnas", "rollout", "restart", "statefulset/podnas")
	kubectl(t, "-n", "podnas", "rollout", "status", "statefulset/podnas", "--timeout=300s")
	l.goOn(t)
	l.longestSince(t, "kubectl rollout restart of both", began)
	l.stop(t)
	uninstall(t)
}

// clientsCut cuts the node of the lockers off from the active podnas alone. Nobody takes over. It is short: TCP tries again when the
// cut has lasted twice as long, and after a lease the first locker that is back gets what the other has locked.
func (l lockers) clientsCut(t *testing.T, active *node, pod string) {
	t.Helper()
	between := []string{"from", cluster.nodes[2].address(), "to", active.pods()}
	rule(t, append([]string{"add", "blackhole"}, between...)...)
	time.Sleep(5 * time.Second)
	rule(t, append([]string{"del", "blackhole"}, between...)...)
	back := time.Now()
	l.goOn(t)
	l.firstAfter(t, "the end of a cut between clients and podnas", back)
	if n, name := activeOn(t); n != active || name != pod {
		t.Errorf("while the clients were cut off the disk went from %s to %s", pod, name)
	}
}

// rule changes the rules by which this machine takes packets from one node to another.
func rule(t *testing.T, args ...string) {
	t.Helper()
	if out, err := exec.Command("ip", append([]string{"rule"}, args...)...).CombinedOutput(); err != nil {
		t.Fatalf("ip rule %q: %v\n%s", args, err, out)
	}
}

// cutterPod cuts its node off from the API server alone for a while.
const cutterPod = `{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "cutter"}, "spec": {
	"restartPolicy": "Never", "terminationGracePeriodSeconds": 0, "hostNetwork": true, "nodeName": %q, "tolerations": [{"operator": "Exists"}],
	"containers": [{"name": "cutter", "image": "busybox:stable", "imagePullPolicy": "IfNotPresent", "securityContext": {"privileged": true},
		"command": ["sh", "-ec", "sleep 3; ip route add blackhole %[2]s; sleep 25; ip route del blackhole %[2]s"]}]}}`

// apiCut cuts the active podnas's node off from the API server, and from nothing else. The standby, which the API server
// answers, takes over, and the one before becomes a standby when it has the API server again.
func (l lockers) apiCut(t *testing.T, active *node, was string) (next *node, is string) {
	t.Helper()
	apply(t, fmt.Sprintf(cutterPod, active.name, hostAddress))
	kubectl(t, "wait", "--for=condition=Ready", "pod/cutter", "--timeout=60s")
	cut := time.Now().Add(3 * time.Second)
	eventually(t, time.Minute, "the other one is active", func() bool {
		next, is = activeOn(t)
		return next != nil && next != active
	})
	progress("from a cut between podnas and the API server to the label of the other podnas: %.1f s", time.Since(cut).Seconds())
	l.goOn(t)
	l.longestSince(t, "the cut between podnas and the API server", cut)
	kubectl(t, "wait", "--for=jsonpath={.status.phase}=Succeeded", "pod/cutter", "--timeout=120s")
	kubectl(t, "delete", "pod", "cutter", "--timeout=60s")
	standsBy(t, was, cut)
	return next, is
}

// standsBy waits until a pod is ready whose podnas has begun after a time: that of a dead node is ready for a while.
func standsBy(t *testing.T, pod string, since time.Time) {
	t.Helper()
	eventually(t, 4*time.Minute, pod+" is a standby", func() bool {
		p, err := cluster.client.CoreV1().Pods("podnas").Get(t.Context(), pod, metav1.GetOptions{})
		if err != nil || len(p.Status.ContainerStatuses) == 0 {
			return false
		}
		c := p.Status.ContainerStatuses[0]
		return c.Ready && c.State.Running != nil && c.State.Running.StartedAt.After(since)
	})
}

// activeOn is the node and the pod that the Service leads to, nil if it leads to none or two.
func activeOn(t *testing.T) (*node, string) {
	t.Helper()
	list := strings.Fields(kubectl(t, "-n", "podnas", "get", "pod", "-l", "podnas.io/role=active", "-o", "jsonpath={.items[*].spec.nodeName} {.items[*].metadata.name}"))
	if len(list) != 2 { // the label is under way from one to the other
		return nil, ""
	}
	return nodeOf(t, list[0]), list[1]
}

// onThreeNodes installs an overlay with the disk of the storage machine, which leaves the third node to pods that use a volume, and
// starts the lockers there.
func onThreeNodes(t *testing.T, overlay string, wait func()) lockers {
	t.Helper()
	t.Cleanup(func() {
		if t.Failed() {
			describeAll(t)
		}
	})
	iqn := "iqn.2026-01.io.podnas:" + overlay
	startSAN(t, iqn)
	storage, client := []string{cluster.nodes[0].name, cluster.nodes[1].name}, cluster.nodes[2].name
	kubectl(t, "cordon", client)
	manifests := onSAN(t, overlay, iqn)
	apply(t, manifests)
	wait()
	kubectl(t, "uncordon", client)
	kubectl(t, append([]string{"cordon"}, storage...)...)
	l := startLockersWith(t, "podnas", func(volume string) {
		apply(t, fmt.Sprintf(diskPod, volume))
		kubectl(t, "wait", "--for=condition=Ready", "pod/disk", "--timeout=180s")
	})
	kubectl(t, "cordon", client)
	kubectl(t, append([]string{"uncordon"}, storage...)...)
	return l
}

// uninstall removes all that a test on three nodes has made.
func uninstall(t *testing.T) {
	t.Helper()
	kubectl(t, "delete", "pod", "locker-a", "locker-b", "disk", "--timeout=180s")
	kubectl(t, "delete", "pvc", "locked", "--timeout=180s")
	kubectl(t, "delete", "namespace", "podnas", "--timeout=180s")
	kubectl(t, "delete", "pv", "--all", "--timeout=180s")
	for _, n := range cluster.nodes {
		kubectl(t, "uncordon", n.name)
	}
}

// firstAfter prints when the first call of each kind ended that was under way at a time.
func (l lockers) firstAfter(t *testing.T, what string, since time.Time) {
	t.Helper()
	first := map[string]time.Duration{}
	for _, c := range l.calls(t) {
		took := c.Ended().Sub(since)
		if had, ok := first[c.What]; c.Began.Before(since.Add(time.Second)) && took > 0 && (!ok || took < had) {
			first[c.What] = took
		}
	}
	for _, call := range slices.Sorted(maps.Keys(first)) {
		progress("from %s to the first %q: %.1f s", what, call, first[call].Seconds())
	}
}

// longestSince prints which call took longest of those that began after a time.
func (l lockers) longestSince(t *testing.T, what string, since time.Time) {
	t.Helper()
	longest := report.Call{What: "none"}
	for _, c := range l.calls(t) {
		if c.Began.After(since) && c.Took > longest.Took {
			longest = c
		}
	}
	progress("%s: the longest call (%s) took %.1f s", what, longest.What, longest.Took.Seconds())
}

// startSAN boots the storage machine.
func startSAN(t *testing.T, iqn string) {
	t.Helper()
	log := filepath.Join(cluster.logs, "san.log")
	out, err := os.Create(log)
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	script, err := filepath.Abs("../vm/san.sh") // the guest has this machine's files
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("../vm/vm.sh", "-N", fmt.Sprint(sanNumber), "-m", "512", "-t", "3600", "-x", "6G",
		fmt.Sprintf("bash '%s' %s %s 4096 && echo exported && exec sleep infinity", script, iqn, sanAddress))
	cmd.Stdout, cmd.Stderr = out, out
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // it may have ended
		_ = cmd.Wait()                                      // its error is the signal
	})
	eventually(t, 2*time.Minute, "the storage machine exports its disk", func() bool {
		said, err := os.ReadFile(log)
		if err != nil {
			t.Fatal(err)
		}
		return strings.Contains(string(said), "exported")
	})
}

// onSAN is an overlay with the disk of the storage machine.
func onSAN(t *testing.T, overlay, iqn string) string {
	t.Helper()
	text := kubectl(t, "kustomize", deploy+"overlays/"+overlay)
	for old, new := range map[string]string{"192.0.2.10:3260": sanAddress + ":3260", "iqn.2026-01.com.example:podnas": iqn} {
		if !strings.Contains(text, old) {
			t.Fatalf("the overlay has no %s", old)
		}
		text = strings.ReplaceAll(text, old, new)
	}
	return text
}

// runsOn is the node that podnas is on.
func runsOn(t *testing.T) *node {
	t.Helper()
	return nodeOf(t, kubectl(t, "-n", "podnas", "get", "pod", "podnas-0", "-o", "jsonpath={.spec.nodeName}"))
}

func nodeOf(t *testing.T, name string) *node {
	t.Helper()
	for _, n := range cluster.nodes {
		if n.name == name {
			return n
		}
	}
	t.Fatalf("podnas is on %q", name)
	return nil
}

// kill ends the node's kernel, as when it loses its power. Without its network first: what its programs say as they die is not heard.
func (n *node) kill(t *testing.T) {
	t.Helper()
	route := func(how string) {
		if out, err := exec.Command("ip", "route", how, "blackhole", n.address()).CombinedOutput(); err != nil {
			t.Fatalf("ip route %s: %v\n%s", how, err, out)
		}
	}
	route("add")
	if err := syscall.Kill(-n.cmd.Process.Pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if err := <-n.done; err == nil {
		t.Errorf("%s ended by itself", n.name)
	}
	n.cmd = nil
	route("del")
}

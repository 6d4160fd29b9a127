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
// The times that it prints are those of docs/engines.md.
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
// anything; then the API server is away for a while, and then all is replaced.
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
	eventually(t, 4*time.Minute, "there are two podnas again", func() bool {
		_, err := tryKubectl(t, "-n", "podnas", "wait", "--for=condition=Ready", "pod/podnas-0", "pod/podnas-1", "--timeout=5s")
		return err == nil
	})

	second, is := activeOn(t)
	if second == first || is == was {
		t.Errorf("%s on %s is active, as before", is, second.name)
	}
	if err := cluster.plane.RestartAPIServer(t.Context(), 20*time.Second); err != nil {
		t.Fatal(err)
	}
	l.goOn(t)
	if n, name := activeOn(t); n != second || name != is {
		t.Errorf("while the API server was away the disk went from %s to %s", is, name)
	}

	began := time.Now()
	kubectl(t, "-n", "podnas", "rollout", "restart", "statefulset/podnas")
	kubectl(t, "-n", "podnas", "rollout", "status", "statefulset/podnas", "--timeout=300s")
	l.goOn(t)
	longest := report.Call{What: "none"}
	for _, c := range l.calls(t) {
		if c.Began.After(began) && c.Took > longest.Took {
			longest = c
		}
	}
	progress("kubectl rollout restart of both: the longest call (%s) took %.1f s", longest.What, longest.Took.Seconds())
	l.stop(t)
	uninstall(t)
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

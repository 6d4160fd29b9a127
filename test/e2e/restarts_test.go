//go:build e2e

package e2e

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/podnas/podnas/test/e2e/locker/report"
)

// lockerPods are two pods on what are two nodes to podnas: one uses kubelet's mount, and the
// other mounts the volume itself, through the Service as well. It has a network and a host
// name of its own, and so it is another NFS client, with another identity.
const lockerPods = `{"apiVersion": "v1", "kind": "List", "items": [
{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "locker-a"}, "spec": {
	"restartPolicy": "Never", "terminationGracePeriodSeconds": 0,
	"volumes": [{"name": "shared", "persistentVolumeClaim": {"claimName": "locked"}}],
	"containers": [{"name": "locker", "image": "podnas.test/locker:1", "imagePullPolicy": "IfNotPresent",
		"command": ["/bin/locker", "a", "b", "/shared"], "volumeMounts": [{"name": "shared", "mountPath": "/shared"}]}]}},
{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "locker-b"}, "spec": {
	"restartPolicy": "Never", "terminationGracePeriodSeconds": 0,
	"containers": [{"name": "locker", "image": "podnas.test/locker:1", "imagePullPolicy": "IfNotPresent",
		"securityContext": {"privileged": true},
		"command": ["/bin/locker", "-mount", %q, "-options", %q, "b", "a", "/mnt"]}]}}]}`

// killerPod kills podnas's process.
const killerPod = `{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "killer"}, "spec": {
	"restartPolicy": "Never", "terminationGracePeriodSeconds": 0, "hostPID": true,
	"containers": [{"name": "killer", "image": "busybox:stable", "imagePullPolicy": "IfNotPresent",
		"command": ["sh", "-c", "kill -KILL $(pidof podnas)"]}]}}`

// lockers are the two pods at work.
type lockers struct {
	volume string
	folder string // of the volume, in the pod disk
}

// startLockers makes a claim of a class for the two pods, and starts them.
func startLockers(t *testing.T, class string) lockers {
	t.Helper()
	return startLockersWith(t, class, func(string) {})
}

// startLockersWith makes what else there is to be when there is the volume.
func startLockersWith(t *testing.T, class string, also func(volume string)) lockers {
	t.Helper()
	claim, err := os.ReadFile(deploy + "examples/locks/claim.yaml")
	if err != nil {
		t.Fatal(err)
	}
	apply(t, strings.Replace(string(claim), "storageClassName: podnas\n", "storageClassName: "+class+"\n", 1))
	v := boundVolume(t, "locked")
	nfs := v.Spec.NFS
	options := append(slices.Clone(v.Spec.MountOptions), "addr="+nfs.Server, "clientaddr=0.0.0.0")
	apply(t, fmt.Sprintf(lockerPods, nfs.Server+":"+nfs.Path, strings.Join(options, ",")))
	kubectl(t, "wait", "--for=condition=Ready", "pod/locker-a", "pod/locker-b", "--timeout=180s")
	also(v.Name)
	l := lockers{volume: v.Name, folder: "/disk/" + v.Name}
	l.goOn(t)
	return l
}

// goOn waits until both have had some turns more.
func (l lockers) goOn(t *testing.T) {
	t.Helper()
	count := func() [2]int {
		turns := kubectl(t, "exec", "disk", "--", "cat", l.folder+"/turns")
		return [2]int{strings.Count(turns, " a\n"), strings.Count(turns, " b\n")}
	}
	eventually(t, time.Minute, "there is the file with turns", func() bool {
		return strings.Contains(kubectl(t, "exec", "disk", "--", "ls", l.folder), "turns")
	})
	had := count()
	eventually(t, 2*time.Minute, "both take turns", func() bool {
		l.calls(t) // fails if one of them has ended
		now := count()
		return now[0] >= had[0]+3 && now[1] >= had[1]+3
	})
}

// calls returns what took long so far, of both.
func (l lockers) calls(t *testing.T) []report.Call {
	t.Helper()
	var all []report.Call
	for _, pod := range []string{"locker-a", "locker-b"} {
		text := kubectl(t, "logs", pod)
		calls, _, err := report.Parse(text)
		if err != nil {
			t.Fatalf("%s says\n%s", pod, text)
		}
		all = append(all, calls...)
	}
	return all
}

// restarts replaces podnas in every way that a cluster has, while both lock, append and sync, and
// by one that finds files in another way. It prints how long the longest call took;
// docs/internals/restarts.md has these figures.
func (l lockers) restarts(t *testing.T) {
	rollout := l.measure(t, "kubectl rollout restart", func() {
		replacePodnas(t, func() { kubectl(t, "-n", "podnas", "rollout", "restart", "statefulset/podnas") })
	})
	// On a machine that is not busy: no more than 2 seconds longer.
	if limit := rollout.notReady*6/5 + 2*time.Second; rollout.longest.Took > limit {
		t.Errorf("a call (%s) took %v, want at most %v", rollout.longest.What, rollout.longest.Took, limit)
	}
	tookOver(t)

	l.measure(t, "kill -9", func() {
		apply(t, killerPod)
		eventually(t, 8*time.Minute, "podnas's container is started again", func() bool {
			return kubectl(t, "-n", "podnas", "get", "pod", "podnas-0", "-o", "jsonpath={.status.containerStatuses[0].restartCount}") == "1"
		})
		kubectl(t, "-n", "podnas", "wait", "--for=condition=Ready", "pod/podnas-0", "--timeout=300s")
	})
	tookOver(t)
	kubectl(t, "delete", "pod", "killer", "--timeout=180s")

	if short() {
		progress("to the kernel's handles and back: left out by SHORT=1; TestFinderChanges of make vm has it, with one node")
		return
	}
	l.measure(t, "to the kernel's handles", func() { toKernelHandles(t) })
	l.measure(t, "and back to the index", func() { toIndex(t) })
	tookOver(t)
}

// versions replaces podnas by the previous version, and that by the present one. Each goes on with what the other
// has left.
func (l lockers) versions(t *testing.T) {
	l.measure(t, "a downgrade", func() {
		replacePodnas(t, func() { kubectl(t, "apply", "-f", previous()) })
		if got := imageOf(t); !strings.HasSuffix(got, ":previous") {
			t.Fatalf("podnas has the image %s, want the previous one", got)
		}
	})
	tookOver(t)
	l.measure(t, "an upgrade", func() { toIndex(t) })
	tookOver(t)
}

// tookOver checks that podnas goes on with what the one before it has left.
func tookOver(t *testing.T) {
	t.Helper()
	if log := kubectl(t, "-n", "podnas", "logs", "podnas-0"); !strings.Contains(log, "clients go on with what they have open and locked") {
		t.Errorf("the new pod has not taken over what the old one has left:\n%s", log)
	}
}

// pause is what a replacement of podnas was for its clients.
type pause struct {
	notReady time.Duration // without a ready pod
	longest  report.Call
}

// goesOnWithin is how long after a pod is ready the last call may hang. Linux tries to connect
// each 4 seconds: an attempt that the node refuses, as it does while there is no ready pod, fails
// after one, and the next one is three later. The rest is for a busy machine, on which the pod
// takes longer, too.
func goesOnWithin(notReady time.Duration) time.Duration { return 10*time.Second + notReady/2 }

// measure replaces podnas, waits until both lockers go on, and checks that no call of theirs
// hangs for longer than it takes to connect.
func (l lockers) measure(t *testing.T, what string, replace func()) pause {
	t.Helper()
	began := time.Now()
	ready := watchReady(t)
	replace()
	l.goOn(t)
	from, to := ready(t)
	p := pause{notReady: to.Sub(from)}
	var last report.Call
	for _, c := range l.calls(t) {
		// Those that begin later are slow, but not for want of a server.
		if c.Began.Before(began) || c.Began.After(to) {
			continue
		}
		if c.Took > p.longest.Took {
			p.longest = c
		}
		if c.Ended().After(last.Ended()) {
			last = c
		}
	}
	// What has been killed is seen to be not ready some time later.
	if p.longest.Began.Before(from) {
		from = p.longest.Began
		p.notReady = to.Sub(from)
	}
	progress("%s: no pod was ready for %.1f s, the longest call (%s) took %.1f s and began %.1f s after that; the last (%s) ended %.1f s after the next one was",
		what, p.notReady.Seconds(), p.longest.What, p.longest.Took.Seconds(), p.longest.Began.Sub(from).Seconds(), last.What, last.Ended().Sub(to).Seconds())
	if late, limit := last.Ended().Sub(to), goesOnWithin(p.notReady); late > limit {
		t.Errorf("%s: a call (%s) ended %v after a pod was ready, want at most %v", what, last.What, late, limit)
	}
	return p
}

// watchReady notes from now on when podnas's pod stops to be ready, and when one is ready
// again. What it returns ends that, and returns both.
func watchReady(t *testing.T) func(*testing.T) (from, to time.Time) {
	t.Helper()
	var mu sync.Mutex
	var from, to time.Time
	quit := make(chan struct{})
	go func() {
		for {
			select {
			case <-quit:
				return
			case <-time.After(100 * time.Millisecond):
			}
			pod, err := cluster.client.CoreV1().Pods("podnas").Get(t.Context(), "podnas-0", metav1.GetOptions{})
			ready := err == nil && pod.DeletionTimestamp == nil && slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
				return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
			})
			mu.Lock()
			switch {
			case !ready && from.IsZero():
				from = time.Now()
			case ready && !from.IsZero() && to.IsZero():
				to = time.Now()
			}
			mu.Unlock()
		}
	}()
	return func(t *testing.T) (time.Time, time.Time) {
		t.Helper()
		close(quit)
		mu.Lock()
		defer mu.Unlock()
		if from.IsZero() || to.IsZero() {
			t.Fatalf("podnas's pod was not ready from %v to %v", from, to)
		}
		return from, to
	}
}

// stop ends both, one after the other, and deletes their claim: each gets what the other has held.
// Nothing that they were told is on the disk is missing there, and no lock was held by two.
func (l lockers) stop(t *testing.T) {
	t.Helper()
	for _, pod := range []string{"locker-a", "locker-b"} {
		// The container may end before the command in it has: then that is killed. Its report tells whether it was stopped.
		if _, err := tryKubectl(t, "exec", pod, "--", "/bin/locker", "stop"); err != nil && !strings.Contains(err.Error(), "exit status 137") {
			t.Fatal(err)
		}
	}
	ends := map[string]report.End{}
	for _, name := range []string{"a", "b"} {
		pod := "locker-" + name
		kubectl(t, "wait", "--for=jsonpath={.status.phase}=Succeeded", "pod/"+pod, "--timeout=180s")
		_, end, err := report.Parse(kubectl(t, "logs", pod))
		if err != nil || end == nil {
			t.Fatalf("%s has not ended its report: %v", pod, err)
		}
		lines := sequence(t, kubectl(t, "exec", "disk", "--", "cat", l.folder+"/log-"+name))
		inSequence(t, "what "+pod+" has appended", lines)
		if len(lines) < end.Appended {
			t.Errorf("%s was told that %d lines are on the disk, which has %d", pod, end.Appended, len(lines))
		}
		ends[name] = *end
	}
	if err := report.CheckTurns(kubectl(t, "exec", "disk", "--", "cat", l.folder+"/turns"), ends); err != nil {
		t.Error(err)
	}
	progress("%d and %d turns, %d and %d lines", len(ends["a"].Turns), len(ends["b"].Turns), ends["a"].Appended, ends["b"].Appended)
}

// remove deletes the pods and their claim.
func (l lockers) remove(t *testing.T) {
	t.Helper()
	kubectl(t, "delete", "pod", "locker-a", "locker-b", "--timeout=180s")
	kubectl(t, "delete", "-f", deploy+"examples/locks/claim.yaml", "--timeout=180s")
	eventually(t, time.Minute, "the volume is gone", func() bool { return !slices.Contains(diskFolders(t), l.volume) })
}

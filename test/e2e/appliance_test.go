//go:build e2e

package e2e

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	top    = "../.."
	deploy = top + "/deploy/"
)

// short reports whether this is the run of each change (SHORT=1), which leaves out what takes long
// and is tested elsewhere in part. All of it runs each night and before a release.
func short() bool { return os.Getenv("SHORT") != "" }

// TestAppliance does what a user does, in this order, in one cluster. Each step
// builds on the one before.
func TestAppliance(t *testing.T) {
	t.Cleanup(func() {
		if t.Failed() {
			describeAll(t)
		}
	})
	w := loadWalkthrough(t)
	const always, notInShort = false, true
	steps := []struct {
		name string
		do   func(*testing.T)
		long bool
	}{
		{"install", install, always},
		{"claim", claim, always},
		{"write and read", writeAndRead, always},
		{"podnas is upgraded while pods write", w.upgrade, always},
		{"the quick start", w.quickStart, always},
		{"the status page", w.statusPage, always},
		{"commands", w.commands, always},
		{"VolumeSnapshots", volumeSnapshots, always},
		{"a backup", backup, notInShort},
		{"version 4", nfs4, always},
		{"podnas is downgraded under mounted volumes", downgradeMounted, notInShort},
		{"a node without mount.nfs", noHelper, notInShort},
		{"who calls by version 3", identity, notInShort},
		{"podnas is downgraded", downgrade, notInShort},
		{"a claim with a quota", quota, always},
		{"who calls", identity, always},
		{"a full claim", fill, always},
		{"the cluster forgets", forget, notInShort},
		{"delete the claims", deleteClaims, always},
		{"Pod Security restricted", restricted, always},
		{"a disk image", diskImage, notInShort},
		{"remove all of it", w.remove, always},
	}
	for _, step := range steps {
		if step.long && short() {
			progress("%s: left out by SHORT=1", step.name)
			continue
		}
		begin := time.Now()
		if !t.Run(step.name, step.do) {
			t.FailNow()
		}
		progress("%s: %s", step.name, time.Since(begin).Round(time.Second))
	}
	w.allRun(t)
}

// install is the previous version, which the upgrade finds.
func install(t *testing.T) {
	kubectl(t, "apply", "-f", "disk.yaml")
	kubectl(t, "apply", "-f", previous())
	kubectl(t, "-n", "podnas", "rollout", "status", "statefulset/podnas", "--timeout=300s")
	kubectl(t, "wait", "--for=condition=Ready", "pod/disk", "--timeout=180s")
	servesThrough(t, "native")
}

func claim(t *testing.T) {
	kubectl(t, "apply", "-f", deploy+"examples/claim.yaml")
	v := boundVolume(t, "shared")
	service, err := cluster.client.CoreV1().Services("podnas").Get(t.Context(), "podnas", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if v.Spec.NFS == nil || v.Spec.NFS.Server != service.Spec.ClusterIP {
		t.Fatalf("the volume is at %+v, want the Service's address %s", v.Spec.NFS, service.Spec.ClusterIP)
	}
	if got := diskFolders(t); !slices.Equal(got, []string{v.Name}) {
		t.Errorf("the disk has %q, want %s alone", got, v.Name)
	}
}

func writeAndRead(t *testing.T) {
	kubectl(t, "apply", "-f", deploy+"examples/writer.yaml", "-f", deploy+"examples/reader.yaml")
	kubectl(t, "wait", "--for=condition=Ready", "pod/writer", "pod/reader", "--timeout=300s")
	eventually(t, time.Minute, "the writer has written 5 lines", func() bool { return len(written(t)) >= 5 })
	// The reader is an ordinary user (uid 1000) and shows what it reads as its
	// log; the writer is root.
	if uid := strings.TrimSpace(kubectl(t, "exec", "reader", "--", "id", "-u")); uid != "1000" {
		t.Errorf("the reader's uid is %s, want 1000", uid)
	}
	numbered := regexp.MustCompile(`(?m)^\d+ `) // tail may also say that there is no file yet
	eventually(t, time.Minute, "the reader shows 5 lines", func() bool {
		return len(numbered.FindAllString(kubectl(t, "logs", "reader"), -1)) >= 5
	})
	for _, pod := range []string{"reader", "writer"} {
		if got := sequence(t, kubectl(t, "exec", pod, "--", "cat", "/shared/log")); len(got) < 5 {
			t.Errorf("in pod %s the file has %d lines, want at least 5", pod, len(got))
		}
	}
	if mounts := kubectl(t, "exec", "writer", "--", "cat", "/proc/mounts"); !regexp.MustCompile(` /shared nfs4 .*vers=4\.2.*proto=tcp`).MatchString(mounts) {
		t.Errorf("/shared is no mount of version 4.2 over TCP:\n%s", mounts)
	}
}

// commands makes a volume without a claim by podnas's own commands, as README.md does.
func (w walkthrough) commands(t *testing.T) {
	if out := w.run(t, "README.md", "commands"); !strings.Contains(out, "Nothing is wrong.") || !strings.Contains(out, "persistentvolume/scratch created") {
		t.Errorf("the commands say\n%s", out)
	}
	kubectl(t, "wait", "--for=jsonpath={.status.phase}=Available", "pv/scratch", "--timeout=180s")
	if got := diskFolders(t); !slices.Contains(got, "scratch") {
		t.Errorf("the disk has %q, want scratch too", got)
	}
	plugin(t)
	kubectl(t, "delete", "pv", "scratch", "--timeout=180s")
	podnas(t, "volume", "delete", "scratch", "--yes")
	if got := diskFolders(t); slices.Contains(got, "scratch") {
		t.Errorf("the disk still has %q", got)
	}
}

// plugin looks with kubectl podnas at the volume that the commands have made: output and exit code come back from
// the pod.
func plugin(t *testing.T) {
	if out := podnas(t, "volume", "list", "-o", "name"); !slices.Contains(strings.Fields(out), "scratch") {
		t.Errorf("kubectl podnas volume list says %q, want scratch in it", out)
	}
	out, err := tryKubectl(t, "podnas", "volume", "show", "nothing", "-n", "podnas", "--name=podnas")
	var ended *exec.ExitError
	if !errors.As(err, &ended) || ended.ExitCode() != 3 || out != "" || !strings.Contains(err.Error(), "podnas: nothing") {
		t.Errorf("kubectl podnas volume show of no volume: %q, %v, want exit code 3 and why", out, err)
	}
	if _, err := tryKubectl(t, "podnas", "volume", "list", "-n", "default"); err == nil || !strings.Contains(err.Error(), "there is no podnas in namespace default") {
		t.Errorf("kubectl podnas where there is none: %v", err)
	}
}

// noHelper takes mount.nfs from the node: the pod that waits says so in the words of
// mount(8), and its claim in podnas's, with what to do. When that is done, the pod
// goes on by itself.
func noHelper(t *testing.T) {
	kubectl(t, "apply", "-f", "node.yaml")
	kubectl(t, "wait", "--for=condition=Ready", "pod/node", "--timeout=180s")
	helper := func(from, to string) {
		kubectl(t, "exec", "node", "--", "mv", "/node/usr/sbin/"+from, "/node/usr/sbin/"+to)
	}
	helper("mount.nfs", "mount.nfs.away")
	smallOfVersion3(t)
	var message string
	eventually(t, 2*time.Minute, "the claim is told why its pod waits", func() bool {
		message = kubectl(t, "get", "events", "--field-selector=involvedObject.kind=PersistentVolumeClaim,involvedObject.name=small,reason=NodeWithoutMountNFS", "-o", "jsonpath={.items[*].message}")
		return message != ""
	})
	for _, want := range []string{"Pod small", "on node node", "nfs-common"} {
		if !strings.Contains(message, want) {
			t.Errorf("the claim's event is %q, want %q in it", message, want)
		}
	}
	if out := doctorOnNode(t, "shared"); !strings.Contains(out, "FAILED  mount.nfs") || !strings.Contains(out, "the file was removed") {
		t.Errorf("podnas doctor mount on the node says\n%s", out)
	}
	helper("mount.nfs.away", "mount.nfs")
	if out := doctorOnNode(t, "shared"); !strings.Contains(out, "Nothing is wrong.") {
		t.Errorf("podnas doctor mount on the node says\n%s", out)
	}
	kubectl(t, "wait", "--for=condition=Ready", "pod/small", "--timeout=180s")
	kubectl(t, "apply", "-f", deploy+"components/drain/rbac.yaml")
	if out, err := tryKubectl(t, "podnas", "mounted"); err == nil || !strings.Contains(out, "small") || !strings.Contains(out, "writer") {
		t.Errorf("podnas mounted says %q (%v), want the pods small and writer", out, err)
	}
	kubectl(t, "delete", "-f", deploy+"components/drain/rbac.yaml")
	root(t, "echo new >/small/file && sync /small/file")
	privilegedPorts(t)
	kubectl(t, "delete", "pod", "node", "--timeout=180s")
}

// privilegedPorts: a claim's volume refuses calls from ports that any user may have, which
// kubelet's mount of it, through kube-proxy, was not; an ordinary user of a pod is.
func privilegedPorts(t *testing.T) {
	t.Helper()
	v := boundVolume(t, "small")
	if out := podnas(t, "volume", "show", v.Name); !strings.Contains(out, "privileged-ports") {
		t.Errorf("the volume of a claim is\n%s", out)
	}
	image := strings.TrimSpace(kubectl(t, "-n", "podnas", "get", "pod", "podnas-0", "-o", "jsonpath={.spec.containers[0].image}"))
	apply(t, fmt.Sprintf(`{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "intruder"}, "spec": {
		"restartPolicy": "Never", "securityContext": {"runAsUser": 1000},
		"containers": [{"name": "intruder", "image": %q, "args": ["doctor", "mount", "%s:%s", "--options=%s"]}]}}`,
		image, v.Spec.NFS.Server, v.Spec.NFS.Path, strings.Join(v.Spec.MountOptions, ",")))
	defer kubectl(t, "delete", "pod", "intruder")
	kubectl(t, "wait", "--for=jsonpath={.status.phase}=Failed", "pod/intruder", "--timeout=180s")
	if out := kubectl(t, "logs", "intruder"); !strings.Contains(out, "does not let this machine mount") {
		t.Errorf("a pod of an ordinary user gets\n%s", out)
	}
	if out := kubectl(t, "-n", "podnas", "logs", "podnas-0"); !strings.Contains(out, "refused a client for its port") {
		t.Error("podnas's log does not tell of it")
	}
}

// doctorOnNode tries the mount of a claim's volume on the node, with the image alone.
func doctorOnNode(t *testing.T, claim string) string {
	t.Helper()
	v := boundVolume(t, claim)
	image := strings.TrimSpace(kubectl(t, "-n", "podnas", "get", "pod", "podnas-0", "-o", "jsonpath={.spec.containers[0].image}"))
	out := kubectl(t, "debug", "node/"+nodeName, "--image="+image, "--", "podnas", "doctor", "mount",
		v.Spec.NFS.Server+":"+v.Spec.NFS.Path, "--options="+strings.Join(v.Spec.MountOptions, ","), "--node-root=/host")
	pod := regexp.MustCompile(`node-debugger-\S+`).FindString(out)
	if pod == "" {
		t.Fatalf("kubectl debug names no pod: %q", out)
	}
	eventually(t, time.Minute, "the pod on the node has ended", func() bool {
		phase := kubectl(t, "get", "pod", pod, "-o", "jsonpath={.status.phase}")
		return phase == string(corev1.PodSucceeded) || phase == string(corev1.PodFailed)
	})
	defer kubectl(t, "delete", "pod", pod)
	return kubectl(t, "logs", pod)
}

// quota gives podnas the right to set quotas, as deploy/overlays/xfs-quota does, over the
// previous version, and makes a claim for two users.
func quota(t *testing.T) {
	replacePodnas(t, func() { kubectl(t, "apply", "-k", deploy+"overlays/xfs-quota") })
	keptIsWhole(t)
	kubectl(t, "delete", "pod", "kept", "--timeout=180s")
	kubectl(t, "delete", "pvc", "kept", "--timeout=180s")
	smallClaim(t)
	if out := root(t, "df -k /small"); !regexp.MustCompile(`\s16384\s`).MatchString(out) {
		t.Errorf("df does not show the claim's 16384 KiB:\n%s", out)
	}
}

// identity: the user of a pod is who its files belong to, and reads what others
// let that user read.
func identity(t *testing.T) {
	if _, err := somebody(t, "echo hello >/small/mine && ln /small/mine /small/link && sync /small/mine"); err != nil {
		t.Fatal(err)
	}
	if got := root(t, "stat -c '%u %g %h' /small/mine; cat /small/link"); got != "1000 1000 2\nhello\n" {
		t.Errorf("somebody's file has owner, group, links and text %q, want 1000 1000 2 and hello", got)
	}
	root(t, "echo secret >/small/theirs && chmod 600 /small/theirs")
	if out, err := somebody(t, "cat /small/theirs"); err == nil {
		t.Errorf("somebody reads root's file: %q", out)
	}
}

// isFull is what programs say of ENOSPC and EDQUOT.
var isFull = regexp.MustCompile(`No space left|quota exceeded`)

// fill writes more than the claim's size: that fails, for this claim alone.
func fill(t *testing.T) {
	out, err := somebody(t, "dd if=/dev/zero of=/small/big bs=1M count=32 conv=fsync")
	if err == nil || !isFull.MatchString(err.Error()) {
		t.Errorf("32 MiB in a claim of 16 MiB: got %q (%v), want an error that says that it is full", out, err)
	}
	before := len(written(t))
	eventually(t, time.Minute, "the other volume's writer goes on", func() bool { return len(written(t)) >= before+3 })
	goesOn(t)
}

// forget has a cluster lose a claim and its volume while podnas is away, as one
// does that is made anew over the old disk. podnas keeps the data, and its
// manifests bring the claim back.
func forget(t *testing.T) {
	wrote := len(written(t))
	volume := boundVolume(t, "shared").Name
	kubectl(t, "delete", "pod", "writer", "reader", "--timeout=180s")
	kubectl(t, "-n", "podnas", "scale", "statefulset/podnas", "--replicas=0")
	kubectl(t, "-n", "podnas", "wait", "--for=delete", "pod/podnas-0", "--timeout=180s")
	// The volume first, and without its finalizer: else podnas would be asked
	// to delete it.
	kubectl(t, "delete", "pv", volume, "--wait=false")
	kubectl(t, "patch", "pv", volume, "-p", `{"metadata":{"finalizers":null}}`)
	kubectl(t, "delete", "pvc", "shared", "--timeout=180s")
	kubectl(t, "-n", "podnas", "scale", "statefulset/podnas", "--replicas=1")
	kubectl(t, "-n", "podnas", "rollout", "status", "statefulset/podnas", "--timeout=300s")

	apply(t, podnas(t, "volume", "manifests", volume, "--bind"))
	if got := boundVolume(t, "shared").Name; got != volume {
		t.Fatalf("the claim got %s, want %s back", got, volume)
	}
	kubectl(t, "apply", "-f", deploy+"examples/writer.yaml", "-f", deploy+"examples/reader.yaml")
	kubectl(t, "wait", "--for=condition=Ready", "pod/writer", "pod/reader", "--timeout=300s")
	eventually(t, time.Minute, "the writer goes on after its old lines", func() bool { return len(written(t)) >= wrote+3 })
}

func deleteClaims(t *testing.T) {
	if got := diskFolders(t); len(got) != 2 {
		t.Fatalf("the disk has %q, want the folders of two claims", got)
	}
	kubectl(t, "delete", "pod", "writer", "reader", "small", "--timeout=180s")
	kubectl(t, "delete", "pvc", "shared", "small", "--timeout=180s")
	nothingLeft(t)
}

// ownerPod gives the disk to the user of deploy/overlays/restricted: a kubelet gives no hostPath to
// an fsGroup.
const ownerPod = `{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "owner"}, "spec": {
	"restartPolicy": "Never", "terminationGracePeriodSeconds": 0,
	"volumes": [{"name": "disk", "hostPath": {"path": "/xfs/podnas"}}],
	"containers": [{"name": "owner", "image": "busybox:stable", "imagePullPolicy": "IfNotPresent",
		"command": ["chown", "-R", "65534:65534", "/disk"], "volumeMounts": [{"name": "disk", "mountPath": "/disk"}]}]}}`

// restricted makes podnas an ordinary user, as deploy/overlays/restricted does: everything
// is done as that user, and all else works.
func restricted(t *testing.T) {
	kubectl(t, "-n", "podnas", "delete", "statefulset", "podnas", "--cascade=foreground", "--timeout=180s")
	apply(t, ownerPod)
	kubectl(t, "wait", "--for=jsonpath={.status.phase}=Succeeded", "pod/owner", "--timeout=180s")
	kubectl(t, "delete", "pod", "owner", "--timeout=180s")
	kubectl(t, "apply", "-k", deploy+"overlays/restricted")
	kubectl(t, "-n", "podnas", "rollout", "status", "statefulset/podnas", "--timeout=300s")
	servesThrough(t, "native")
	smallClaim(t)
	const script = "set -C && echo hello >/small/mine && ln /small/mine /small/link && mkfifo /small/fifo && sync /small/mine"
	if _, err := somebody(t, script); err != nil {
		t.Error(err)
	}
	if got := root(t, "stat -c '%u %g %h' /small/mine; cat /small/link"); got != "65534 65534 2\nhello\n" {
		t.Errorf("somebody's file has owner, group, links and text %q, want 65534 65534 2 and hello", got)
	}
	kubectl(t, "delete", "pod", "small", "--timeout=180s")
	kubectl(t, "delete", "pvc", "small", "--timeout=180s")
	nothingLeft(t)
}

// diskImage lets podnas keep its volumes in an XFS of its own on that disk, as
// deploy/overlays/disk-image does, with the variant of the image that makes file
// systems: a claim gets its size by the kernel, and the next pod finds all again.
func diskImage(t *testing.T) {
	// On another disk it is another podnas, which would wait a minute for the one
	// that had its name.
	kubectl(t, "-n", "podnas", "delete", "statefulset", "podnas", "--cascade=foreground", "--timeout=180s")
	kubectl(t, "-n", "podnas", "delete", "leases", "--all")
	kubectl(t, "apply", "-k", deploy+"overlays/disk-image")
	kubectl(t, "-n", "podnas", "rollout", "status", "statefulset/podnas", "--timeout=300s")
	servesThrough(t, "native")
	if !slices.Contains(diskFolders(t), "podnas.img") {
		t.Fatalf("the disk has %q, want podnas.img", diskFolders(t))
	}
	smallClaim(t)
	if by := boundVolume(t, "small").Annotations["podnas.io/quota"]; by != "kernel" {
		t.Errorf("the size is kept by %q, want the kernel", by)
	}
	if out := root(t, "df -k /small"); !regexp.MustCompile(`\s16384\s`).MatchString(out) {
		t.Errorf("df does not show the claim's 16384 KiB:\n%s", out)
	}
	if out, err := somebody(t, "dd if=/dev/zero of=/small/big bs=1M count=32 conv=fsync"); err == nil || !strings.Contains(err.Error(), "No space left") {
		t.Errorf("32 MiB in a claim of 16 MiB: got %q (%v), want ENOSPC", out, err)
	}
	if _, err := somebody(t, "rm /small/big && echo kept >/small/file && sync /small/file"); err != nil {
		t.Error(err)
	}

	// The image is unmounted well, and what can mend one can be run.
	kubectl(t, "-n", "podnas", "scale", "statefulset/podnas", "--replicas=0")
	kubectl(t, "-n", "podnas", "wait", "--for=delete", "pod/podnas-0", "--timeout=180s")
	kubectl(t, "apply", "-f", deploy+"components/disk-image/repair.yaml")
	kubectl(t, "-n", "podnas", "wait", "--for=jsonpath={.status.phase}=Succeeded", "pod/repair-image", "--timeout=180s")
	kubectl(t, "-n", "podnas", "delete", "pod", "repair-image")
	kubectl(t, "-n", "podnas", "scale", "statefulset/podnas", "--replicas=1")
	kubectl(t, "-n", "podnas", "rollout", "status", "statefulset/podnas", "--timeout=300s")
	if got := root(t, "cat /small/file"); got != "kept\n" {
		t.Errorf("after a start the file has %q", got)
	}
	if out := podnas(t, "doctor"); !strings.Contains(out, "Nothing is wrong.") {
		t.Errorf("the doctor says\n%s", out)
	}
	kubectl(t, "delete", "pod", "small", "--timeout=180s")
	kubectl(t, "delete", "pvc", "small", "--timeout=180s")
}

// servesThrough checks which engine podnas took.
func servesThrough(t *testing.T, engine string) {
	t.Helper()
	if log := kubectl(t, "-n", "podnas", "logs", "podnas-0"); !strings.Contains(log, "engine="+engine) {
		t.Fatalf("podnas does not serve through the engine %s:\n%s", engine, log)
	}
}

// smallClaim makes the claim and the pod of small.yaml.
func smallClaim(t *testing.T) {
	t.Helper()
	kubectl(t, "apply", "-f", "small.yaml")
	boundVolume(t, "small")
	kubectl(t, "wait", "--for=condition=Ready", "pod/small", "--timeout=300s")
}

// smallOfVersion3 is the claim and the pod of small.yaml, with a volume that mounts with version 3.
func smallOfVersion3(t *testing.T) {
	t.Helper()
	kubectl(t, "apply", "-f", deploy+"examples/nfs3/storageclass.yaml")
	small, err := os.ReadFile("small.yaml")
	if err != nil {
		t.Fatal(err)
	}
	apply(t, strings.Replace(string(small), "storageClassName: podnas\n", "storageClassName: podnas-nfs3\n", 1))
}

// somebody runs a script as uid 1000 in the pod of small.yaml.
func somebody(t *testing.T, script string) (string, error) {
	return tryKubectl(t, "exec", "small", "-c", "somebody", "--", "sh", "-c", script)
}

// root runs a script as root in the pod of small.yaml.
func root(t *testing.T, script string) string {
	t.Helper()
	return kubectl(t, "exec", "small", "-c", "root", "--", "sh", "-c", script)
}

func nothingLeft(t *testing.T) {
	t.Helper()
	eventually(t, time.Minute, "the claims' volumes and folders are gone", func() bool {
		list, err := cluster.client.CoreV1().PersistentVolumes().List(t.Context(), metav1.ListOptions{})
		return err == nil && len(list.Items) == 1 && len(diskFolders(t)) == 0 // the one is podnas's own disk
	})
	eventually(t, time.Minute, "the trash is empty", func() bool {
		return kubectl(t, "exec", "disk", "--", "ls", "-A", "/disk/.podnas/trash") == ""
	})
}

// goesOn checks that the writer runs since its start, that no call of it failed, and
// that its file has every line, once.
func goesOn(t *testing.T) {
	t.Helper()
	neverRestarted(t, "writer")
	if log := kubectl(t, "logs", "writer"); log != "" {
		t.Errorf("the writer had errors:\n%s", log)
	}
	inSequence(t, "the writer's file", written(t))
}

func neverRestarted(t *testing.T, name string) {
	t.Helper()
	pod, err := cluster.client.CoreV1().Pods("default").Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if n := pod.Status.ContainerStatuses[0].RestartCount; n != 0 {
		t.Errorf("the container of pod %s was restarted %d times", name, n)
	}
}

// inSequence checks that numbers are 0, 1, 2 and so on.
func inSequence(t *testing.T, what string, numbers []int) {
	t.Helper()
	for i, n := range numbers {
		if n != i {
			t.Fatalf("line %d of %s has number %d", i, what, n)
		}
	}
}

// written returns the numbers of the lines that the writer has written.
func written(t *testing.T) []int {
	t.Helper()
	return sequence(t, kubectl(t, "exec", "writer", "--", "cat", "/shared/log"))
}

// sequence returns the number that each line starts with.
func sequence(t *testing.T, text string) []int {
	t.Helper()
	var numbers []int
	for line := range strings.Lines(text) {
		first, _, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		n, err := strconv.Atoi(first)
		if err != nil {
			t.Fatalf("a line begins with no number: %q", line)
		}
		numbers = append(numbers, n)
	}
	return numbers
}

// diskFolders returns the volumes' folders on the node's disk.
func diskFolders(t *testing.T) []string {
	t.Helper()
	return slices.DeleteFunc(strings.Fields(kubectl(t, "exec", "disk", "--", "ls", "-A", "/disk")), func(name string) bool {
		return name == ".podnas"
	})
}

func boundVolume(t *testing.T, claim string) *corev1.PersistentVolume {
	t.Helper()
	kubectl(t, "wait", "--for=jsonpath={.status.phase}=Bound", "pvc/"+claim, "--timeout=180s")
	c, err := cluster.client.CoreV1().PersistentVolumeClaims("default").Get(t.Context(), claim, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	v, err := cluster.client.CoreV1().PersistentVolumes().Get(t.Context(), c.Spec.VolumeName, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func podUID(t *testing.T, namespace, name string) string {
	t.Helper()
	pod, err := cluster.client.CoreV1().Pods(namespace).Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return string(pod.UID)
}

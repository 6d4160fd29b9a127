//go:build e2e

package e2e

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const deploy = "../../deploy/"

// TestAppliance does what a user does, in this order, in one cluster. Each step
// builds on the one before.
func TestAppliance(t *testing.T) {
	t.Cleanup(func() {
		if t.Failed() {
			describeAll(t)
		}
	})
	steps := []struct {
		name string
		do   func(*testing.T)
	}{
		{"install", install},
		{"claim", claim},
		{"write and read", writeAndRead},
		{"podnas is deleted while a pod writes", deletePodnas},
		{"quota", quota},
		{"delete the claims", deleteClaims},
		{"native engine", native},
	}
	for _, step := range steps {
		begin := time.Now()
		if !t.Run(step.name, step.do) {
			t.FailNow()
		}
		progress("%s: %s", step.name, time.Since(begin).Round(time.Second))
	}
}

func install(t *testing.T) {
	kubectl(t, "apply", "-f", "disk.yaml")
	kubectl(t, "apply", "-f", deploy+"podnas.yaml")
	kubectl(t, "-n", "podnas", "rollout", "status", "statefulset/podnas", "--timeout=120s")
	kubectl(t, "wait", "--for=condition=Ready", "pod/disk", "--timeout=60s")
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
	kubectl(t, "wait", "--for=condition=Ready", "pod/writer", "pod/reader", "--timeout=120s")
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
	if mounts := kubectl(t, "exec", "writer", "--", "cat", "/proc/mounts"); !regexp.MustCompile(` /shared nfs .*vers=3.*proto=tcp`).MatchString(mounts) {
		t.Errorf("/shared is no NFSv3 mount over TCP:\n%s", mounts)
	}
}

func deletePodnas(t *testing.T) {
	before, uid := len(written(t)), podUID(t, "podnas", "podnas-0")
	kubectl(t, "-n", "podnas", "delete", "pod", "podnas-0")
	kubectl(t, "-n", "podnas", "rollout", "status", "statefulset/podnas", "--timeout=120s")
	if podUID(t, "podnas", "podnas-0") == uid {
		t.Fatal("podnas-0 is the same pod as before")
	}
	eventually(t, time.Minute, "the writer has written 10 more lines", func() bool { return len(written(t)) >= before+10 })
	goesOn(t)
}

// quota gives podnas the right to set quotas, as deploy/overlays/xfs-quota does,
// and fills a claim.
func quota(t *testing.T) {
	kubectl(t, "apply", "-k", deploy+"overlays/xfs-quota")
	kubectl(t, "-n", "podnas", "rollout", "status", "statefulset/podnas", "--timeout=120s")
	kubectl(t, "apply", "-f", "quota.yaml")
	boundVolume(t, "small")
	kubectl(t, "wait", "--for=condition=Ready", "pod/small", "--timeout=120s")

	if out := kubectl(t, "exec", "small", "-c", "root", "--", "df", "-k", "/small"); !regexp.MustCompile(`\s16384\s`).MatchString(out) {
		t.Errorf("df does not show the claim's 16384 KiB:\n%s", out)
	}
	// An ordinary user writes too, and root reads it.
	kubectl(t, "exec", "small", "-c", "somebody", "--", "sh", "-c", "echo hello >/small/from-somebody")
	if got := kubectl(t, "exec", "small", "-c", "root", "--", "cat", "/small/from-somebody"); got != "hello\n" {
		t.Errorf("root reads %q of what somebody wrote, want %q", got, "hello\n")
	}
	out, err := tryKubectl(t, "exec", "small", "-c", "somebody", "--", "dd", "if=/dev/zero", "of=/small/big", "bs=1M", "count=32", "conv=fsync")
	if err == nil || !regexp.MustCompile(`No space left|quota exceeded`).MatchString(err.Error()) {
		t.Errorf("32 MiB in a claim of 16 MiB: got %q (%v), want an error that says that it is full", out, err)
	}
	before := len(written(t))
	eventually(t, time.Minute, "the other volume's writer goes on", func() bool { return len(written(t)) >= before+3 })
	goesOn(t)
}

func deleteClaims(t *testing.T) {
	if got := diskFolders(t); len(got) != 2 {
		t.Fatalf("the disk has %q, want the folders of two claims", got)
	}
	kubectl(t, "delete", "pod", "writer", "reader", "small", "--timeout=60s")
	kubectl(t, "delete", "pvc", "shared", "small", "--timeout=60s")
	nothingLeft(t)
}

// native gives podnas the rights that its own engine needs, as
// deploy/overlays/native does: then the user of a pod is who its files belong to.
func native(t *testing.T) {
	kubectl(t, "apply", "-k", deploy+"overlays/native")
	kubectl(t, "-n", "podnas", "rollout", "status", "statefulset/podnas", "--timeout=120s")
	if log := kubectl(t, "-n", "podnas", "logs", "podnas-0"); !strings.Contains(log, "engine=native") {
		t.Fatalf("podnas does not serve through the native engine:\n%s", log)
	}
	kubectl(t, "apply", "-f", "quota.yaml")
	boundVolume(t, "small")
	kubectl(t, "wait", "--for=condition=Ready", "pod/small", "--timeout=120s")
	somebody := func(script string) (string, error) {
		return tryKubectl(t, "exec", "small", "-c", "somebody", "--", "sh", "-c", script)
	}
	root := func(script string) string {
		return kubectl(t, "exec", "small", "-c", "root", "--", "sh", "-c", script)
	}
	if _, err := somebody("echo hello >/small/mine && ln /small/mine /small/link && sync /small/mine"); err != nil {
		t.Fatal(err)
	}
	if got := root("stat -c '%u %g %h' /small/mine"); got != "1000 1000 2\n" {
		t.Errorf("somebody's file has owner, group and links %q, want 1000 1000 2", got)
	}
	root("echo secret >/small/theirs && chmod 600 /small/theirs")
	if out, err := somebody("cat /small/theirs"); err == nil {
		t.Errorf("somebody reads root's file: %q", out)
	}
	uid := podUID(t, "podnas", "podnas-0")
	kubectl(t, "-n", "podnas", "delete", "pod", "podnas-0")
	kubectl(t, "-n", "podnas", "rollout", "status", "statefulset/podnas", "--timeout=120s")
	if podUID(t, "podnas", "podnas-0") == uid {
		t.Fatal("podnas-0 is the same pod as before")
	}
	if got, err := somebody("cat /small/link"); err != nil || got != "hello\n" {
		t.Errorf("after podnas was replaced: %q, %v", got, err)
	}
	kubectl(t, "delete", "pod", "small", "--timeout=60s")
	kubectl(t, "delete", "pvc", "small", "--timeout=60s")
	nothingLeft(t)
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

// goesOn checks that the writer runs since its start and that its file has every
// line, once.
func goesOn(t *testing.T) {
	t.Helper()
	pod, err := cluster.client.CoreV1().Pods("default").Get(t.Context(), "writer", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if n := pod.Status.ContainerStatuses[0].RestartCount; n != 0 {
		t.Errorf("the writer was restarted %d times", n)
	}
	for i, n := range written(t) {
		if n != i {
			t.Fatalf("line %d of the writer's file has number %d", i, n)
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
		first, _, _ := strings.Cut(line, " ")
		n, err := strconv.Atoi(first)
		if err != nil {
			t.Fatalf("a line of the writer's file is %q", line)
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
	kubectl(t, "wait", "--for=jsonpath={.status.phase}=Bound", "pvc/"+claim, "--timeout=60s")
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

// kubectl runs kubectl and returns what it prints.
func kubectl(t *testing.T, args ...string) string {
	t.Helper()
	out, err := tryKubectl(t, args...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func tryKubectl(t *testing.T, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	cmd := kubectlCommand(ctx, args...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return stdout.String(), fmt.Errorf("kubectl %s: %w\n%s", strings.Join(args, " "), err, stderr.Bytes())
	}
	return stdout.String(), nil
}

func kubectlCommand(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, filepath.Join(cluster.bin, "kubectl"), args...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+cluster.kubeconfig)
	return cmd
}

// describeAll shows the state of the cluster after a failure.
func describeAll(t *testing.T) {
	for _, args := range [][]string{
		{"get", "pods,pvc,pv,svc,endpointslices", "-A", "-o", "wide"},
		{"get", "events", "-A", "--sort-by=.lastTimestamp"},
		{"-n", "podnas", "logs", "podnas-0", "--tail=60"},
		{"-n", "podnas", "logs", "podnas-0", "--tail=30", "--previous"},
		{"-n", "podnas", "describe", "pod", "podnas-0"},
		{"logs", "writer", "--tail=20"},
		{"exec", "disk", "--", "ls", "-lanR", "/disk"},
	} {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		out, err := kubectlCommand(ctx, args...).CombinedOutput()
		cancel()
		t.Logf("kubectl %s (%v)\n%s", strings.Join(args, " "), err, out)
	}
}

func eventually(t *testing.T, timeout time.Duration, what string, isTrue func() bool) {
	t.Helper()
	deadline := time.Now().Add(timeout)
	for !isTrue() {
		if time.Now().After(deadline) {
			t.Fatalf("not within %s: %s", timeout, what)
		}
		time.Sleep(500 * time.Millisecond)
	}
}

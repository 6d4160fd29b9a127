//go:build cluster

package cluster_test

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// BenchmarkIdleMemory tells the memory of a podnas that has 200 volumes and nothing to
// do: after 45 seconds, and after five minutes, when it has given back what the start
// took.
//
//	CGO_ENABLED=0 go test -tags cluster -run '^$' -bench IdleMemory -benchtime 1x ./test/cluster
func BenchmarkIdleMemory(b *testing.B) {
	const volumes = 200
	n := newTenant(b)
	p := newPodnas(b, n.provisioner, local)
	p.start()
	n.burst(volumes, n.class("", nil))
	n.allBound(5*time.Minute, volumes)
	for i := range volumes {
		n.pod(fmt.Sprintf("claim-%03d", i))
	}
	idle := time.Now()
	for _, wait := range []time.Duration{45 * time.Second, 5 * time.Minute} {
		time.Sleep(time.Until(idle.Add(wait)))
		for _, part := range []string{"VmRSS", "RssAnon", "RssFile"} {
			b.ReportMetric(p.memory(part), fmt.Sprintf("MiB-%s-after-%v", part, wait))
		}
	}
	b.ReportMetric(0, "ns/op") // it is five minutes
}

// pod makes one that mounts a claim. No node runs it here.
func (n *tenant) pod(claim string) {
	n.t.Helper()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: claim},
		Spec: corev1.PodSpec{
			Containers: []corev1.Container{{
				Name: "app", Image: "app", VolumeMounts: []corev1.VolumeMount{{Name: "data", MountPath: "/data"}},
			}},
			Volumes: []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{
				PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim},
			}}},
		},
	}
	if _, err := cluster.client.CoreV1().Pods(n.name).Create(n.t.Context(), pod, metav1.CreateOptions{}); err != nil {
		n.t.Fatal(err)
	}
}

// memory is a line of the process's status, in MiB; see proc_pid_status(5).
func (p *podnas) memory(part string) float64 {
	p.t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
	if err != nil {
		p.t.Fatal(err)
	}
	for line := range strings.Lines(string(status)) {
		if rest, ok := strings.CutPrefix(line, part+":"); ok {
			kib, err := strconv.Atoi(strings.TrimSuffix(strings.TrimSpace(rest), " kB"))
			if err != nil {
				p.t.Fatal(err)
			}
			return float64(kib) / 1024
		}
	}
	p.t.Fatalf("no %s in the status of the process", part)
	return 0
}

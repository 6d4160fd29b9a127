//go:build cluster

package cluster_test

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// kubelet says on the pod that a mount failed, in the words of mount(8); podnas says
// on the claim, once, on which node and what to do.
func TestMountFailure(t *testing.T) {
	n := newTenant(t)
	p := newPodnas(t, n.provisioner, local)
	p.env = []string{"POD_NAMESPACE=" + podnasNamespace}
	p.start()
	class := n.class("", nil)
	n.claim("data", class, "1Mi", nil)
	v := n.bound("data")

	tell := func(namespace, name, volume, node, output string) {
		t.Helper()
		event := &corev1.Event{
			ObjectMeta:     metav1.ObjectMeta{Name: name, Namespace: namespace},
			InvolvedObject: corev1.ObjectReference{Kind: "Pod", Namespace: namespace, Name: "pod"},
			Reason:         "FailedMount", Type: corev1.EventTypeWarning, Count: 1,
			Message:        `MountVolume.SetUp failed for volume "` + volume + `" : mount failed: exit status 32` + "\nOutput: " + output,
			Source:         corev1.EventSource{Component: "kubelet", Host: node},
			FirstTimestamp: metav1.Now(), LastTimestamp: metav1.Now(),
		}
		if _, err := cluster.client.CoreV1().Events(namespace).Create(t.Context(), event, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	const helper = "mount: /x: bad option; for several filesystems (e.g. nfs, cifs) you might need a /sbin/mount.<type> helper program."
	tell("default", "elsewhere", v.Name, "node-x", helper) // anybody may write events in a namespace of theirs
	tell(n.name, "first", v.Name, "node-a", helper)
	message := n.event(n.name, "data", "NodeWithoutMountNFS")
	t.Log(message)
	for _, want := range []string{"Pod pod", "node node-a", "nfs-common"} {
		if !strings.Contains(message, want) {
			t.Errorf("the claim's event is %q, want %q in it", message, want)
		}
	}
	tell(n.name, "second", v.Name, "node-a", helper)
	tell(n.name, "third", v.Name, "node-b", "mount.nfs: Connection timed out")
	if message := n.event(n.name, "data", "ServerNotReached"); !strings.Contains(message, "NetworkPolicy") || !strings.Contains(message, "node-b") {
		t.Errorf("the claim's event is %q", message)
	}
	time.Sleep(2 * time.Second) // for what should not come
	if got := n.events(n.name, "data", "NodeWithoutMountNFS"); len(got) != 1 {
		t.Errorf("told %d times: %q", len(got), got)
	}
	if strings.Contains(p.logged(), "node-x") {
		t.Error("an event of another namespace was taken for the claim's")
	}
}

package failover_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	"sigs.k8s.io/yaml"

	"github.com/podnas/podnas/provisioner/failover"
)

// world is a cluster with two nodes, and podnas's pod on the first.
type world struct {
	set    *appsv1.StatefulSet
	pod    *v1.Pod
	claim  *v1.PersistentVolumeClaim
	pv     *v1.PersistentVolume
	dead   *v1.Node
	others []runtime.Object
}

func newWorld() *world {
	meta := metav1.ObjectMeta{Namespace: "podnas", Name: "podnas"}
	w := &world{
		set: &appsv1.StatefulSet{ObjectMeta: meta},
		pod: pod("dead", false),
		claim: &v1.PersistentVolumeClaim{
			ObjectMeta: metav1.ObjectMeta{Namespace: "podnas", Name: "disk-podnas-0"}, Spec: v1.PersistentVolumeClaimSpec{VolumeName: "disk"},
		},
		pv:   &v1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "disk"}},
		dead: node("dead", v1.ConditionUnknown, "boot-1"),
	}
	w.pv.Spec.CSI = &v1.CSIPersistentVolumeSource{Driver: "driver.longhorn.io"}
	w.others = []runtime.Object{node("alive", v1.ConditionTrue, "boot-2")}
	return w
}

func pod(node string, ready bool) *v1.Pod {
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "podnas", Name: "podnas-0", UID: types.UID("on-" + node)}, Spec: v1.PodSpec{
		NodeName: node,
		Volumes: []v1.Volume{{Name: "disk", VolumeSource: v1.VolumeSource{
			PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: "disk-podnas-0"},
		}}},
		Containers: []v1.Container{{Name: "podnas", VolumeMounts: []v1.VolumeMount{{Name: "disk", MountPath: "/export"}}}},
	}}
	status := v1.ConditionFalse
	if ready {
		status = v1.ConditionTrue
	}
	p.Status.Conditions = []v1.PodCondition{{Type: v1.PodReady, Status: status}}
	return p
}

// on is what says that a disk is on some nodes.
func on(names ...string) *v1.VolumeNodeAffinity { return with(v1.LabelHostname, names...) }

// with does so for nodes that have a label.
func with(label string, values ...string) *v1.VolumeNodeAffinity {
	return &v1.VolumeNodeAffinity{Required: &v1.NodeSelector{NodeSelectorTerms: []v1.NodeSelectorTerm{{
		MatchExpressions: []v1.NodeSelectorRequirement{{Key: label, Operator: v1.NodeSelectorOpIn, Values: values}},
	}}}}
}

func node(name string, ready v1.ConditionStatus, boot string) *v1.Node {
	labels := map[string]string{v1.LabelHostname: name, "topology.example.com/node": name, v1.LabelTopologyZone: "zone-of-" + name}
	return &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}, Status: v1.NodeStatus{
		NodeInfo:   v1.NodeSystemInfo{BootID: boot},
		Conditions: []v1.NodeCondition{{Type: v1.NodeReady, Status: ready, LastHeartbeatTime: metav1.NewTime(time.Now().Add(-(12*time.Minute + 30*time.Second))), Message: "container runtime is down"}},
	}}
}

// lease is what the dead node's kubelet renews.
func lease(renewed time.Time) *coordinationv1.Lease {
	at := metav1.NewMicroTime(renewed)
	return &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-node-lease", Name: "dead"}, Spec: coordinationv1.LeaseSpec{RenewTime: &at}}
}

// client has the objects that are there.
func (w *world) client() *fake.Clientset {
	var objects []runtime.Object
	if w.set != nil {
		objects = append(objects, w.set)
	}
	if w.pod != nil {
		objects = append(objects, w.pod)
	}
	if w.dead != nil {
		objects = append(objects, w.dead)
	}
	return fake.NewClientset(append(append(objects, w.claim, w.pv), w.others...)...)
}

// tainted gives a node the taint, as Run does.
func tainted(n *v1.Node) *v1.Node {
	n = foreign(n)
	n.Spec.Taints[0].TimeAdded = &metav1.Time{Time: time.Date(2026, 11, 29, 3, 0, 0, 0, time.Local)}
	n.Annotations = map[string]string{
		"podnas.io/failed-over-boot": n.Status.NodeInfo.BootID, "podnas.io/failed-over-at": n.Spec.Taints[0].TimeAdded.UTC().Format(time.RFC3339),
	}
	return n
}

// foreign gives it, as kubectl and others do.
func foreign(n *v1.Node) *v1.Node {
	n.Spec.Taints = []v1.Taint{{Key: v1.TaintNodeOutOfService, Value: "nodeshutdown", Effect: v1.TaintEffectNoExecute}}
	return n
}

// What does no good or harm is refused, and nothing is changed.
func TestRefused(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*world)
		says   []string
	}{
		"no podnas":            {func(w *world) { w.set = nil }, []string{"no StatefulSet podnas in namespace podnas", "--namespace"}},
		"scaled down":          {func(w *world) { none := int32(0); w.set.Spec.Replicas = &none }, []string{"scaled to 0", "--replicas=1"}},
		"no such node":         {func(w *world) { w.dead = nil; w.pod.Spec.NodeName = "alive" }, []string{"there is no node dead"}},
		"a node that is Ready": {func(w *world) { w.dead = node("dead", v1.ConditionTrue, "b") }, []string{"dead is Ready", "12m", "kubectl cordon dead"}},
		"another node":         {func(w *world) { w.pod = pod("alive", true) }, []string{"does not run on dead", "runs on alive, and is ready"}},
		"another dead node": {func(w *world) {
			w.pod.Spec.NodeName = "dead-too"
			w.others = append(w.others, node("dead-too", v1.ConditionUnknown, "b"))
		}, []string{"does not run on dead", "kubectl podnas failover dead-too -n podnas --name podnas"}},
		"no pod, and no taint": {func(w *world) { w.pod = nil }, []string{"does not run on dead", "no pod"}},
		"a disk in the node, local": {func(w *world) {
			w.pv.Spec.PersistentVolumeSource = v1.PersistentVolumeSource{Local: &v1.LocalVolumeSource{Path: "/disk"}}
			w.pv.Spec.NodeAffinity = on("dead")
		}, []string{"disk is in node dead", "PersistentVolume disk", "/disk", "repair the node"}},
		"a disk in the node, of a driver": {func(w *world) {
			w.pv.Spec.CSI.Driver, w.pv.Spec.NodeAffinity = "topolvm.io", with("topology.example.com/node", "dead")
		}, []string{"disk is in node dead", "PersistentVolume disk", "of the driver topolvm.io", "repair the node", "nodeAffinity"}},
		"a disk in the node, the only copy": {func(w *world) {
			w.pv.Spec.CSI.Driver, w.pv.Spec.NodeAffinity = "linstor.csi.linbit.com", with("topology.example.com/node", "dead")
		}, []string{"disk is in node dead", "linstor.csi.linbit.com"}},
		"a disk in the node, which was removed": {func(w *world) {
			w.pv.Spec.CSI.Driver, w.pv.Spec.NodeAffinity = "topolvm.io", with("topology.example.com/node", "dead")
			w.dead = nil
		}, []string{"disk is in node dead"}},
		"a disk of nodes of which the others are gone": {func(w *world) {
			w.pv.Spec.PersistentVolumeSource = v1.PersistentVolumeSource{Local: &v1.LocalVolumeSource{Path: "/disk"}}
			w.pv.Spec.NodeAffinity = on("dead", "gone")
		}, []string{"disk is in node dead", "nodeAffinity"}},
		"a podnas that tolerates everything":             {tolerates(v1.Toleration{Operator: v1.TolerationOpExists}), []string{"({operator: Exists})", "put on dead again", "edit statefulset/podnas"}},
		"a podnas that tolerates everything for a while": {tolerates(v1.Toleration{Operator: v1.TolerationOpExists, TolerationSeconds: new(int64)}), []string{"put on dead again"}},
		"a podnas that tolerates all of the node's taints": {func(w *world) {
			w.dead.Spec.Taints = []v1.Taint{{Key: v1.TaintNodeUnreachable, Effect: v1.TaintEffectNoSchedule}, {Key: "warm", Effect: v1.TaintEffectPreferNoSchedule}}
			tolerates(v1.Toleration{Key: v1.TaintNodeUnreachable, Operator: v1.TolerationOpExists}, v1.Toleration{Key: v1.TaintNodeOutOfService, Value: "nodeshutdown", Effect: v1.TaintEffectNoExecute})(w)
		}, []string{"({key: node.kubernetes.io/out-of-service, value: nodeshutdown, effect: NoExecute})"}},
		"a disk in the node, a folder": {func(w *world) {
			w.pod.Spec.Volumes[0].VolumeSource = v1.VolumeSource{HostPath: &v1.HostPathVolumeSource{Path: "/srv"}}
		}, []string{"disk is in node dead", "/srv"}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld()
			c.change(w)
			client := w.client()
			f := of(t, client)
			f.IsOff = true
			err := f.Run(soon(t))
			var refused *failover.RefusedError
			if !errors.As(err, &refused) || refused.Fix == "" {
				t.Fatalf("it ends with %v, want a refusal with what to do", err)
			}
			contains(t, err.Error(), c.says...)
			unchanged(t, client)
		})
	}
}

// The class of each overlay for a disk that another node can have is of a driver of which is said what it does with the old node.
func TestOverlaysDrivers(t *testing.T) {
	says := map[string]string{
		"piraeus":  "DRBD lets the side with quorum write",
		"longhorn": "does NOT stop the old one",
		"ceph-rbd": "Ceph blocks the old node when the next one takes the image's exclusive-lock, and when the old one has the taint, if CSI-Addons is installed",
		"mayastor": "NOTHING keeps the old node from it",
	}
	files, err := filepath.Glob("../../deploy/overlays/*/storageclass.yaml")
	if err != nil || len(files) != len(says) {
		t.Fatalf("overlays with a class: %q, %v", files, err)
	}
	for _, file := range files {
		overlay := filepath.Base(filepath.Dir(file))
		t.Run(overlay, func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			var class storagev1.StorageClass
			if err := yaml.UnmarshalStrict(text, &class); err != nil {
				t.Fatal(err)
			}
			w := newWorld()
			w.pv.Spec.CSI.Driver, w.pv.Spec.CSI.VolumeAttributes = class.Provisioner, class.Parameters
			f := of(t, w.client())
			no := errors.New("no")
			f.Ask = func(question string) error {
				contains(t, question, class.Provisioner, says[overlay])
				return no
			}
			if err := f.Run(t.Context()); !errors.Is(err, no) {
				t.Errorf("it ends with %v", err)
			}
		})
	}
}

// What is asked says what the disk does, and without an answer nothing is done.
func TestAsked(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*world)
		says   []string
	}{
		"a disk that fences":    {func(*world) {}, []string{"driver.longhorn.io", "does NOT stop the old one", "heard last 12m ago"}},
		"a driver nobody knows": {func(w *world) { w.pv.Spec.CSI.Driver = "example.com" }, []string{"example.com", "NOTHING keeps the old node"}},
		"iSCSI": {func(w *world) {
			w.pv.Spec.PersistentVolumeSource = v1.PersistentVolumeSource{ISCSI: &v1.ISCSIPersistentVolumeSource{}}
		}, []string{"iSCSI", "NOTHING keeps the old node", "destroy it"}},
		"two disks": {func(w *world) {
			w.pv.Spec.CSI.Driver = "example.com"
			second, claim := w.pv.DeepCopy(), w.claim.DeepCopy()
			second.Name, second.Spec.CSI.Driver = "second", "driver.longhorn.io"
			claim.Name, claim.Spec.VolumeName = "second", "second"
			w.pod.Spec.Volumes = append(w.pod.Spec.Volumes, v1.Volume{Name: "second", VolumeSource: v1.VolumeSource{
				PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: "second"},
			}})
			w.others = append(w.others, second, claim)
		}, []string{"PersistentVolume disk, is of the driver example.com", "NOTHING keeps the old node", "PersistentVolume second, is of the driver driver.longhorn.io", "does NOT stop the old one"}},
		"DRBD without a driver": {func(w *world) {
			w.pv.Spec.PersistentVolumeSource = v1.PersistentVolumeSource{Local: &v1.LocalVolumeSource{Path: "/disk"}}
			w.pv.Spec.NodeAffinity = on("dead", "alive")
		}, []string{"of several nodes", "NOTHING keeps the old node"}},
		"a driver nobody knows, between nodes": {func(w *world) {
			w.pv.Spec.CSI.Driver, w.pv.Spec.NodeAffinity = "example.com", with("topology.example.com/node", "dead", "alive")
		}, []string{"example.com", "NOTHING keeps the old node"}},
		"a cloud's, in a zone without another node": {func(w *world) {
			w.pv.Spec.CSI.Driver, w.pv.Spec.NodeAffinity = "ebs.csi.aws.com", with(v1.LabelTopologyZone, "zone-of-dead")
		}, []string{"AWS attaches it to one machine"}},
		"Ceph by Rook, without exclusive-lock": {func(w *world) {
			w.pv.Spec.CSI.Driver, w.pv.Spec.CSI.VolumeAttributes = "rook-ceph.rbd.csi.ceph.com", map[string]string{"imageFeatures": "layering"}
		}, []string{"if CSI-Addons is installed", "NOTHING keeps it"}},
		"Ceph without Rook, without exclusive-lock": {func(w *world) { w.pv.Spec.CSI.Driver = "rbd.csi.ceph.com" }, []string{"does not see the taint", "NOTHING keeps the old node"}},
		"Ceph without Rook": {func(w *world) {
			w.pv.Spec.CSI.Driver, w.pv.Spec.CSI.VolumeAttributes = "rbd.csi.ceph.com", map[string]string{"imageFeatures": "layering,exclusive-lock"}
		}, []string{"when the next one takes the image's exclusive-lock."}},
		"a kubelet that has spoken": {func(w *world) { w.dead = node("dead", v1.ConditionFalse, "b") }, []string{"which is ON", "container runtime is down"}},
		"a kubelet that has renewed its Lease since it posted": {func(w *world) {
			w.others = append(w.others, lease(time.Now().Add(-4*time.Minute)))
		}, []string{"heard last 4m"}},
		"a Lease that is older": {func(w *world) {
			w.others = append(w.others, lease(time.Now().Add(-time.Hour)))
		}, []string{"heard last 12m"}},
		"a clock that is ahead": {func(w *world) { w.others = append(w.others, lease(time.Now().Add(time.Minute))) }, []string{"heard last 0s ago"}},
		"a kubelet that has never posted": {func(w *world) {
			w.dead.CreationTimestamp = w.dead.Status.Conditions[0].LastHeartbeatTime
		}, []string{"has never been heard"}},
		"a node of which nobody has said anything": {func(w *world) { w.dead.Status.Conditions = nil }, []string{"has never been heard"}},
		"a node that was removed":                  {func(w *world) { w.dead = nil }, []string{"no node of the cluster any more"}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld()
			c.change(w)
			client := w.client()
			f := of(t, client)
			no := errors.New("no")
			f.Ask = func(question string) error {
				contains(t, question, append(c.says, "Is dead off? [y/N] ", "All pods of dead are deleted")...)
				return no
			}
			if err := f.Run(t.Context()); !errors.Is(err, no) {
				t.Errorf("it ends with %v", err)
			}
			unchanged(t, client)
		})
	}
	client := newWorld().client()
	var nobody *failover.NobodyError
	if err := of(t, client).Run(t.Context()); !errors.As(err, &nobody) || !strings.Contains(err.Error(), "--it-is-off") {
		t.Errorf("with nobody to ask: %v", err)
	}
	unchanged(t, client)
}

// A failover is gone on with wherever it was interrupted, and its last line says who can take the taint away.
func TestInterrupted(t *testing.T) {
	const ours, theirs, none = "When it is back, and was restarted: kubectl podnas failover dead --over", "kubectl taint node dead node.kubernetes.io/out-of-service-", "nothing is left to do"
	for name, c := range map[string]struct {
		change func(*world)
		last   string
	}{
		"before it began":           {func(*world) {}, ours},
		"after the taint":           {func(w *world) { tainted(w.dead) }, ours},
		"after the pod":             {func(w *world) { tainted(w.dead); w.pod = nil }, ours},
		"after its end":             {func(w *world) { tainted(w.dead); w.pod = pod("alive", true) }, ours},
		"while the next one starts": {func(w *world) { tainted(w.dead); w.pod = pod("alive", false) }, ours},
		"with a node that is gone":  {func(w *world) { w.dead = nil }, none},
		"with another's taint":      {func(w *world) { foreign(w.dead) }, theirs},
		"with another's taint, after one of ours that kubectl took away": {func(w *world) {
			was := tainted(w.dead).Annotations
			foreign(w.dead).Annotations = was
		}, theirs},
		"with our taint, from the boot before": {func(w *world) { tainted(w.dead).Annotations["podnas.io/failed-over-boot"] = "boot-0" }, ours},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld()
			c.change(w)
			client := w.client()
			f := of(t, client)
			f.IsOff = true
			go nextPod(t.Context(), client)
			var said strings.Builder
			f.Say = func(format string, args ...any) { fmt.Fprintf(&said, format+"\n", args...) }
			if err := f.Run(soon(t)); err != nil {
				t.Fatalf("%v\n%s", err, &said)
			}
			lines := strings.Split(strings.TrimSpace(said.String()), "\n")
			contains(t, said.String(), "podnas serves again, on alive")
			contains(t, lines[len(lines)-1], c.last)
			if w.dead == nil {
				return
			}
			n, err := client.CoreV1().Nodes().Get(t.Context(), "dead", metav1.GetOptions{})
			if err != nil || len(n.Spec.Taints) != 1 || n.Spec.Taints[0].Key != v1.TaintNodeOutOfService {
				t.Errorf("the node has the taints %v, %v", n.Spec.Taints, err)
			}
			if boot := n.Annotations["podnas.io/failed-over-boot"]; c.last == ours && boot != "boot-1" {
				t.Errorf("the boot that was given up is said to be %q", boot)
			}
			// The node comes back, and was not restarted.
			n.Status.Conditions[0].Status = v1.ConditionTrue
			if _, err := client.CoreV1().Nodes().Update(t.Context(), n, metav1.UpdateOptions{}); err != nil {
				t.Fatal(err)
			}
			if err := f.End(t.Context()); err == nil {
				t.Error("the taint is taken away before it was restarted")
			}
			n.Status.NodeInfo.BootID = "boot-2"
			if _, err := client.CoreV1().Nodes().Update(t.Context(), n, metav1.UpdateOptions{}); err != nil {
				t.Fatal(err)
			}
			if err := f.End(t.Context()); (err == nil) != (c.last == ours) {
				t.Errorf("after a restart its end is %v", err)
			}
		})
	}
}

// nextPod does what the StatefulSet's controller and a kubelet do.
func nextPod(ctx context.Context, client *fake.Clientset) {
	for ctx.Err() == nil {
		time.Sleep(20 * time.Millisecond)
		pods := client.CoreV1().Pods("podnas")
		switch p, err := pods.Get(ctx, "podnas-0", metav1.GetOptions{}); {
		case err != nil:
			_, _ = pods.Create(ctx, pod("alive", false), metav1.CreateOptions{})
		case p.Spec.NodeName == "alive":
			_, _ = pods.Update(ctx, pod("alive", true), metav1.UpdateOptions{})
			return
		}
	}
}

// When no node takes the pod, it says so until the time is over.
func TestNoOtherNode(t *testing.T) {
	w := newWorld()
	tainted(w.dead)
	w.pod = pod("", false)
	w.pod.Status.Conditions = append(w.pod.Status.Conditions, v1.PodCondition{Type: v1.PodScheduled, Status: v1.ConditionFalse, Message: "0/2 nodes are available"})
	ctx, cancel := context.WithTimeoutCause(t.Context(), 100*time.Millisecond, errors.New("time is over"))
	defer cancel()
	f := of(t, w.client())
	if err := f.Run(ctx); err == nil {
		t.Error("it ends well")
	} else {
		contains(t, err.Error(), "0/2 nodes are available", "time is over", "kubectl podnas doctor pod -n podnas --name podnas")
	}
}

// Who is asked may go and look first: the time begins anew with the answer.
func TestTimeoutAfterTheAnswer(t *testing.T) {
	t.Parallel()
	w := newWorld()
	f := of(t, w.client())
	f.Timeout = 300 * time.Millisecond
	var answered time.Time
	f.Ask = func(string) error {
		time.Sleep(f.Timeout + 100*time.Millisecond)
		answered = time.Now()
		return nil
	}
	err := f.Run(t.Context()) // no next pod comes
	if err == nil || !strings.Contains(err.Error(), "not within --timeout=300ms") || time.Since(answered) < f.Timeout {
		t.Errorf("%s after the answer it ends with %v", time.Since(answered), err)
	}
}

func TestOver(t *testing.T) {
	for name, c := range map[string]struct {
		node *v1.Node
		says string // of the refusal; empty: it is over
	}{
		"restarted":       {node("dead", v1.ConditionTrue, "boot-2"), ""},
		"not restarted":   {node("dead", v1.ConditionTrue, "boot-1"), "was not restarted"},
		"not back":        {node("dead", v1.ConditionUnknown, "boot-1"), "not Ready yet"},
		"somebody else's": {node("dead", v1.ConditionTrue, "boot-2"), "has not set the taint"},
		// Ours was taken away by kubectl, and somebody has set the taint since, with a time or without.
		"somebody else's, after ours":      {node("dead", v1.ConditionTrue, "boot-2"), "has not set the taint"},
		"somebody else's, at another time": {node("dead", v1.ConditionTrue, "boot-2"), "has not set the taint"},
	} {
		t.Run(name, func(t *testing.T) {
			n := tainted(c.node)
			n.Annotations["podnas.io/failed-over-boot"] = "boot-1"
			switch name {
			case "somebody else's":
				n.Annotations = nil
			case "somebody else's, after ours":
				foreign(n)
			case "somebody else's, at another time":
				n.Spec.Taints[0].TimeAdded = &metav1.Time{Time: n.Spec.Taints[0].TimeAdded.Add(time.Hour)}
			}
			n.Spec.Taints = append(n.Spec.Taints, v1.Taint{Key: "other"})
			w := newWorld()
			w.dead = n
			client := w.client()
			err := of(t, client).End(t.Context())
			now, getErr := client.CoreV1().Nodes().Get(t.Context(), "dead", metav1.GetOptions{})
			if getErr != nil {
				t.Fatal(getErr)
			}
			if c.says == "" {
				if err != nil || len(now.Spec.Taints) != 1 || now.Spec.Taints[0].Key != "other" || len(now.Annotations) != 0 {
					t.Errorf("%v; the node has %v and %v", err, now.Spec.Taints, now.Annotations)
				}
				return
			}
			if err == nil {
				t.Fatal("the taint is taken away")
			}
			contains(t, err.Error(), c.says)
			if len(now.Spec.Taints) != 2 {
				t.Errorf("the node has %v", now.Spec.Taints)
			}
		})
	}
	w := newWorld() // without the taint there is nothing to do
	if err := of(t, w.client()).End(t.Context()); err != nil {
		t.Error(err)
	}
}

// Of two taints of the same key, with one effect each, Run has set one: End takes that one alone.
func TestOverOfTwo(t *testing.T) {
	theirs := v1.Taint{Key: v1.TaintNodeOutOfService, Value: "repair", Effect: v1.TaintEffectNoSchedule}
	for name, order := range map[string]func(n *v1.Node){
		"ours first":   func(n *v1.Node) { n.Spec.Taints = append(n.Spec.Taints, theirs) },
		"theirs first": func(n *v1.Node) { n.Spec.Taints = append([]v1.Taint{theirs}, n.Spec.Taints...) },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld()
			w.dead = tainted(node("dead", v1.ConditionTrue, "boot-2"))
			w.dead.Annotations["podnas.io/failed-over-boot"] = "boot-1"
			order(w.dead)
			client := w.client()
			f := of(t, client)
			var said strings.Builder
			f.Say = func(format string, args ...any) { fmt.Fprintf(&said, format+"\n", args...) }
			if err := f.End(t.Context()); err != nil {
				t.Fatal(err)
			}
			n, err := client.CoreV1().Nodes().Get(t.Context(), "dead", metav1.GetOptions{})
			if err != nil || len(n.Spec.Taints) != 1 || n.Spec.Taints[0] != theirs || len(n.Annotations) != 0 {
				t.Errorf("the node has %v and %v, %v", n.Spec.Taints, n.Annotations, err)
			}
			contains(t, said.String(), "somebody else has set", "kubectl taint node dead node.kubernetes.io/out-of-service:NoSchedule-")
		})
	}
}

func of(t *testing.T, client *fake.Clientset) *failover.Failover {
	return &failover.Failover{Client: client, Namespace: "podnas", Name: "podnas", Node: "dead", Say: func(format string, args ...any) { t.Logf(format, args...) }}
}

func contains(t *testing.T, text string, wants ...string) {
	t.Helper()
	for _, want := range wants {
		if !strings.Contains(text, want) {
			t.Errorf("it says %q, want %q in it", text, want)
		}
	}
}

func unchanged(t *testing.T, client *fake.Clientset) {
	t.Helper()
	for _, a := range client.Actions() {
		if a.GetVerb() != "get" && a.GetVerb() != "list" {
			t.Errorf("it did %s %s", a.GetVerb(), a.GetResource().Resource)
		}
	}
}

// shared makes the world one of two pods with one disk: one on the dead node, and one on the other.
func (w *world) shared(dead, alive string) *v1.Pod {
	two := int32(2)
	w.set.Spec.Replicas = &two
	w.set.Spec.Template.Labels = map[string]string{"podnas.io/role": "standby"}
	w.pv.Spec.PersistentVolumeSource = v1.PersistentVolumeSource{ISCSI: &v1.ISCSIPersistentVolumeSource{}}
	w.pod.Labels = map[string]string{"podnas.io/role": dead}
	other := pod("alive", true)
	other.Name, other.Labels = "podnas-1", map[string]string{"podnas.io/role": alive}
	w.others = append(w.others, other)
	return other
}

// TestShared: with a standby podnas serves on already, and the dead node's pod is what is left to do.
func TestShared(t *testing.T) {
	for name, c := range map[string]struct {
		dead, alive string
		change      func(w *world, other *v1.Pod)
		says        []string
		err         string
	}{
		"the standby has taken over": {
			dead: "standby", alive: "active",
			says: []string{"podnas serves on alive, and needs nobody", "pod podnas-0 on dead has to go", "has the taint", "Pod podnas-0 on dead is deleted", "serves again, on alive", "keeps its taint"},
		},
		"the standby has died": {dead: "standby", alive: "active", says: []string{"podnas serves on alive", "Pod podnas-0 on dead is deleted"}},
		"none has taken over":  {dead: "active", alive: "standby", says: []string{"takes over by itself", "None has yet", "no standby has taken over yet"}, err: "no standby has taken over yet"},
		"both have the label":  {dead: "active", alive: "active", says: []string{"podnas serves on alive"}},
		"the other is not ready": {
			dead: "active", alive: "standby", change: func(_ *world, other *v1.Pod) { other.Status.Conditions[0].Status = v1.ConditionFalse },
			says: []string{"None has yet", "its container starts on alive"}, err: "does not serve yet",
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld()
			other := w.shared(c.dead, c.alive)
			if c.change != nil {
				c.change(w, other)
			}
			client := w.client()
			f := of(t, client)
			var said strings.Builder
			f.Say = func(format string, args ...any) { fmt.Fprintf(&said, format+"\n", args...) }
			f.Ask = func(question string) error {
				contains(t, question, "reserved for the podnas that serves", "Is dead off?")
				return nil
			}
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
			defer cancel()
			err := f.Run(ctx)
			if (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
				t.Errorf("it ends with %v, want %q", err, c.err)
			}
			contains(t, said.String(), c.says...)
			if strings.Contains(said.String(), "NOTHING keeps") {
				t.Errorf("it warns of a disk that is reserved: %s", &said)
			}
		})
	}
	t.Run("of the node that serves", func(t *testing.T) {
		w := newWorld()
		w.shared("standby", "active")
		client := w.client()
		f := of(t, client)
		f.Node, f.IsOff = "alive", true
		var refused *failover.RefusedError
		if err := f.Run(t.Context()); !errors.As(err, &refused) || !strings.Contains(err.Error(), "alive is Ready") || !strings.Contains(err.Error(), "delete pod podnas-1") {
			t.Errorf("it ends with %v", err)
		}
		unchanged(t, client)
	})
}

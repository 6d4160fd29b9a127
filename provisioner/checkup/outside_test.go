package checkup

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/podnas/podnas/internal/doctor"
)

// deployed is a podnas that runs; each test breaks it in a way of its own.
type deployed struct {
	set     *appsv1.StatefulSet
	pod     *v1.Pod
	claim   *v1.PersistentVolumeClaim
	classes []storagev1.StorageClass
	events  []v1.Event
	nodes   []v1.Node
	lease   *coordinationv1.Lease // of a node; nil: none
}

func longAgo() metav1.Time { return metav1.NewTime(time.Now().Add(-24 * time.Hour)) }

func newDeployed() *deployed {
	meta := func(name string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: "podnas", Name: name, UID: types.UID("uid of " + name), CreationTimestamp: longAgo()}
	}
	one := int32(1)
	d := &deployed{
		set:   &appsv1.StatefulSet{ObjectMeta: meta("podnas"), Spec: appsv1.StatefulSetSpec{Replicas: &one}},
		pod:   &v1.Pod{ObjectMeta: meta("podnas-0")},
		claim: &v1.PersistentVolumeClaim{ObjectMeta: meta("export-podnas-0")},
	}
	d.set.Spec.VolumeClaimTemplates = []v1.PersistentVolumeClaim{{ObjectMeta: metav1.ObjectMeta{Name: "export"}}}
	d.set.Spec.Template.Spec.Containers = []v1.Container{{Name: "podnas", Args: []string{"serve"}}}
	d.claim.Spec.VolumeName = "pvc-1"
	d.claim.Status = v1.PersistentVolumeClaimStatus{Phase: v1.ClaimBound, Capacity: v1.ResourceList{v1.ResourceStorage: resource.MustParse("10Gi")}}
	d.pod.Spec.NodeName = "node-a"
	d.pod.Spec.Volumes = []v1.Volume{{Name: "export", VolumeSource: v1.VolumeSource{
		PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: "export-podnas-0"},
	}}}
	d.pod.Status.Phase = v1.PodRunning
	d.pod.Status.Conditions = []v1.PodCondition{{Type: v1.PodReady, Status: v1.ConditionTrue}}
	d.pod.Status.ContainerStatuses = []v1.ContainerStatus{{
		Name: "podnas", Image: "ghcr.io/podnas/podnas:v1", Ready: true,
		State: v1.ContainerState{Running: &v1.ContainerStateRunning{StartedAt: longAgo()}},
	}}
	return d
}

// status is of podnas's container, in a pod that is not ready.
func (d *deployed) status() *v1.ContainerStatus {
	d.pod.Status.Conditions = nil
	s := &d.pod.Status.ContainerStatuses[0]
	s.Ready = false
	return s
}

// waits has the container wait.
func (d *deployed) waits(reason, message string) *v1.ContainerStatus {
	s := d.status()
	s.State = v1.ContainerState{Waiting: &v1.ContainerStateWaiting{Reason: reason, Message: message}}
	return s
}

// crashes has the container end again and again.
func (d *deployed) crashes(t v1.ContainerStateTerminated) {
	s := d.waits("CrashLoopBackOff", "back-off 5m0s restarting failed container")
	s.RestartCount = 7
	s.LastTerminationState.Terminated = &t
}

// pending has the pod wait for a node.
func (d *deployed) pending(message string) {
	d.pod.Spec.NodeName = ""
	d.pod.Status = v1.PodStatus{Phase: v1.PodPending, Conditions: []v1.PodCondition{
		{Type: v1.PodScheduled, Status: v1.ConditionFalse, Reason: "Unschedulable", Message: message},
	}}
}

// unbound has the claim wait for a disk.
func (d *deployed) unbound(class *string) {
	d.pending("pod has unbound immediate PersistentVolumeClaims")
	d.claim.Spec.VolumeName, d.claim.Spec.StorageClassName = "", class
	d.claim.Status = v1.PersistentVolumeClaimStatus{Phase: v1.ClaimPending}
}

// begins has the node begin with the pod.
func (d *deployed) begins(created time.Time) {
	d.pod.CreationTimestamp = metav1.NewTime(created)
	d.waits("ContainerCreating", "")
}

// warn adds an event, newer than those before it.
func (d *deployed) warn(about, reason, message string) {
	d.events = append(d.events, v1.Event{
		ObjectMeta:     metav1.ObjectMeta{Namespace: "podnas", Name: about + reason + message},
		InvolvedObject: v1.ObjectReference{Name: about, UID: types.UID("uid of " + about)},
		Type:           v1.EventTypeWarning, Reason: reason, Message: message,
		LastTimestamp: metav1.NewTime(longAgo().Add(time.Duration(len(d.events)) * time.Minute)),
	})
}

// outside looks at it.
func (d *deployed) outside() *Outside {
	var objects []runtime.Object
	if d.set != nil {
		objects = append(objects, d.set)
	}
	if d.pod != nil {
		objects = append(objects, d.pod)
	}
	if d.claim != nil {
		objects = append(objects, d.claim)
	}
	for i := range d.classes {
		objects = append(objects, &d.classes[i])
	}
	for i := range d.events {
		objects = append(objects, &d.events[i])
	}
	for i := range d.nodes {
		objects = append(objects, &d.nodes[i])
	}
	if d.lease != nil {
		objects = append(objects, d.lease)
	}
	return &Outside{Client: fake.NewClientset(objects...), Namespace: "podnas", Name: "podnas"}
}

func TestOutside(t *testing.T) {
	class := func(name, provisioner string, isDefault bool) storagev1.StorageClass {
		c := storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Provisioner: provisioner}
		if isDefault {
			c.Annotations = map[string]string{"storageclass.kubernetes.io/is-default-class": "true"}
		}
		return c
	}
	wait := storagev1.VolumeBindingWaitForFirstConsumer
	for _, tt := range []struct {
		name   string
		make   func(*deployed)
		check  string
		status doctor.Status
		says   string
		fix    string
		down   bool
	}{
		{"all is well", func(*deployed) {}, "pod podnas-0", doctor.OK, "runs on node node-a", "", false},
		{"a disk", func(*deployed) {}, "claim export-podnas-0", doctor.OK, "bound to pvc-1, 10Gi", "", false},

		{"nothing is there", func(d *deployed) { d.set, d.pod, d.claim = nil, nil, nil }, "statefulset", doctor.Failed, "no StatefulSet podnas in namespace podnas", "--namespace", true},
		{"scaled down", func(d *deployed) { *d.set.Spec.Replicas, d.pod = 0, nil }, "statefulset", doctor.Failed, "scaled to 0 pods", "--replicas=1", true},
		{"deleted", func(d *deployed) {
			now := metav1.Now()
			d.set.DeletionTimestamp, d.set.Finalizers, d.pod = &now, []string{"foregroundDeletion"}, nil
		}, "statefulset", doctor.Failed, "being deleted", "apply it again", true},
		{"Pod Security", func(d *deployed) {
			d.pod = nil
			d.warn("podnas", "FailedCreate", `create Pod podnas-0 in StatefulSet podnas failed error: pods "podnas-0" is forbidden: violates PodSecurity "baseline:latest"`)
		}, "statefulset", doctor.Failed, "violates PodSecurity", "enforce=privileged", true},
		{"a stricter Pod Security", func(d *deployed) {
			d.pod = nil
			d.warn("podnas", "FailedCreate", `create Pod podnas-0 in StatefulSet podnas failed error: pods "podnas-0" is forbidden: violates PodSecurity "restricted:latest"`)
		}, "statefulset", doctor.Failed, "violates PodSecurity", "enforce=baseline", true},
		{"a quota", func(d *deployed) {
			d.pod = nil
			d.warn("podnas", "FailedCreate", "exceeded quota: small")
		}, "statefulset", doctor.Failed, "exceeded quota: small", "ResourceQuota", true},
		{"no priority", func(d *deployed) {
			d.pod = nil
			d.warn("podnas", "FailedCreate", `pods "podnas-0" is forbidden: no PriorityClass with name podnas was found`)
		}, "statefulset", doctor.Failed, "no PriorityClass with name podnas", "contains the PriorityClass", true},
		{"just made", func(d *deployed) {
			d.set.CreationTimestamp, d.pod, d.claim = metav1.Now(), nil, nil
		}, "statefulset", doctor.Warning, "not created yet", "try again", true},
		{"nobody makes the pod", func(d *deployed) { d.pod = nil }, "statefulset", doctor.Failed, "no event says why", "kube-controller-manager", true},
		{"an event of the StatefulSet before", func(d *deployed) {
			d.pod = nil
			d.warn("podnas", "FailedCreate", "exceeded quota: small")
			d.events[0].InvolvedObject.UID = "another"
		}, "statefulset", doctor.Failed, "no event says why", "kube-controller-manager", true},
		{"the template of before", func(d *deployed) {
			d.waits("ImagePullBackOff", "Back-off pulling image")
			d.pod.Labels = map[string]string{"controller-revision-hash": "podnas-1"}
			d.set.Status.UpdateRevision = "podnas-2"
		}, "statefulset", doctor.Failed, "still the old one", "delete pod podnas-0", true},

		{"no room", func(d *deployed) { d.pending("0/3 nodes are available: 3 Insufficient memory.") }, "pod podnas-0", doctor.Failed, "3 Insufficient memory", "make room", true},
		{"two reasons", func(d *deployed) {
			d.pending("0/2 nodes are available: 1 node(s) didn't match Pod's node affinity/selector, 1 node(s) had untolerated taint {a: b}.")
		}, "pod podnas-0", doctor.Failed, "untolerated taint {a: b}", "nodeSelector requires, for deploy/overlays/hostpath: kubectl label node NODE podnas.io/disk=true. a node that is not ready", true},
		{"the disk's node is gone", func(d *deployed) { d.pending("1 node(s) had volume node affinity conflict") }, "pod podnas-0", doctor.Failed, "affinity conflict", "is gone", true},
		{"something new", func(d *deployed) { d.pending("the stars are wrong") }, "pod podnas-0", doctor.Failed, "the stars are wrong (Unschedulable)", "do what the scheduler says", true},
		{"no scheduler", func(d *deployed) {
			d.pending("")
			d.pod.Status.Conditions = nil
		}, "pod podnas-0", doctor.Failed, "no scheduler", "kube-scheduler", true},
		{"not scheduled yet", func(d *deployed) {
			d.pending("")
			d.pod.Status.Conditions, d.pod.CreationTimestamp = nil, metav1.Now()
		}, "pod podnas-0", doctor.Warning, "waits for a node", "try again", true},

		{"no image", func(d *deployed) {
			d.waits("ImagePullBackOff", `Back-off pulling image "ghcr.io/podnas/podnas:v1"`)
			d.warn("podnas-0", "Failed", `Failed to pull image "ghcr.io/podnas/podnas:v1": not found`)
			d.warn("podnas-0", "Failed", "Error: ImagePullBackOff")
		}, "pod podnas-0", doctor.Failed, "node-a can't get the image ghcr.io/podnas/podnas:v1: Failed to pull image \"ghcr.io/podnas/podnas:v1\": not found (ImagePullBackOff)", "kind load image-archive", true},
		{"no image, and no event", func(d *deployed) { d.waits("ErrImagePull", "401 Unauthorized") }, "pod podnas-0", doctor.Failed, "401 Unauthorized (ErrImagePull)", "imagePullSecrets", true},
		{"never pulled", func(d *deployed) { d.waits("ErrImageNeverPull", "is not present with pull policy of Never") }, "pod podnas-0", doctor.Failed, "not present", "imagePullPolicy is Never", true},
		{"a runtime that can't", func(d *deployed) { d.waits("CreateContainerError", "exec format error") }, "pod podnas-0", doctor.Failed, "exec format error (CreateContainerError)", "can't provide", true},
		{"a state of tomorrow", func(d *deployed) { d.waits("Thinking", "") }, "pod podnas-0", doctor.Failed, "it waits: Thinking", "describe pod podnas-0", true},

		{"crashes", func(d *deployed) {
			d.crashes(v1.ContainerStateTerminated{ExitCode: 1, Reason: "Error", Message: "podnas: open the disk: read-only file system\n"})
		}, "pod podnas-0", doctor.Failed, "again and again, 7 times so far. It ended with exit code 1. The end of its log:\n    podnas: open the disk: read-only file system", "end of its log says. Its whole log: kubectl -n podnas logs podnas-0 -c podnas --previous", true},
		{"a flag that is none", func(d *deployed) {
			d.crashes(v1.ContainerStateTerminated{ExitCode: 2, Reason: "Error", Message: "podnas: unknown flag: --workres"})
		}, "pod podnas-0", doctor.Failed, "unknown flag: --workres", "docs/reference/podnas_serve.md", true},
		{"without last words", func(d *deployed) { d.crashes(v1.ContainerStateTerminated{ExitCode: 139, Reason: "Error"}) }, "pod podnas-0", doctor.Failed, "exit code 139", "--previous", true},
		{"out of memory", func(d *deployed) { d.crashes(v1.ContainerStateTerminated{ExitCode: 137, Reason: "OOMKilled"}) }, "pod podnas-0", doctor.Failed, "too much memory", "limit", true},
		{"killed by its probe", func(d *deployed) {
			d.crashes(v1.ContainerStateTerminated{ExitCode: 137, Reason: "Error"})
			d.warn("podnas-0", "Unhealthy", "Liveness probe failed: context deadline exceeded")
		}, "pod podnas-0", doctor.Failed, "did not answer its probe: Liveness probe failed", "kernel's log of node node-a", true},
		{"ends by itself", func(d *deployed) { d.crashes(v1.ContainerStateTerminated{Reason: "Completed"}) }, "pod podnas-0", doctor.Failed, "asked to end", "describe pod", true},
		{"can't be started", func(d *deployed) {
			d.crashes(v1.ContainerStateTerminated{ExitCode: 128, Reason: "StartError", Message: "no such file or directory"})
		}, "pod podnas-0", doctor.Failed, "exit code 128, StartError. The end of its log:\n    no such file", "--previous", true},
		{"a crash loop of which no more is known", func(d *deployed) { d.waits("CrashLoopBackOff", "back-off") }, "pod podnas-0", doctor.Failed, "back-off", "--previous", true},
		{"between two starts", func(d *deployed) {
			d.status().State = v1.ContainerState{Terminated: &v1.ContainerStateTerminated{ExitCode: 1, Message: "podnas: no"}}
		}, "pod podnas-0", doctor.Failed, "will be started again. It ended with exit code 1. The end of its log:\n    podnas: no", "--previous", true},
		{"was started again", func(d *deployed) {
			s := &d.pod.Status.ContainerStatuses[0]
			s.RestartCount = 1
			s.LastTerminationState.Terminated = &v1.ContainerStateTerminated{ExitCode: 1, Message: "podnas: no", FinishedAt: metav1.Now()}
		}, "pod podnas-0", doctor.Warning, "it was restarted 1 time, the last time", "--previous", false},

		{"not ready", func(d *deployed) {
			d.status()
			d.warn("podnas-0", "Unhealthy", "Readiness probe failed: HTTP probe failed with statuscode: 503")
		}, "pod podnas-0", doctor.Failed, "is not ready: Readiness probe failed", "exec podnas-0 -- podnas doctor", false},
		{"starting", func(d *deployed) { d.status().State.Running.StartedAt = metav1.Now() }, "pod podnas-0", doctor.Warning, "it is starting", "try again", false},

		{"a disk that can't be attached", func(d *deployed) {
			d.begins(time.Now())
			d.warn("podnas-0", "FailedAttachVolume", `Multi-Attach error for volume "pvc-1"`)
		}, "pod podnas-0", doctor.Failed, "Multi-Attach", "kubectl podnas failover NODE", true},
		{"a disk that can't be mounted", func(d *deployed) {
			d.begins(time.Now())
			d.warn("podnas-0", "FailedMount", "MountVolume.SetUp failed")
			d.warn("podnas-0", "FailedScheduling", "what is over by now")
		}, "pod podnas-0", doctor.Failed, "can't start it: MountVolume.SetUp failed", "describe pod", true},
		{"begun just now", func(d *deployed) { d.begins(time.Now()) }, "pod podnas-0", doctor.Warning, "node node-a is starting it", "try again", true},
		{"begun long ago", func(d *deployed) { d.begins(longAgo().Time) }, "pod podnas-0", doctor.Failed, "has not started it", "kubectl get node node-a", true},
		{"the node says nothing at all", func(d *deployed) { d.pod.Status = v1.PodStatus{Phase: v1.PodPending} }, "pod podnas-0", doctor.Failed, "has not started it", "kubelet's log", true},
		{"evicted", func(d *deployed) {
			d.pod.Status = v1.PodStatus{Phase: v1.PodFailed, Reason: "Evicted", Message: "The node was low on resource: memory."}
		}, "pod podnas-0", doctor.Failed, "low on resource: memory. (Evicted)", "delete pod podnas-0", true},
		{"the node is lost", func(d *deployed) {
			past := longAgo()
			d.pod.DeletionTimestamp, d.pod.Finalizers = &past, []string{"x"}
		}, "pod podnas-0", doctor.Failed, "its node node-a does not report that it has", "kubectl podnas failover node-a -n podnas --name podnas", false},
		{"being replaced", func(d *deployed) {
			soon := metav1.NewTime(time.Now().Add(20 * time.Second))
			d.pod.DeletionTimestamp, d.pod.Finalizers = &soon, []string{"x"}
		}, "pod podnas-0", doctor.Warning, "it is ending", "try again", false},
		{"another's container", func(d *deployed) {
			d.waits("PodInitializing", "")
			d.pod.CreationTimestamp = metav1.Now()
			d.pod.Status.InitContainerStatuses = []v1.ContainerStatus{
				{Name: "first", State: v1.ContainerState{Terminated: &v1.ContainerStateTerminated{}}},
				{Name: "mesh", State: v1.ContainerState{Waiting: &v1.ContainerStateWaiting{Reason: "ErrImagePull", Message: "not found"}}},
			}
		}, "pod podnas-0", doctor.Failed, "container mesh: node node-a can't get the image", "registry", true},

		{"no default class", func(d *deployed) {
			d.unbound(nil)
			d.classes = []storagev1.StorageClass{class("fast", "csi.example.com", false)}
		}, "claim export-podnas-0", doctor.Failed, "names no StorageClass, and the cluster has no default one: there are fast", "kubectl patch storageclass NAME", true},
		{"no class at all", func(d *deployed) { d.unbound(nil) }, "claim export-podnas-0", doctor.Failed, "no default one: there is none", "deploy/overlays/hostpath", true},
		{"a claim is missed by the scheduler", func(d *deployed) { d.unbound(nil) }, "pod podnas-0", doctor.Failed, "unbound immediate", "check of the disk's claim", true},
		{"empty on purpose", func(d *deployed) { d.unbound(new("")) }, "claim export-podnas-0", doctor.Failed, "empty on purpose", "PersistentVolume that fits it", true},
		{"a class that is not there", func(d *deployed) {
			d.unbound(new("slow"))
			d.classes = []storagev1.StorageClass{class("fast", "csi.example.com", true)}
		}, "claim export-podnas-0", doctor.Failed, "StorageClass slow does not exist: there are fast", "delete statefulset/podnas pvc/export-podnas-0", true},
		{"its own class", func(d *deployed) {
			d.unbound(nil)
			d.classes = []storagev1.StorageClass{class("podnas", "podnas.io/nfs", true)}
		}, "claim export-podnas-0", doctor.Failed, "podnas's own", "choose a class", true},
		{"its own class, by another name", func(d *deployed) {
			d.unbound(new("team"))
			d.set.Spec.Template.Spec.Containers[0].Args = []string{"serve", "--provisioner=example.com/team"}
			d.classes = []storagev1.StorageClass{class("team", "example.com/team", false)}
		}, "claim export-podnas-0", doctor.Failed, "podnas's own", "choose a class", true},
		{"a disk that can't be made", func(d *deployed) {
			d.unbound(new("fast"))
			d.classes = []storagev1.StorageClass{class("fast", "csi.example.com", true)}
			d.warn("export-podnas-0", "ProvisioningFailed", "failed to provision: out of quota")
			d.warn("other", "ProvisioningFailed", "another's")
		}, "claim export-podnas-0", doctor.Failed, "no disk: failed to provision: out of quota", "csi.example.com", true},
		{"no driver", func(d *deployed) {
			d.unbound(new("fast"))
			d.classes = []storagev1.StorageClass{class("fast", "csi.example.com", true)}
		}, "claim export-podnas-0", doctor.Failed, "csi.example.com does not say why", "kubectl get csidrivers", true},
		{"a disk for where the pod comes to", func(d *deployed) {
			d.unbound(nil)
			d.classes = []storagev1.StorageClass{class("local", "csi.example.com", true)}
			d.classes[0].VolumeBindingMode = &wait
		}, "claim export-podnas-0", doctor.Warning, "when the pod has a node", "check of the pod", true},
		{"the disk is lost", func(d *deployed) { d.claim.Status.Phase = v1.ClaimLost }, "claim export-podnas-0", doctor.Failed, "pvc-1 is gone", "backup", false},
		{"the claim goes with its pod", func(d *deployed) {
			now := metav1.Now()
			d.claim.DeletionTimestamp, d.claim.Finalizers = &now, []string{"kubernetes.io/pvc-protection"}
		}, "claim export-podnas-0", doctor.Failed, "being deleted", "Retain", false},
		{"no claim", func(d *deployed) {
			d.pending(`persistentvolumeclaim "export-podnas-0" not found`)
			d.claim = nil
		}, "claim export-podnas-0", doctor.Failed, "does not exist", "existingClaim", true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			d := newDeployed()
			tt.make(d)
			results, down := d.outside().Look(t.Context())
			if down != tt.down {
				t.Errorf("that it is down is %v, want %v", down, tt.down)
			}
			for _, r := range results {
				if (r.Fix == "") != (r.Status == doctor.OK) {
					t.Errorf("%+v says what to do, or does not", r)
				}
			}
			for _, r := range results {
				if r.Check == tt.check && r.Status == tt.status && strings.Contains(r.Says, tt.says) && strings.Contains(r.Fix, tt.fix) {
					return
				}
			}
			t.Errorf("%+v\nwant %s of %s with %q, and to do %q", results, tt.status, tt.check, tt.says, tt.fix)
		})
	}
}

// All is well means that nothing else is told.
func TestOutsideWell(t *testing.T) {
	results, down := newDeployed().outside().Look(t.Context())
	if down || len(results) != 3 || doctor.Count(results, doctor.OK) != 3 {
		t.Errorf("%v, %+v", down, results)
	}
	// A folder of a node for a disk: no claim.
	d := newDeployed()
	d.pod.Spec.Volumes, d.set.Spec.VolumeClaimTemplates, d.claim = nil, nil, nil
	if results, _ := d.outside().Look(t.Context()); len(results) != 2 || doctor.Count(results, doctor.OK) != 2 {
		t.Errorf("without a claim: %+v", results)
	}
}

// What the person who asks may not look at is told, and does not hide the rest.
func TestOutsideRights(t *testing.T) {
	forbidden := func(what string) error {
		return apierrors.NewForbidden(schema.GroupResource{Resource: what}, "", errors.New("no"))
	}
	for _, tt := range []struct {
		resource string
		err      error
		make     func(*deployed)
		check    string
		status   doctor.Status
		says     string
		results  int
		down     bool
	}{
		{"events", forbidden("events"), func(*deployed) {}, "rights", doctor.Warning, "you have no right to list events", 4, false},
		{"statefulsets", forbidden("statefulsets"), func(*deployed) {}, "statefulset", doctor.Failed, "you have no right to get statefulsets", 3, false},
		{"statefulsets", forbidden("statefulsets"), func(d *deployed) { d.pod = nil }, "statefulset", doctor.Failed, "there is no pod podnas-0", 2, true},
		{"pods", forbidden("pods"), func(*deployed) {}, "pod podnas-0", doctor.Failed, "you have no right to get pods", 1, false},
		{"persistentvolumeclaims", forbidden("persistentvolumeclaims"), func(*deployed) {}, "claim export-podnas-0", doctor.Failed, "you have no right to get persistentvolumeclaims", 3, false},
		{"storageclasses", forbidden("storageclasses"), func(d *deployed) { d.unbound(nil) }, "claim export-podnas-0", doctor.Failed, "it has no disk", 3, true},
		{"events", context.DeadlineExceeded, func(*deployed) {}, "API server", doctor.Failed, "can't be queried", 1, false},
		{"pods", context.DeadlineExceeded, func(*deployed) {}, "pod podnas-0", doctor.Failed, "can't get pods", 1, false},
	} {
		t.Run(tt.resource+" "+tt.says, func(t *testing.T) {
			d := newDeployed()
			tt.make(d)
			o := d.outside()
			o.Client.(*fake.Clientset).PrependReactor("*", tt.resource, func(clienttesting.Action) (bool, runtime.Object, error) {
				return true, nil, tt.err
			})
			results, down := o.Look(t.Context())
			if down != tt.down || len(results) != tt.results {
				t.Errorf("down: %v, %d results, want %v, %d: %+v", down, len(results), tt.down, tt.results, results)
			}
			for _, r := range results {
				if r.Check == tt.check && r.Status == tt.status && strings.Contains(r.Says, tt.says) && r.Fix != "" {
					return
				}
			}
			t.Errorf("%+v\nwant %s of %s with %q", results, tt.status, tt.check, tt.says)
		})
	}
}

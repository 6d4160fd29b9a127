package checkup

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/podnas/podnas/internal/doctor"
	"github.com/podnas/podnas/provisioner"
)

// claim checks the claim of podnas's own disk.
func (o *Outside) claim(ctx context.Context, name string, set *appsv1.StatefulSet, pod *v1.Pod) []doctor.Result {
	claim, err := o.Client.CoreV1().PersistentVolumeClaims(o.Namespace).Get(ctx, name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err) && pod == nil:
		return nil // it is made before the pod
	case apierrors.IsNotFound(err):
		return only(doctor.Fail("if the StatefulSet created it, its data is gone with it: delete the pod, and the claim is created again, empty. If you named it (disk.existingClaim of the chart), create it or correct the name",
			"it does not exist"))
	case err != nil:
		return only(o.denied("", "get persistentvolumeclaims", err, doctor.Failed))
	case claim.DeletionTimestamp != nil:
		return only(doctor.Fail("before its pod ends, make sure that its data is kept: kubectl patch pv "+claim.Spec.VolumeName+
			` -p '{"spec":{"persistentVolumeReclaimPolicy":"Retain"}}' (docs/backup.md)`,
			"it is being deleted, and waits for its pod to end"))
	}
	switch claim.Status.Phase {
	case v1.ClaimBound:
		size := claim.Status.Capacity[v1.ResourceStorage]
		return only(doctor.Good("it is bound to %s, %s", claim.Spec.VolumeName, size.String()))
	case v1.ClaimLost:
		return only(doctor.Fail("find out who deleted it, and whether its data still exists; create a PersistentVolume of that name for it, or restore a backup (docs/backup.md)",
			"its PersistentVolume %s is gone", claim.Spec.VolumeName))
	}
	return only(o.unbound(ctx, claim, set))
}

// unbound says why a claim has no disk.
func (o *Outside) unbound(ctx context.Context, claim *v1.PersistentVolumeClaim, set *appsv1.StatefulSet) doctor.Result {
	why := o.warned(claim.UID)
	classes, err := o.Client.StorageV1().StorageClasses().List(ctx, metav1.ListOptions{})
	if err != nil {
		// They are cluster-wide, and most roles in a namespace do not grant them.
		return doctor.Fail("do what the message says. You have no right to list StorageClasses: ask somebody who has it whether the claim's class exists, or a default class (kubectl get storageclass)",
			"it has no disk: %s", cmp.Or(why, "no event says why"))
	}
	wanted := ""
	if claim.Spec.StorageClassName != nil {
		wanted = *claim.Spec.StorageClassName
		if wanted == "" {
			return doctor.Fail("create a PersistentVolume that fits it, or delete the claim and name a class", "its storageClassName is empty on purpose, and no PersistentVolume fits it. %s", why)
		}
	}
	var class *storagev1.StorageClass
	var names []string
	for i := range classes.Items {
		c := &classes.Items[i]
		names = append(names, c.Name)
		if c.Name == wanted || wanted == "" && c.Annotations[provisioner.DefaultClassAnnotation] == "true" {
			class = c
		}
	}
	there := "there is none in the cluster"
	if len(names) > 0 {
		there = "there are " + strings.Join(names, ", ")
	}
	// A StatefulSet's claim templates can't be changed.
	choose := fmt.Sprintf("choose a class that can create a disk (disk.storageClassName of the chart, or an overlay), run kubectl -n %s delete statefulset/%s pvc/%s, which contain no data yet, and apply again",
		o.Namespace, o.Name, claim.Name)
	switch {
	case class == nil && wanted == "":
		return doctor.Fail(`make one the default: kubectl patch storageclass NAME -p '{"metadata":{"annotations":{"`+provisioner.DefaultClassAnnotation+`":"true"}}}'; the claim then uses it. `+
			"Or "+choose+". Or use no claim: deploy/overlays/hostpath",
			"it names no StorageClass, and the cluster has no default one: %s", there)
	case class == nil:
		return doctor.Fail("create that class, or "+choose, "its StorageClass %s does not exist: %s", wanted, there)
	case class.Provisioner == provisionerOf(set):
		return doctor.Fail(choose, "its StorageClass %s is podnas's own, and podnas needs this disk before it can create volumes", class.Name)
	case why != "":
		return doctor.Fail("do what the message says; "+class.Provisioner+", which creates the disks of class "+class.Name+", tries again by itself, and its log says more",
			"it has no disk: %s", why)
	case class.VolumeBindingMode != nil && *class.VolumeBindingMode == storagev1.VolumeBindingWaitForFirstConsumer && claim.Annotations["volume.kubernetes.io/selected-node"] == "":
		return doctor.Warn("see the check of the pod", "its class %s creates the disk when the pod has a node", class.Name)
	}
	return doctor.Fail("check whether "+class.Provisioner+" runs, which creates the disks of class "+class.Name+": kubectl get pods -A, kubectl get csidrivers",
		"it has no disk, and %s does not say why", class.Provisioner)
}

// provisionerOf returns the provisioner name of a podnas.
func provisionerOf(set *appsv1.StatefulSet) string {
	if set != nil {
		for i := range set.Spec.Template.Spec.Containers {
			for _, arg := range set.Spec.Template.Spec.Containers[i].Args {
				if name, ok := strings.CutPrefix(arg, "--provisioner="); ok {
					return name
				}
			}
		}
	}
	return provisioner.DefaultName
}

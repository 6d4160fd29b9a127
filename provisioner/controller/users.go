package controller

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/podnas/podnas/provisioner"
)

// User is a pod that has a volume mounted.
type User struct {
	Namespace string `json:"namespace"`
	Pod       string `json:"pod"`
	Node      string `json:"node"`
	Claim     string `json:"claim"`
	Volume    string `json:"volume"`
	// Ending is whether the pod is being deleted.
	Ending bool `json:"ending,omitempty"`
}

// Users lists the pods that use claims bound to volumes of the disk with that
// identity, sorted by name.
func Users(ctx context.Context, client kubernetes.Interface, identity string) ([]User, error) {
	volumes, err := client.CoreV1().PersistentVolumes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("list PersistentVolumes: %w", err)
	}
	bound := map[[2]string]string{} // volumes, by namespace and name of their claims
	namespaces := map[string]bool{}
	for i := range volumes.Items {
		pv := &volumes.Items[i]
		if ref := pv.Spec.ClaimRef; ref != nil && pv.Annotations[provisioner.InstanceAnnotation] == identity {
			bound[[2]string{ref.Namespace, ref.Name}] = pv.Name
			namespaces[ref.Namespace] = true
		}
	}
	var users []User
	for namespace := range namespaces {
		pods, err := client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{})
		if apierrors.IsForbidden(err) {
			return nil, fmt.Errorf("podnas has no permission to list pods, so it does not know which of them have volumes mounted. Grant it while you wait for them with kubectl apply -f deploy/components/drain/rbac.yaml (Helm: --set drain.enabled=true), and delete it afterwards: %w", err)
		}
		if err != nil {
			return nil, fmt.Errorf("list pods in namespace %s: %w", namespace, err)
		}
		for i := range pods.Items {
			users = append(users, usersOf(&pods.Items[i], bound)...)
		}
	}
	slices.SortFunc(users, func(a, b User) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Pod, b.Pod), cmp.Compare(a.Volume, b.Volume))
	})
	return users, nil
}

// usersOf returns the volumes that a pod has mounted. A pod that is not scheduled,
// or has ended, has none.
func usersOf(pod *v1.Pod, bound map[[2]string]string) []User {
	if pod.Spec.NodeName == "" || pod.Status.Phase == v1.PodSucceeded || pod.Status.Phase == v1.PodFailed {
		return nil
	}
	var users []User
	for _, volume := range pod.Spec.Volumes {
		claim := ""
		switch {
		case volume.PersistentVolumeClaim != nil:
			claim = volume.PersistentVolumeClaim.ClaimName
		case volume.Ephemeral != nil:
			claim = pod.Name + "-" + volume.Name // as Kubernetes names it
		}
		name, ok := bound[[2]string{pod.Namespace, claim}]
		if !ok {
			continue
		}
		users = append(users, User{
			Namespace: pod.Namespace, Pod: pod.Name, Node: pod.Spec.NodeName,
			Claim: claim, Volume: name, Ending: pod.DeletionTimestamp != nil,
		})
	}
	return users
}

package provisioner

import (
	"context"
	"fmt"
	"sync/atomic"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// deploy/base/policy.yaml narrows what podnas may do with PersistentVolumes. It knows the
// account and the provisioner by their names, which can be changed without it; so whether
// it fits is tried, by dry runs.

// MayProvision tells why the API server would not let podnas make the volumes of a
// provisioner, nil if it would, or if that can't be found out.
func MayProvision(ctx context.Context, client kubernetes.Interface, name string) error {
	err := tryVolume(ctx, client, name, v1.PersistentVolumeSource{NFS: &v1.NFSVolumeSource{Server: "192.0.2.1", Path: "/"}})
	if !isRefused(err) {
		return nil
	}
	return fmt.Errorf("podnas is not allowed to create PersistentVolumes of provisioner %s: apply the ClusterRole and the ValidatingAdmissionPolicy of this version, and use the provisioner name of --provisioner in the policy: %w", name, err)
}

// MayMakeAny tells whether the API server would let podnas make a volume of any kind.
func MayMakeAny(ctx context.Context, client kubernetes.Interface, name string) (bool, error) {
	err := tryVolume(ctx, client, name, v1.PersistentVolumeSource{HostPath: &v1.HostPathVolumeSource{Path: "/"}})
	if isRefused(err) {
		return false, nil
	}
	return err == nil, err
}

// tryVolume asks for a PersistentVolume that is not kept.
func tryVolume(ctx context.Context, client kubernetes.Interface, name string, source v1.PersistentVolumeSource) error {
	_, err := client.CoreV1().PersistentVolumes().Create(ctx, &v1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "podnas-trial-", Annotations: map[string]string{provisionedBy: name}},
		Spec: v1.PersistentVolumeSpec{
			Capacity:               v1.ResourceList{v1.ResourceStorage: *resource.NewQuantity(1<<20, resource.BinarySI)},
			AccessModes:            []v1.PersistentVolumeAccessMode{v1.ReadWriteMany},
			PersistentVolumeSource: source,
		},
	}, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	return err
}

// isRefused tells whether it is for RBAC or a policy that the API server does not do it.
// A policy that gives no reason answers Invalid.
func isRefused(err error) bool { return apierrors.IsForbidden(err) || apierrors.IsInvalid(err) }

// permission is MayProvision for who asks before each volume: what was allowed once is not
// asked again.
type permission struct {
	client  kubernetes.Interface
	name    string // of the provisioner
	allowed atomic.Bool
}

func (p *permission) check(ctx context.Context) error {
	if p.allowed.Load() {
		return nil
	}
	err := MayProvision(ctx, p.client, p.name)
	if err == nil {
		p.allowed.Store(true)
	}
	return err
}

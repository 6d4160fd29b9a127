package controller

import (
	"context"
	"fmt"
	"sync/atomic"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/podnas/podnas/provisioner"
)

// deploy/base/policy.yaml restricts what podnas may do with PersistentVolumes. It
// contains the names of the account and the provisioner, which can be changed elsewhere;
// so podnas tests with dry runs whether the policy still fits.

// MayProvision returns why the API server would refuse podnas's PersistentVolumes
// of a provisioner, or nil if it would not, or if that can't be determined.
func MayProvision(ctx context.Context, client kubernetes.Interface, name string) error {
	err := tryVolume(ctx, client, name, v1.PersistentVolumeSource{NFS: &v1.NFSVolumeSource{Server: "192.0.2.1", Path: "/"}})
	if !isRefused(err) {
		return nil
	}
	return fmt.Errorf("podnas is not allowed to create PersistentVolumes of provisioner %s: apply the ClusterRole and the ValidatingAdmissionPolicy of this version, and use the provisioner name of --provisioner in the policy: %w", name, err)
}

// MayMakeAny reports whether the API server would let podnas create any kind of
// PersistentVolume.
func MayMakeAny(ctx context.Context, client kubernetes.Interface, name string) (bool, error) {
	err := tryVolume(ctx, client, name, v1.PersistentVolumeSource{HostPath: &v1.HostPathVolumeSource{Path: "/"}})
	if isRefused(err) {
		return false, nil
	}
	return err == nil, err
}

// tryVolume creates a PersistentVolume in a dry run.
func tryVolume(ctx context.Context, client kubernetes.Interface, name string, source v1.PersistentVolumeSource) error {
	_, err := client.CoreV1().PersistentVolumes().Create(ctx, &v1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "podnas-trial-", Annotations: map[string]string{provisioner.ProvisionedBy: name}},
		Spec: v1.PersistentVolumeSpec{
			Capacity:               v1.ResourceList{v1.ResourceStorage: *resource.NewQuantity(1<<20, resource.BinarySI)},
			AccessModes:            []v1.PersistentVolumeAccessMode{v1.ReadWriteMany},
			PersistentVolumeSource: source,
		},
	}, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	return err
}

// isRefused reports whether RBAC or a policy is the reason of an error. A policy without
// a reason answers Invalid.
func isRefused(err error) bool { return apierrors.IsForbidden(err) || apierrors.IsInvalid(err) }

// permission caches a positive result of MayProvision, for callers that check before each
// volume.
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

package controller

import (
	"fmt"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	corelisters "k8s.io/client-go/listers/core/v1"

	"github.com/podnas/podnas/provisioner"
)

// clusterClaims are the claims of a cluster.
type clusterClaims struct {
	claims   corelisters.PersistentVolumeClaimLister
	volumes  corelisters.PersistentVolumeLister
	identity string // of this disk
}

// VolumeOf implements provisioner.Claims.
func (c clusterClaims) VolumeOf(namespace, name string) (string, error) {
	claim, err := c.claims.PersistentVolumeClaims(namespace).Get(name)
	if apierrors.IsNotFound(err) {
		return "", fmt.Errorf("claim %s can't be copied: it does not exist in namespace %s", name, namespace)
	}
	if err != nil {
		return "", fmt.Errorf("get claim %s/%s: %w", namespace, name, err)
	}
	if claim.Status.Phase != v1.ClaimBound {
		return "", fmt.Errorf("claim %s can't be copied yet: it is not bound to a volume", name)
	}
	pv, err := c.volumes.Get(claim.Spec.VolumeName)
	if err != nil {
		return "", fmt.Errorf("get the PersistentVolume of claim %s: %w", name, err)
	}
	if pv.Annotations[provisioner.InstanceAnnotation] != c.identity || pv.Spec.ClaimRef == nil || pv.Spec.ClaimRef.UID != claim.UID {
		return "", fmt.Errorf("claim %s can't be copied: its volume %s is not on the disk of this podnas", name, pv.Name)
	}
	return pv.Name, nil
}

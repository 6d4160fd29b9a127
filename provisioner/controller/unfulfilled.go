package controller

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/maruel/natural"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	corelisters "k8s.io/client-go/listers/core/v1"
	storagelisters "k8s.io/client-go/listers/storage/v1"

	"github.com/podnas/podnas/internal/doctor"
	"github.com/podnas/podnas/provisioner"
)

// With these annotations Kubernetes assigns a claim to a provisioner.
const (
	storageProvisioner     = "volume.kubernetes.io/storage-provisioner"
	storageProvisionerBeta = "volume.beta.kubernetes.io/storage-provisioner"
)

// unfulfilled finds the claims without the requested volume or size: those whose last
// attempt failed, if they still exist and wait.
type unfulfilled struct {
	name      string // of the provisioner
	claims    corelisters.PersistentVolumeClaimLister
	classes   storagelisters.StorageClassLister
	volumes   corelisters.PersistentVolumeLister
	provision *provisioner.Problems // of provisioning and deletion
	expand    *provisioner.Problems // of expansion
}

func (u *unfulfilled) look() []doctor.Result {
	u.provision.Keep(func(about string) bool {
		if !strings.Contains(about, "/") {
			_, err := u.volumes.Get(about)
			return err == nil
		}
		claim := u.claim(about)
		return claim != nil && u.waits(claim)
	})
	u.expand.Keep(func(about string) bool {
		claim := u.claim(about)
		return claim != nil && wantsMore(claim)
	})
	wrong, stuck := map[string]string{}, map[string]string{}
	for about, err := range u.provision.Current() {
		if strings.Contains(about, "/") {
			wrong[about] = fmt.Sprintf("it gets no volume: %v", err)
		} else {
			stuck[about] = fmt.Sprintf("it can't be deleted: %v", err)
		}
	}
	for about, err := range u.expand.Current() {
		wrong[about] = fmt.Sprintf("its volume can't be expanded: %v", err)
	}
	// The library calls nothing for a claim whose class was deleted.
	claims, err := u.claims.List(labels.Everything())
	if err != nil {
		return []doctor.Result{doctor.Fail("read podnas's log", "claims can't be listed: %v", err)}
	}
	for _, claim := range claims {
		if class, gone := u.withoutClass(claim); gone {
			wrong[claimKey(claim)] = fmt.Sprintf("it gets no volume: its StorageClass %s is not there", class)
		}
	}
	var results []doctor.Result
	for _, key := range slices.SortedFunc(maps.Keys(wrong), natural.Compare) {
		r := doctor.Fail("change the claim, its class or the disk accordingly; podnas tries again within a minute", "%s", wrong[key])
		r.Check = "claim " + key
		results = append(results, r)
	}
	for _, name := range slices.Sorted(maps.Keys(stuck)) {
		r := doctor.Fail("solve that; podnas tries again within a minute", "%s", stuck[name])
		r.Check, r.Volume = "volume "+name, name
		results = append(results, r)
	}
	if len(results) == 0 {
		return []doctor.Result{doctor.Good("no claim is refused")}
	}
	return results
}

// claim returns the claim with this key, or nil.
func (u *unfulfilled) claim(key string) *v1.PersistentVolumeClaim {
	namespace, name, _ := strings.Cut(key, "/")
	claim, err := u.claims.PersistentVolumeClaims(namespace).Get(name)
	if err != nil {
		return nil
	}
	return claim
}

// waits reports whether a claim is this provisioner's, and has no volume.
func (u *unfulfilled) waits(claim *v1.PersistentVolumeClaim) bool {
	ours := claim.Annotations[storageProvisioner] == u.name || claim.Annotations[storageProvisionerBeta] == u.name
	return ours && claim.Spec.VolumeName == "" && claim.DeletionTimestamp == nil
}

// withoutClass reports whether the class of a waiting claim was deleted.
func (u *unfulfilled) withoutClass(claim *v1.PersistentVolumeClaim) (class string, gone bool) {
	if !u.waits(claim) || claim.Spec.StorageClassName == nil {
		return "", false
	}
	class = *claim.Spec.StorageClassName
	_, err := u.classes.Get(class)
	return class, apierrors.IsNotFound(err)
}

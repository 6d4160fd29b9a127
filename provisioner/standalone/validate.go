package standalone

import (
	"errors"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// What the API server refuses is refused here too, so that what works in a folder works
// in a cluster. Its rules are in apimachinery, which is used here, and in Kubernetes
// itself, which is not a library; those are implemented here again.

// validateClaim returns what the API server would refuse in a claim, by field.
func validateClaim(claim *v1.PersistentVolumeClaim) error {
	errs := validation.ValidateObjectMeta(&claim.ObjectMeta, true, validation.NameIsDNSSubdomain, field.NewPath("metadata"))
	spec := field.NewPath("spec")
	modes, known := claim.Spec.AccessModes, []v1.PersistentVolumeAccessMode{v1.ReadWriteOnce, v1.ReadOnlyMany, v1.ReadWriteMany, v1.ReadWriteOncePod}
	if len(modes) == 0 {
		errs = append(errs, field.Required(spec.Child("accessModes"), "for example [ReadWriteMany]"))
	}
	for i, mode := range modes {
		if !slices.Contains(known, mode) {
			errs = append(errs, field.NotSupported(spec.Child("accessModes").Index(i), mode, known))
		}
	}
	if len(modes) > 1 && slices.Contains(modes, v1.ReadWriteOncePod) {
		errs = append(errs, field.Forbidden(spec.Child("accessModes"), "ReadWriteOncePod can't be combined with other modes"))
	}
	if mode := claim.Spec.VolumeMode; mode != nil && *mode != v1.PersistentVolumeFilesystem && *mode != v1.PersistentVolumeBlock {
		errs = append(errs, field.NotSupported(spec.Child("volumeMode"), *mode, []v1.PersistentVolumeMode{v1.PersistentVolumeFilesystem, v1.PersistentVolumeBlock}))
	}
	if class := claim.Spec.StorageClassName; class != nil && *class != "" {
		errs = append(errs, validateName(*class, spec.Child("storageClassName"))...)
	}
	storage := spec.Child("resources", "requests", "storage")
	switch request, given := claim.Spec.Resources.Requests[v1.ResourceStorage]; {
	case !given:
		errs = append(errs, field.Required(storage, "for example 10Gi"))
	case request.Sign() <= 0:
		errs = append(errs, field.Invalid(storage, request.String(), "must be greater than zero"))
	}
	return oneLine(errs)
}

// validateClass returns what the API server would refuse in a StorageClass.
func validateClass(class *storagev1.StorageClass) error {
	errs := validation.ValidateObjectMeta(&class.ObjectMeta, false, validation.NameIsDNSSubdomain, field.NewPath("metadata"))
	if class.Provisioner == "" {
		errs = append(errs, field.Required(field.NewPath("provisioner"), "for example podnas.io/nfs"))
	}
	policies := []v1.PersistentVolumeReclaimPolicy{v1.PersistentVolumeReclaimDelete, v1.PersistentVolumeReclaimRetain}
	if p := class.ReclaimPolicy; p != nil && !slices.Contains(policies, *p) {
		errs = append(errs, field.NotSupported(field.NewPath("reclaimPolicy"), *p, policies))
	}
	return oneLine(errs)
}

func validateName(name string, path *field.Path) (errs field.ErrorList) {
	for _, problem := range validation.NameIsDNSSubdomain(name, false) {
		errs = append(errs, field.Invalid(path, name, problem))
	}
	return errs
}

func oneLine(errs field.ErrorList) error {
	if len(errs) == 0 {
		return nil
	}
	var lines []string
	for _, err := range errs {
		lines = append(lines, err.Error())
	}
	return errors.New(strings.Join(lines, "; "))
}

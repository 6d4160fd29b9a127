package provisioner

import (
	"errors"
	"fmt"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
)

// checkClaim refuses a claim that podnas can't fulfil with a new volume, and returns its
// size in bytes.
func checkClaim(claim *v1.PersistentVolumeClaim) (int64, error) {
	if err := CheckFields(claim); err != nil {
		return 0, err
	}
	size, err := NewSize(claim.Spec.Resources.Requests[v1.ResourceStorage])
	if err != nil {
		return 0, fmt.Errorf("resources.requests.storage: %w", err)
	}
	return size, nil
}

// CheckFields refuses a claim for what no volume of podnas is.
func CheckFields(claim *v1.PersistentVolumeClaim) error {
	spec := &claim.Spec
	switch {
	case spec.VolumeMode != nil && *spec.VolumeMode != v1.PersistentVolumeFilesystem:
		return fmt.Errorf("volumeMode %s: an NFS volume is a file system, use volumeMode: Filesystem", *spec.VolumeMode)
	case spec.Selector != nil:
		return errors.New("a selector chooses among existing volumes and can't be used for provisioning: remove it")
	case spec.VolumeAttributesClassName != nil && *spec.VolumeAttributesClassName != "":
		return fmt.Errorf("volumeAttributesClassName %s: podnas's volumes have no attributes that such a class could change: make the claim again without it", *spec.VolumeAttributesClassName)
	case len(spec.AccessModes) == 0:
		return errors.New("the claim has no access mode: add accessModes, for example [ReadWriteMany]")
	}
	return nil
}

// sourceClaim returns the name of the claim to clone, or "" for an empty volume.
// The API server also copies dataSource to dataSourceRef.
func sourceClaim(claim *v1.PersistentVolumeClaim) (string, error) {
	var field, kind, name string
	var group *string
	switch spec := &claim.Spec; {
	case spec.DataSource != nil:
		field, group, kind, name = "dataSource", spec.DataSource.APIGroup, spec.DataSource.Kind, spec.DataSource.Name
		if ref := spec.DataSourceRef; ref != nil && (ref.Namespace != nil || !equality.Semantic.DeepEqual(ref.APIGroup, group) || ref.Kind != kind || ref.Name != name) {
			return "", errors.New("dataSource and dataSourceRef differ: remove one of them")
		}
	case spec.DataSourceRef != nil:
		field, group, kind, name = "dataSourceRef", spec.DataSourceRef.APIGroup, spec.DataSourceRef.Kind, spec.DataSourceRef.Name
		if ns := spec.DataSourceRef.Namespace; ns != nil && *ns != "" && *ns != claim.Namespace {
			return "", fmt.Errorf("dataSourceRef %s %s/%s: a claim can only be copied within its namespace", kind, *ns, name)
		}
	default:
		return "", nil
	}
	if kind != "PersistentVolumeClaim" || group != nil && *group != "" {
		return "", fmt.Errorf("%s %s %s: podnas can only copy claims: use kind: PersistentVolumeClaim, or remove it", field, kind, name)
	}
	if name == "" { // else the volume would be empty
		return "", fmt.Errorf("%s has no name: add the name of the claim to copy, or remove it", field)
	}
	return name, nil
}

package provisioner

import (
	"errors"
	"fmt"

	v1 "k8s.io/api/core/v1"
)

// checkClaim refuses a claim that podnas can't fulfil, and returns its size in
// bytes.
func checkClaim(claim *v1.PersistentVolumeClaim) (int64, error) {
	spec := &claim.Spec
	switch {
	case spec.VolumeMode != nil && *spec.VolumeMode != v1.PersistentVolumeFilesystem:
		return 0, fmt.Errorf("volumeMode %s: an NFS volume is a file system, use volumeMode: Filesystem", *spec.VolumeMode)
	case spec.Selector != nil:
		return 0, errors.New("a selector chooses among existing volumes and can't be used for provisioning: remove it")
	case spec.VolumeAttributesClassName != nil && *spec.VolumeAttributesClassName != "":
		return 0, fmt.Errorf("volumeAttributesClassName %s: podnas's volumes have no attributes that such a class could change: make the claim again without it", *spec.VolumeAttributesClassName)
	case len(spec.AccessModes) == 0:
		return 0, errors.New("the claim has no access mode: add accessModes, for example [ReadWriteMany]")
	}
	request := spec.Resources.Requests[v1.ResourceStorage]
	// The quantity rounds up to whole bytes.
	if request.Value() <= 0 {
		return 0, fmt.Errorf("the claim requests %s of storage: set resources.requests.storage to more than 0", request.String())
	}
	return request.Value(), nil
}

// sourceClaim returns the name of the claim to clone, or "" for an empty volume.
// The API server also copies dataSource to dataSourceRef.
func sourceClaim(claim *v1.PersistentVolumeClaim) (string, error) {
	var field, kind, name string
	var group *string
	switch spec := &claim.Spec; {
	case spec.DataSource != nil:
		field, group, kind, name = "dataSource", spec.DataSource.APIGroup, spec.DataSource.Kind, spec.DataSource.Name
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
	return name, nil
}

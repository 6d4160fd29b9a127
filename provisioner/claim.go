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

// sourceName is what a claim is to be a copy of: a claim, or a VolumeSnapshot.
type sourceName struct {
	isSnapshot bool
	name       string // empty: nothing
}

func (s sourceName) String() string {
	if s.isSnapshot {
		return "VolumeSnapshot " + s.name
	}
	return "claim " + s.name
}

// sourceOf returns what the claim is to be a copy of. The API server also copies dataSource to dataSourceRef.
func sourceOf(claim *v1.PersistentVolumeClaim) (sourceName, error) {
	var field, kind, name string
	var group *string
	switch spec := &claim.Spec; {
	case spec.DataSource != nil:
		field, group, kind, name = "dataSource", spec.DataSource.APIGroup, spec.DataSource.Kind, spec.DataSource.Name
		if ref := spec.DataSourceRef; ref != nil && (ref.Namespace != nil || !equality.Semantic.DeepEqual(ref.APIGroup, group) || ref.Kind != kind || ref.Name != name) {
			return sourceName{}, errors.New("dataSource and dataSourceRef differ: remove one of them")
		}
	case spec.DataSourceRef != nil:
		field, group, kind, name = "dataSourceRef", spec.DataSourceRef.APIGroup, spec.DataSourceRef.Kind, spec.DataSourceRef.Name
		if ns := spec.DataSourceRef.Namespace; ns != nil && *ns != "" && *ns != claim.Namespace {
			return sourceName{}, fmt.Errorf("dataSourceRef %s %s/%s: a claim can only be copied within its namespace", kind, *ns, name)
		}
	default:
		return sourceName{}, nil
	}
	isClaim := kind == "PersistentVolumeClaim" && (group == nil || *group == "")
	isSnapshot := kind == "VolumeSnapshot" && group != nil && *group == "snapshot.storage.k8s.io"
	if !isClaim && !isSnapshot {
		return sourceName{}, fmt.Errorf("%s %s %s: podnas can only copy claims and VolumeSnapshots: use kind: PersistentVolumeClaim, or VolumeSnapshot with apiGroup: snapshot.storage.k8s.io, or remove it", field, kind, name)
	}
	if name == "" { // else the volume would be empty
		return sourceName{}, fmt.Errorf("%s has no name: add the name of the %s to copy, or remove it", field, kind)
	}
	return sourceName{isSnapshot, name}, nil
}

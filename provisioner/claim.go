package provisioner

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
)

// checkClass refuses a StorageClass whose wishes podnas can't fulfil. A wish
// that is not understood is refused too: to pass it over in silence would give
// the user something else than was asked for.
func checkClass(class *storagev1.StorageClass) error {
	if len(class.Parameters) > 0 {
		return fmt.Errorf("StorageClass %s: unknown parameters %s: podnas takes none, remove them",
			class.Name, strings.Join(slices.Sorted(maps.Keys(class.Parameters)), ", "))
	}
	for _, option := range class.MountOptions {
		switch key, value, _ := strings.Cut(option, "="); {
		case (key == "nfsvers" || key == "vers") && value != "3":
			return fmt.Errorf("StorageClass %s: mount option %s: podnas serves NFS version 3 only", class.Name, option)
		case (key == "proto" || key == "mountproto") && strings.HasPrefix(value, "udp"), key == "udp":
			return fmt.Errorf("StorageClass %s: mount option %s: podnas serves TCP only", class.Name, option)
		}
	}
	return nil
}

// checkClaim refuses a claim that podnas can't fulfil, and returns its size in
// bytes.
func checkClaim(claim *v1.PersistentVolumeClaim) (int64, error) {
	spec := &claim.Spec
	switch {
	case spec.VolumeMode != nil && *spec.VolumeMode != v1.PersistentVolumeFilesystem:
		return 0, fmt.Errorf("volumeMode %s: an NFS volume is a file system, use volumeMode: Filesystem", *spec.VolumeMode)
	case spec.Selector != nil:
		return 0, fmt.Errorf("a selector chooses among volumes that exist and can't be met by making one: remove it")
	case spec.DataSource != nil:
		return 0, fmt.Errorf("dataSource %s %s: podnas makes empty volumes only", spec.DataSource.Kind, spec.DataSource.Name)
	case spec.DataSourceRef != nil:
		return 0, fmt.Errorf("dataSourceRef %s %s: podnas makes empty volumes only", spec.DataSourceRef.Kind, spec.DataSourceRef.Name)
	case len(spec.AccessModes) == 0:
		return 0, fmt.Errorf("the claim has no access mode: add accessModes, for example [ReadWriteMany]")
	}
	request := spec.Resources.Requests[v1.ResourceStorage]
	// The quantity rounds up to whole bytes.
	if request.Value() <= 0 {
		return 0, fmt.Errorf("the claim asks for %s of storage: ask for more than 0 in resources.requests.storage", request.String())
	}
	return request.Value(), nil
}

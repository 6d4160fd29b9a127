package checkup

import (
	"context"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/podnas/podnas/internal/doctor"
	"github.com/podnas/podnas/provisioner"
)

// classes checks the StorageClasses of this provisioner.
func (c *Cluster) classes(ctx context.Context) []doctor.Result {
	list, err := c.Client.StorageV1().StorageClasses().List(ctx, metav1.ListOptions{})
	if err != nil {
		return []doctor.Result{doctor.Fail("see the check \"rights\"", "can't list StorageClasses: %v", err)}
	}
	var results []doctor.Result
	for i := range list.Items {
		class := &list.Items[i]
		if class.Provisioner != c.Provisioner.Name {
			continue
		}
		for _, r := range c.class(class) {
			r.Check = "class " + class.Name
			results = append(results, r)
		}
	}
	if len(results) == 0 {
		return []doctor.Result{doctor.Warn("create one, for example deploy/base/storageclass.yaml; docs/storageclass.md has all parameters",
			"no StorageClass has the provisioner %s, so podnas gets no claims", c.Provisioner.Name)}
	}
	return results
}

// class checks one StorageClass.
func (c *Cluster) class(class *storagev1.StorageClass) []doctor.Result {
	const again = "a StorageClass can't be changed: delete it and create a corrected one; existing volumes do not change (docs/storageclass.md)"
	options, err := c.Provisioner.ClassOptions(class)
	if err == nil && c.Check != nil {
		err = c.Check(options)
	}
	if err != nil {
		return []doctor.Result{doctor.Fail(again, "its claims get no volume: %v", err)}
	}
	var results []doctor.Result
	for _, option := range provisioner.ClassMountOptions(class) {
		key, _, _ := strings.Cut(option, "=")
		switch key {
		case "soft", "softerr":
			results = append(results, doctor.Warn(again,
				"mount option %s: while podnas's pod is replaced, programs get I/O errors and writes are lost. Remove it, so that programs wait (hard)", key))
		case "lock":
			results = append(results, doctor.Warn(again,
				"mount option lock: podnas does not serve NFS's lock protocol, so mounts, or a program's first lock, fail. Remove it"))
		}
	}
	if len(results) > 0 {
		return results
	}
	says := []string{"its parameters are valid"}
	if class.ReclaimPolicy != nil && *class.ReclaimPolicy == v1.PersistentVolumeReclaimRetain {
		says = append(says, "volumes are kept when their claims are deleted")
	} else {
		says = append(says, "volumes are deleted with their claims")
	}
	if class.AllowVolumeExpansion == nil || !*class.AllowVolumeExpansion {
		says = append(says, "claims can't be expanded")
	}
	return []doctor.Result{doctor.Good("%s", strings.Join(slices.Compact(says), ", "))}
}

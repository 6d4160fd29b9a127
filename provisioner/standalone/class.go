package standalone

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/podnas/podnas/provisioner"
)

// errNotOurs means that a claim is for another provisioner.
var errNotOurs = errors.New("not for this provisioner")

// className returns the name of a claim's StorageClass, which may be empty, and whether
// the claim has one. As in Kubernetes, the beta annotation wins.
func className(claim *v1.PersistentVolumeClaim) (name string, given bool) {
	if name, given := claim.Annotations[v1.BetaStorageClassAnnotation]; given {
		return name, true
	}
	if claim.Spec.StorageClassName != nil {
		return *claim.Spec.StorageClassName, true
	}
	return "", false
}

// class finds the StorageClass of a claim. Its error is errNotOurs if the claim names a
// class of another provisioner, or none.
func (m *manifests) class(claim *v1.PersistentVolumeClaim, ours string) (*storagev1.StorageClass, error) {
	name, given := className(claim)
	switch {
	case !given:
		return m.defaultClass(ours)
	case name == "":
		return nil, fmt.Errorf(`storageClassName is "": %w`, errNotOurs)
	}
	class, ok := m.classes[name]
	switch {
	case m.twice["class "+name] != nil:
		return nil, fmt.Errorf("StorageClass %s: %w", name, m.twice["class "+name])
	case !ok && len(m.broken) > 0:
		return nil, fmt.Errorf("no file in the folder has the StorageClass %s, unless it is in one that podnas does not understand: %s", name, m.brokenNames())
	case !ok:
		return nil, fmt.Errorf("no file in the folder has the StorageClass %s: add it", name)
	case class.Provisioner != ours:
		return nil, fmt.Errorf("StorageClass %s is for %s: %w", class.Name, class.Provisioner, errNotOurs)
	}
	return class, nil
}

// defaultClass returns the class of claims without one. Of several defaults Kubernetes takes the
// one that was made last, and the classes of a folder have no such time.
func (m *manifests) defaultClass(ours string) (*storagev1.StorageClass, error) {
	var defaults []string
	for _, name := range slices.Sorted(maps.Keys(m.classes)) {
		marks := m.classes[name].Annotations
		if marks[provisioner.DefaultClassAnnotation] == "true" || marks[provisioner.BetaDefaultClassAnnotation] == "true" {
			defaults = append(defaults, name)
		}
	}
	switch {
	case len(defaults) == 0:
		return nil, fmt.Errorf("the claim has no storageClassName, and no StorageClass in the folder is the default (annotation %s)", provisioner.DefaultClassAnnotation)
	case len(defaults) > 1:
		return nil, fmt.Errorf("the claim has no storageClassName, and several StorageClasses are the default: %s. Set storageClassName, or remove the annotation %s from all but one",
			strings.Join(defaults, ", "), provisioner.DefaultClassAnnotation)
	}
	class := m.classes[defaults[0]]
	if class.Provisioner != ours {
		return nil, fmt.Errorf("the claim has no storageClassName, and the default StorageClass, %s, is for the provisioner %s, not for %s: set storageClassName to a class of %[3]s", class.Name, class.Provisioner, ours)
	}
	return class, nil
}

func (m *manifests) brokenNames() string {
	return strings.Join(slices.Sorted(maps.Keys(m.broken)), ", ")
}

package standalone

import (
	"errors"
	"fmt"
	"strings"

	yaml "go.yaml.in/yaml/v3"
	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
)

// The kinds that a folder is read for. Others are passed over, because a file may contain
// a whole application, but not those that may be meant as one of these: a misspelled
// claim is not a removed one.

func claimKind() schema.GroupVersionKind {
	return v1.SchemeGroupVersion.WithKind("PersistentVolumeClaim")
}

func classKind() schema.GroupVersionKind {
	return storagev1.SchemeGroupVersion.WithKind("StorageClass")
}

// kindOf returns the kind of a document, which is implied if it says nothing.
func kindOf(document *yaml.Node, implied schema.GroupVersionKind) (schema.GroupVersionKind, error) {
	none := schema.GroupVersionKind{}
	if document.Kind != yaml.MappingNode {
		return none, errors.New("it is no object with fields, such as apiVersion and kind")
	}
	says := map[string]string{}
	for i := 0; i+1 < len(document.Content); i += 2 {
		switch name := document.Content[i].Value; name {
		case "apiVersion", "kind":
			if _, twice := says[name]; twice { // two documents in one: the line --- is missing, or has text
				return none, fmt.Errorf("%s stands twice, in line %d again: a line with --- alone must be between two objects", name, document.Content[i].Line)
			}
			says[name] = document.Content[i+1].Value
		}
	}
	if len(says) == 0 && implied.Kind != "" {
		return implied, nil
	}
	gvk := schema.FromAPIVersionAndKind(says["apiVersion"], says["kind"])
	if gvk.Kind == "" || gvk.Version == "" {
		return none, errors.New("apiVersion or kind is missing")
	}
	if implied.Kind != "" && gvk != implied {
		return none, fmt.Errorf("it is a %s of %s in a list of %s", gvk.Kind, gvk.GroupVersion(), implied.Kind)
	}
	return gvk, nil
}

// listKind reports whether a kind is a list that is read, and which kind its items have
// if they say nothing.
func listKind(gvk schema.GroupVersionKind) (items schema.GroupVersionKind, isList bool) {
	switch gvk {
	case v1.SchemeGroupVersion.WithKind("List"):
		return schema.GroupVersionKind{}, true
	case v1.SchemeGroupVersion.WithKind("PersistentVolumeClaimList"):
		return claimKind(), true
	case storagev1.SchemeGroupVersion.WithKind("StorageClassList"):
		return classKind(), true
	}
	return schema.GroupVersionKind{}, false
}

// checkKind refuses a document that may be meant as a claim or a class.
func checkKind(gvk schema.GroupVersionKind) error {
	meant := func(kind string) bool {
		kind = strings.ToLower(kind)
		return kind == "list" || strings.HasPrefix(kind, "persistentvolumeclaim") || strings.HasPrefix(kind, "storageclass")
	}
	if meant(gvk.Kind) || scheme.Scheme.IsGroupRegistered(gvk.Group) && !scheme.Scheme.Recognizes(gvk) {
		return fmt.Errorf("unknown kind %[2]s in apiVersion %[1]s: a claim is v1 PersistentVolumeClaim, a class storage.k8s.io/v1 StorageClass, a list v1 List",
			gvk.GroupVersion(), gvk.Kind)
	}
	return nil
}

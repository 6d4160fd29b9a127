package standalone

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"

	"github.com/podnas/podnas/provisioner"
)

// claimKey is "namespace/name".
type claimKey string

func keyOf(namespace, name string) claimKey { return claimKey(namespace + "/" + name) }

// manifests is the contents of a folder of manifests.
type manifests struct {
	claims  map[claimKey]*v1.PersistentVolumeClaim
	classes map[string]*storagev1.StorageClass
	sources map[claimKey]string // the file of each claim
	names   []string            // of all files
	// broken has the errors of files, by name. While there are any, it is unknown
	// which claims should exist.
	broken map[string]error
}

// readManifests reads every *.yaml, *.yml and *.json file of a folder.
func readManifests(dir string, files *parsed[[]any]) (*manifests, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("read the folder of claims: %w", err)
	}
	m := &manifests{
		claims:  map[claimKey]*v1.PersistentVolumeClaim{},
		classes: map[string]*storagev1.StorageClass{},
		sources: map[claimKey]string{},
		broken:  map[string]error{},
	}
	there := map[string]bool{}
	for _, e := range entries {
		ext := filepath.Ext(e.Name())
		// Editors keep drafts in hidden files.
		if e.IsDir() || strings.HasPrefix(e.Name(), ".") || !slices.Contains([]string{".yaml", ".yml", ".json"}, ext) {
			continue
		}
		name := filepath.Join(dir, e.Name())
		there[name] = true
		m.names = append(m.names, e.Name())
		// The documents before a broken one count.
		documents, err := files.parse(name, parseManifests)
		for i, document := range documents {
			if wrong := m.add(document, e.Name()); wrong != nil && err == nil {
				err = fmt.Errorf("document %d: %w", i+1, wrong)
			}
		}
		if err != nil {
			m.broken[e.Name()] = err
		}
	}
	files.forget(func(name string) bool { return there[name] })
	return m, nil
}

// parseManifests parses the documents of a file: each is a StorageClass, a
// PersistentVolumeClaim, or nil.
func parseManifests(data []byte) (documents []any, err error) {
	r := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(data)))
	empty := true
	for n := 1; ; n++ {
		text, err := r.Read()
		if errors.Is(err, io.EOF) {
			if empty {
				return nil, errors.New("the file is empty: remove it if you want to remove its claims")
			}
			return documents, nil
		}
		var document any
		if err == nil {
			document, err = parseManifest(text)
		}
		switch {
		case errors.Is(err, errNothing): // between two lines of ---
		case err != nil && !errors.Is(err, errOtherKind):
			return documents, fmt.Errorf("document %d: %w", n, err)
		default:
			empty = false
		}
		documents = append(documents, document)
	}
}

// errNothing is the error of a document with only comments.
var errNothing = errors.New("nothing")

// parseManifest parses one document. It checks the name and the other fields that a
// cluster requires.
func parseManifest(text []byte) (any, error) {
	var anything any
	if err := yaml.Unmarshal(text, &anything); err != nil {
		return nil, err
	}
	if anything == nil {
		return nil, errNothing
	}
	var kind metav1.TypeMeta
	if err := yaml.Unmarshal(text, &kind); err != nil {
		return nil, err
	}
	switch gvk := kind.GroupVersionKind(); gvk {
	case storagev1.SchemeGroupVersion.WithKind("StorageClass"):
		class := &storagev1.StorageClass{}
		if err := yaml.UnmarshalStrict(text, class); err != nil {
			return nil, err
		}
		return class, validateClass(class)
	case v1.SchemeGroupVersion.WithKind("PersistentVolumeClaim"):
		claim := &v1.PersistentVolumeClaim{}
		if err := yaml.UnmarshalStrict(text, claim); err != nil {
			return nil, err
		}
		if claim.Namespace == "" {
			claim.Namespace = metav1.NamespaceDefault
		}
		if err := validateClaim(claim); err != nil {
			return nil, fmt.Errorf("claim %s/%s: %w", claim.Namespace, claim.Name, err)
		}
		return claim, nil
	default:
		return nil, checkKind(gvk)
	}
}

// add adds a copy of a document.
func (m *manifests) add(document any, source string) error {
	switch document := document.(type) {
	case *storagev1.StorageClass:
		if _, twice := m.classes[document.Name]; twice {
			return fmt.Errorf("StorageClass %s is defined twice, here or in another file: remove one of them", document.Name)
		}
		m.classes[document.Name] = document.DeepCopy()
	case *v1.PersistentVolumeClaim:
		key := keyOf(document.Namespace, document.Name)
		if other, twice := m.sources[key]; twice {
			return fmt.Errorf("claim %s is also in %s: remove one of them", key, other)
		}
		m.claims[key], m.sources[key] = document.DeepCopy(), source
	}
	return nil
}

// errNotOurs means that a claim is for another provisioner.
var errNotOurs = errors.New("not for this provisioner")

// class finds the StorageClass of a claim, like the API server and the library's
// controller.
func (m *manifests) class(claim *v1.PersistentVolumeClaim, ours string) (*storagev1.StorageClass, error) {
	if name := claim.Spec.StorageClassName; name != nil {
		if *name == "" {
			return nil, fmt.Errorf(`storageClassName is "": %w`, errNotOurs)
		}
		class, ok := m.classes[*name]
		if !ok {
			return nil, fmt.Errorf("no file in the folder has the StorageClass %s: add it", *name)
		}
		return m.ours(class, ours)
	}
	for _, class := range m.classes {
		if class.Annotations[provisioner.DefaultClassAnnotation] == "true" {
			return m.ours(class, ours)
		}
	}
	return nil, fmt.Errorf("the claim has no storageClassName, and no StorageClass in the folder is the default (annotation %s)", provisioner.DefaultClassAnnotation)
}

func (m *manifests) ours(class *storagev1.StorageClass, name string) (*storagev1.StorageClass, error) {
	if class.Provisioner != name {
		return nil, fmt.Errorf("StorageClass %s is for %s: %w", class.Name, class.Provisioner, errNotOurs)
	}
	return class, nil
}

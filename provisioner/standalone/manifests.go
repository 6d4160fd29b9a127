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
)

// manifestMax bounds a manifest file, in bytes; etcd's own limit for an object.
const manifestMax = 1536 << 10

// defaultClass marks the StorageClass of claims that name none.
const defaultClass = "storageclass.kubernetes.io/is-default-class"

// claimKey is "namespace/name".
type claimKey string

func keyOf(namespace, name string) claimKey { return claimKey(namespace + "/" + name) }

// manifests is what a folder of manifests says.
type manifests struct {
	claims  map[claimKey]*v1.PersistentVolumeClaim
	classes map[string]*storagev1.StorageClass
	sources map[claimKey]string // which file a claim stands in
	// broken is what is wrong with files. While any is, it can't be known which
	// claims are meant to be there.
	broken []error
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
		// What stands before a broken document counts.
		documents, err := files.parse(name, parseManifests)
		for i, document := range documents {
			if err := m.add(document, e.Name()); err != nil {
				m.broken = append(m.broken, fmt.Errorf("%s: document %d: %w", e.Name(), i+1, err))
			}
		}
		if err != nil {
			m.broken = append(m.broken, fmt.Errorf("%s: %w", e.Name(), err))
		}
	}
	files.forget(func(name string) bool { return there[name] })
	return m, nil
}

// parseManifests returns what each document of a file is: a StorageClass, a
// PersistentVolumeClaim, or nil.
func parseManifests(f *os.File) (documents []any, err error) {
	data, err := io.ReadAll(io.LimitReader(f, manifestMax+1))
	if err != nil {
		return nil, err
	}
	if len(data) > manifestMax {
		return nil, fmt.Errorf("larger than %d bytes", manifestMax)
	}
	r := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(data)))
	for n := 1; ; n++ {
		text, err := r.Read()
		if errors.Is(err, io.EOF) {
			return documents, nil
		}
		var document any
		if err == nil {
			document, err = parseManifest(text)
		}
		if err != nil {
			return documents, fmt.Errorf("document %d: %w", n, err)
		}
		documents = append(documents, document)
	}
}

// parseManifest returns nil for kinds that podnas has nothing to do with, so that a
// file can hold a whole application.
func parseManifest(text []byte) (any, error) {
	var kind metav1.TypeMeta
	if err := yaml.Unmarshal(text, &kind); err != nil {
		return nil, err
	}
	switch kind.APIVersion + " " + kind.Kind {
	case "storage.k8s.io/v1 StorageClass":
		class := &storagev1.StorageClass{}
		return class, yaml.UnmarshalStrict(text, class)
	case "v1 PersistentVolumeClaim":
		claim := &v1.PersistentVolumeClaim{}
		return claim, yaml.UnmarshalStrict(text, claim)
	}
	return nil, nil
}

// add takes one document, of which it keeps a copy.
func (m *manifests) add(document any, source string) error {
	switch document := document.(type) {
	case *storagev1.StorageClass:
		class := document.DeepCopy()
		if _, twice := m.classes[class.Name]; twice || class.Name == "" {
			return fmt.Errorf("StorageClass %q has no name, or stands here twice", class.Name)
		}
		m.classes[class.Name] = class
	case *v1.PersistentVolumeClaim:
		claim := document.DeepCopy()
		if claim.Namespace == "" {
			claim.Namespace = metav1.NamespaceDefault
		}
		key := keyOf(claim.Namespace, claim.Name)
		if other, twice := m.sources[key]; twice {
			return fmt.Errorf("claim %s stands in %s too", key, other)
		}
		if claim.Name == "" {
			return errors.New("a claim has no name")
		}
		m.claims[key], m.sources[key] = claim, source
	}
	return nil
}

// errNotOurs means that a claim is for somebody else to fulfil.
var errNotOurs = errors.New("not for this provisioner")

// class finds the StorageClass of a claim, as the API server and the library's
// controller would.
func (m *manifests) class(claim *v1.PersistentVolumeClaim, provisioner string) (*storagev1.StorageClass, error) {
	if name := claim.Spec.StorageClassName; name != nil {
		if *name == "" {
			return nil, fmt.Errorf(`storageClassName is "": %w`, errNotOurs)
		}
		class, ok := m.classes[*name]
		if !ok {
			return nil, fmt.Errorf("StorageClass %s is in no file of the folder: add it", *name)
		}
		return m.ours(class, provisioner)
	}
	for _, class := range m.classes {
		if class.Annotations[defaultClass] == "true" {
			return m.ours(class, provisioner)
		}
	}
	return nil, fmt.Errorf("the claim names no storageClassName, and no StorageClass of the folder is the default (annotation %s)", defaultClass)
}

func (m *manifests) ours(class *storagev1.StorageClass, provisioner string) (*storagev1.StorageClass, error) {
	if class.Provisioner != provisioner {
		return nil, fmt.Errorf("StorageClass %s is for %s: %w", class.Name, class.Provisioner, errNotOurs)
	}
	return class, nil
}

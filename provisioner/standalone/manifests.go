package standalone

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	yaml "go.yaml.in/yaml/v3"
	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// claimKey is "namespace/name".
type claimKey string

func keyOf(namespace, name string) claimKey { return claimKey(namespace + "/" + name) }

// manifests is the contents of a folder of manifests.
type manifests struct {
	claims  map[claimKey]*v1.PersistentVolumeClaim
	classes map[string]*storagev1.StorageClass
	// positions has where each claim and class is, by subject ("claim default/data").
	positions map[string][]position
	names     []string         // of all files
	stamps    map[string]stamp // of all files; what can't be opened has the zero stamp
	// broken has the errors of files, by name. A broken file has no claims and no classes
	// here: while there are any, it is unknown which should exist.
	broken map[string]error
	// twice has the errors of claims and classes that are in the folder more than once, by
	// subject. They are not in claims and classes.
	twice map[string]error
	read  time.Time // when
	// unsettled are files that may still be written. They have no claims here either.
	unsettled []string
}

// position is where a document is.
type position struct {
	file string
	line int
}

// manifest is a claim or a class of a file.
type manifest struct {
	claim *v1.PersistentVolumeClaim // or nil
	class *storagev1.StorageClass   // or nil
	line  int
}

// readManifests reads every *.yaml, *.yml and *.json file of a folder. A file that has
// changed less than settle ago is unsettled.
func readManifests(dir string, files *parsed[[]manifest], settle time.Duration) (*manifests, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("read the folder of claims: %w", err)
	}
	m := &manifests{
		read:      time.Now(),
		claims:    map[claimKey]*v1.PersistentVolumeClaim{},
		classes:   map[string]*storagev1.StorageClass{},
		positions: map[string][]position{},
		stamps:    map[string]stamp{},
		broken:    map[string]error{},
		twice:     map[string]error{},
	}
	there := map[string]bool{}
	for _, e := range entries {
		// Editors keep drafts in hidden files. A folder of such a name is no folder of a
		// person: container engines make one where the source of a mount is missing.
		if strings.HasPrefix(e.Name(), ".") || !slices.Contains([]string{".yaml", ".yml", ".json"}, filepath.Ext(e.Name())) {
			continue
		}
		name := filepath.Join(dir, e.Name())
		found, stamp, err := files.parse(name, parseManifests)
		if _, missing := os.Lstat(name); errors.Is(missing, fs.ErrNotExist) {
			continue // removed since it was listed
		}
		there[name] = true
		m.names = append(m.names, e.Name())
		m.stamps[e.Name()] = stamp
		switch {
		case stamp.youngerThan(settle):
			m.unsettled = append(m.unsettled, e.Name())
		case err != nil:
			m.broken[e.Name()] = err
		default:
			m.add(found, e.Name())
		}
	}
	files.forget(func(name string) bool { return there[name] })
	m.findTwice()
	return m, nil
}

// add adds copies of the manifests of a file.
func (m *manifests) add(found []manifest, file string) {
	for _, d := range found {
		var subject string
		if d.class != nil {
			subject = "class " + d.class.Name
			m.classes[d.class.Name] = d.class.DeepCopy()
		} else {
			key := keyOf(d.claim.Namespace, d.claim.Name)
			subject = "claim " + string(key)
			m.claims[key] = d.claim.DeepCopy()
		}
		m.positions[subject] = append(m.positions[subject], position{file, d.line})
	}
}

// findTwice takes out what is in the folder more than once: nobody knows which is meant.
func (m *manifests) findTwice() {
	for _, subject := range slices.Sorted(maps.Keys(m.positions)) {
		positions := m.positions[subject]
		if len(positions) == 1 {
			continue
		}
		var list []string
		for _, p := range positions {
			list = append(list, fmt.Sprintf("%s (line %d)", p.file, p.line))
		}
		m.twice[subject] = fmt.Errorf("it is in the folder %d times, in %s: remove all but one", len(positions), strings.Join(list, " and "))
		kind, name, _ := strings.Cut(subject, " ")
		if kind == "class" {
			delete(m.classes, name)
		} else {
			delete(m.claims, claimKey(name))
		}
	}
}

// has reports whether a claim is in the folder, once or more.
func (m *manifests) has(key claimKey) bool { return m.positions["claim "+string(key)] != nil }

// fileOf returns the file of a claim, or the files.
func (m *manifests) fileOf(subject string) string {
	var files []string
	for _, p := range m.positions[subject] {
		if !slices.Contains(files, p.file) {
			files = append(files, p.file)
		}
	}
	return strings.Join(files, " and ")
}

// parseManifests returns the claims and classes of a file, if it understands all of it.
func parseManifests(data []byte) ([]manifest, error) {
	documents, err := documentsOf(data)
	if err != nil {
		return nil, err
	}
	p := parser{}
	for _, document := range documents {
		if err := p.document(document, schema.GroupVersionKind{}); err != nil {
			return nil, err
		}
	}
	if p.documents == 0 {
		return nil, errors.New("the file is empty: remove it if you want to remove its claims")
	}
	return p.found, nil
}

// parser collects what is in the documents of a file.
type parser struct {
	found     []manifest
	documents int // including those of other kinds
}

// document parses one document, or the item of a typed list, whose kind may be implied.
func (p *parser) document(document *yaml.Node, implied schema.GroupVersionKind) error {
	in := func(err error) error { return fmt.Errorf("the object at line %d: %w", document.Line, err) }
	gvk, err := kindOf(document, implied)
	if err != nil {
		return in(err)
	}
	if items, isList := listKind(gvk); isList {
		return p.list(document, gvk, items)
	}
	p.documents++
	switch gvk {
	case classKind():
		class := &storagev1.StorageClass{}
		if err := decode(document, class); err != nil {
			return in(err)
		}
		if err := validateClass(class); err != nil {
			return in(fmt.Errorf("StorageClass %s: %w", class.Name, err))
		}
		p.found = append(p.found, manifest{class: class, line: document.Line})
	case claimKind():
		claim := &v1.PersistentVolumeClaim{}
		if err := decode(document, claim); err != nil {
			return in(err)
		}
		if claim.Namespace == "" {
			claim.Namespace = metav1.NamespaceDefault
		}
		if err := validateClaim(claim); err != nil {
			return in(fmt.Errorf("claim %s/%s: %w", claim.Namespace, claim.Name, err))
		}
		p.found = append(p.found, manifest{claim: claim, line: document.Line})
	default:
		if err := checkKind(gvk); err != nil {
			return in(err)
		}
	}
	return nil
}

// list parses the items of a list, as kubectl prints several objects. items is the kind
// of those that have none of their own.
func (p *parser) list(document *yaml.Node, gvk, items schema.GroupVersionKind) error {
	in := func(err error) error { return fmt.Errorf("the %s at line %d: %w", gvk.Kind, document.Line, err) }
	sequence := valueOf(document, "items")
	if sequence == nil || sequence.Kind != yaml.SequenceNode {
		return in(errors.New("it has no items"))
	}
	// Its other fields are as strict as those of a claim.
	rest := *document
	rest.Content = slices.Clone(document.Content)
	for i, n := range rest.Content {
		if n == sequence {
			rest.Content[i] = &yaml.Node{Kind: yaml.SequenceNode}
		}
	}
	if err := decode(&rest, &v1.List{}); err != nil {
		return in(err)
	}
	for _, item := range sequence.Content {
		if err := p.document(item, items); err != nil {
			return err
		}
	}
	return nil
}

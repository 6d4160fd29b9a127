package provisioner

import (
	"errors"
	"fmt"
	"path"
	"regexp"
	"strings"

	v1 "k8s.io/api/core/v1"
)

// pathPattern is the path pattern of a class's volumes: pieces that are literal
// text or variables.
type pathPattern []patternPiece

type patternPiece struct {
	text string // as written in the class
	// value returns the variable's value; nil for literal text.
	value func(claim *v1.PersistentVolumeClaim, volume string) (string, error)
}

// variable matches a whole variable, also in the forms of other NFS provisioners:
// with a leading dot, in capitals, or with "metadata.".
var variable = regexp.MustCompile(`^\.?(pvc|PVC|pv|PV)\.(?:metadata\.)?(?:(name|namespace)|(labels|annotations)(?:\.(.+)|\['(.+)'\]))$`)

// parsePathPattern parses the parameter pathPattern.
func parsePathPattern(s string) (pathPattern, error) {
	var pattern pathPattern
	for rest := s; rest != ""; {
		before, after, found := strings.Cut(rest, "${")
		if before != "" {
			pattern = append(pattern, patternPiece{text: before})
		}
		if !found {
			break
		}
		name, after, closed := strings.Cut(after, "}")
		if !closed {
			return nil, fmt.Errorf("%q: a ${ has no closing }", s)
		}
		value, err := parseVariable(name)
		if err != nil {
			return nil, err
		}
		pattern = append(pattern, patternPiece{text: "${" + name + "}", value: value})
		rest = after
	}
	if err := checkPath(pattern.sample()); err != nil {
		return nil, fmt.Errorf("%q: %w", s, err)
	}
	return pattern, nil
}

func parseVariable(name string) (func(*v1.PersistentVolumeClaim, string) (string, error), error) {
	m := variable.FindStringSubmatch(strings.TrimSpace(name))
	if len(m) == 0 || strings.EqualFold(m[1], "pv") && m[2] != "name" {
		return nil, fmt.Errorf("unknown ${%s}: use ${pvc.namespace}, ${pvc.name}, ${pvc.labels.KEY}, ${pvc.annotations.KEY} and ${pv.name}", name)
	}
	ofVolume, field, kind, key := strings.EqualFold(m[1], "pv"), m[2], m[3], m[4]+m[5]
	return func(claim *v1.PersistentVolumeClaim, volume string) (string, error) {
		switch {
		case ofVolume:
			return volume, nil
		case field == "name":
			return claim.Name, nil
		case field == "namespace":
			return claim.Namespace, nil
		}
		values := claim.Labels
		if kind == "annotations" {
			values = claim.Annotations
		}
		if values[key] == "" {
			return "", fmt.Errorf("the claim has no %s %s, which the class's pathPattern needs: add it", strings.TrimSuffix(kind, "s"), key)
		}
		return values[key], nil
	}, nil
}

// expand returns the path of a claim's volume, "" without a pattern.
func (p pathPattern) expand(claim *v1.PersistentVolumeClaim, volume string) (string, error) {
	if p == nil {
		return "", nil
	}
	var made strings.Builder
	for _, piece := range p {
		text := piece.text
		if piece.value != nil {
			var err error
			if text, err = piece.value(claim, volume); err != nil {
				return "", err
			}
		}
		made.WriteString(text)
	}
	if err := checkPath(made.String()); err != nil {
		return "", fmt.Errorf("the class's pathPattern gives this claim the path %q: %w", made.String(), err)
	}
	return made.String(), nil
}

// sample returns a path that the pattern might produce.
func (p pathPattern) sample() string {
	var made strings.Builder
	for _, piece := range p {
		if piece.value != nil {
			made.WriteString("x")
		} else {
			made.WriteString(piece.text)
		}
	}
	return made.String()
}

// checkPath refuses anything but a plain path below the root of the disk. Only the
// store knows whether the path is in use.
func checkPath(p string) error {
	switch {
	case p == "":
		return errors.New("a path can't be empty")
	case strings.HasPrefix(p, "/"):
		return errors.New("a path is relative to the root of the disk: remove the / in front")
	case path.Clean(p) != p || p == "." || p == ".." || strings.HasPrefix(p, "../"):
		return errors.New("a path consists of plain names, separated by one /")
	}
	return nil
}

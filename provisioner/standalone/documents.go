package standalone

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	yaml "go.yaml.in/yaml/v3"
	kyaml "sigs.k8s.io/yaml"
)

// A file is YAML documents, or JSON objects one after the other. It is read to its end by
// a decoder of the whole file, so that there is no document that is not seen: whatever
// the decoder does not understand is an error with its line.

// byteOrderMark is what editors of Windows begin a UTF-8 file with.
const byteOrderMark = "\ufeff"

// documentsOf returns the documents of a file. Empty ones are left out.
func documentsOf(data []byte) ([]*yaml.Node, error) {
	text := bytes.TrimPrefix(data, []byte(byteOrderMark))
	if bytes.HasPrefix(bytes.TrimLeft(text, " \t\r\n"), []byte("{")) {
		objects, err := jsonObjects(text)
		if err == nil {
			return objects, nil
		}
		// It may be YAML that begins with a flow mapping, or JSON with lines of --- between.
		documents, wrong := yamlDocuments(data)
		if wrong != nil && len(objects) > 0 {
			return nil, err // it begins with JSON
		}
		return documents, wrong
	}
	return yamlDocuments(data)
}

// yamlDocuments returns the roots of a YAML stream's documents.
func yamlDocuments(data []byte) ([]*yaml.Node, error) {
	var documents []*yaml.Node
	for d := yaml.NewDecoder(bytes.NewReader(data)); ; {
		var document yaml.Node
		if err := d.Decode(&document); errors.Is(err, io.EOF) {
			return documents, nil
		} else if err != nil {
			return nil, err
		}
		if len(document.Content) == 0 || document.Content[0].ShortTag() == "!!null" {
			continue // only comments
		}
		root := document.Content[0]
		if err := resolveAsKubectl(root, document.Line); err != nil {
			return nil, err
		}
		documents = append(documents, root)
	}
}

// resolveAsKubectl gives plain scalars the meanings that kubectl's decoder, of YAML 1.1,
// gives them: yes and no are booleans, and dates are text. It refuses what only this
// decoder allows: an alias of an anchor in an earlier document, which begins before line
// first.
func resolveAsKubectl(n *yaml.Node, first int) error {
	if n.Kind == yaml.AliasNode && n.Alias.Line < first {
		return fmt.Errorf("line %d: the anchor of *%s is in another document: repeat here what it stands for", n.Line, n.Value)
	}
	if n.Kind == yaml.ScalarNode && n.Style == 0 {
		switch tag := n.ShortTag(); {
		case tag == "!!timestamp":
			n.Tag = "!!str"
		case tag != "!!str":
		case n.Value == "y" || n.Value == "Y" || strings.EqualFold(n.Value, "yes") || strings.EqualFold(n.Value, "on"):
			n.Tag, n.Value = "!!bool", "true"
		case n.Value == "n" || n.Value == "N" || strings.EqualFold(n.Value, "no") || strings.EqualFold(n.Value, "off"):
			n.Tag, n.Value = "!!bool", "false"
		}
	}
	for i, child := range n.Content {
		if n.Kind == yaml.MappingNode && i%2 == 0 {
			continue // a key
		}
		if err := resolveAsKubectl(child, first); err != nil {
			return err
		}
	}
	return nil
}

// jsonDepth bounds how deep JSON may be nested.
const jsonDepth = 200

// jsonObjects returns the objects of a JSON stream. With an error it returns those before
// it.
func jsonObjects(data []byte) ([]*yaml.Node, error) {
	r := jsonReader{Decoder: json.NewDecoder(bytes.NewReader(data)), data: data, line: 1}
	r.UseNumber()
	var objects []*yaml.Node
	for {
		object, err := r.value(0)
		if errors.Is(err, io.EOF) {
			return objects, nil
		}
		if err != nil {
			return objects, fmt.Errorf("line %d: %w", r.lineNow(), err)
		}
		objects = append(objects, object)
	}
}

// jsonReader makes nodes of JSON.
type jsonReader struct {
	*json.Decoder
	data []byte
	line int // of the byte at offset seen
	seen int64
}

// lineNow returns the line of the token that was read last.
func (r *jsonReader) lineNow() int {
	now := r.InputOffset()
	r.line += bytes.Count(r.data[r.seen:now], []byte("\n"))
	r.seen = now
	return r.line
}

// value reads a value. Its error is io.EOF at the end of the stream alone.
func (r *jsonReader) value(depth int) (*yaml.Node, error) {
	token, err := r.Token()
	if errors.Is(err, io.EOF) && depth > 0 {
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		return nil, err
	}
	n := &yaml.Node{Kind: yaml.ScalarNode, Line: r.lineNow()}
	switch token := token.(type) {
	case json.Delim:
		n.Kind, n.Tag = yaml.SequenceNode, "!!seq"
		if token == '{' {
			n.Kind, n.Tag = yaml.MappingNode, "!!map"
		}
		if depth == jsonDepth {
			return nil, fmt.Errorf("it is nested more than %d levels deep", jsonDepth)
		}
		for r.More() { // the keys of an object are values here, too
			child, err := r.value(depth + 1)
			if err != nil {
				return nil, err
			}
			n.Content = append(n.Content, child)
		}
		_, err = r.Token() // its end
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
	case string:
		n.Tag, n.Style, n.Value = "!!str", yaml.DoubleQuotedStyle, token
	case json.Number:
		n.Value = token.String()
	case bool:
		n.Tag, n.Value = "!!bool", fmt.Sprint(token)
	case nil:
		n.Tag, n.Value = "!!null", "null"
	}
	return n, err
}

// decode decodes a document, in which each field must be known and stand once.
func decode(document *yaml.Node, into any) error {
	var value any
	if err := document.Decode(&value); err != nil { // a key that stands twice, among others
		return err
	}
	data, err := json.Marshal(value)
	if err != nil {
		return err
	}
	err = kyaml.UnmarshalStrict(data, into)
	for cause := errors.Unwrap(err); cause != nil; cause = errors.Unwrap(err) {
		err = cause // around it are the steps of decoding
	}
	return err
}

// valueOf returns the value of a document's field, or nil.
func valueOf(document *yaml.Node, name string) *yaml.Node {
	for i := 0; i+1 < len(document.Content); i += 2 {
		if document.Content[i].Value == name {
			return document.Content[i+1]
		}
	}
	return nil
}

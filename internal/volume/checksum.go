package volume

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"strings"
	"unicode"
	"unicode/utf8"
)

// A record, and the disk's identity, is a JSON object whose field "checksum" is the SHA-256 of the
// rest: of the object without that field, its keys sorted and without white space, as in
//
//	jq -cjS 'del(.checksum)' FILE | sha256sum
//
// So it does not matter how the file is indented. A file without a checksum was written by a podnas
// that had none, or edited by a person, who removes it; the next write adds it.
//
// Fields of a newer podnas are kept when the file is written.

const (
	checksumField  = "checksum"
	checksumPrefix = "sha256:"
)

// object is a JSON object, with its numbers as they are written.
type object map[string]any

func decodeObject(data []byte) (object, error) {
	if !utf8.Valid(data) {
		return nil, errors.New("it has bytes that are not UTF-8")
	}
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	var o object
	if err := d.Decode(&o); err != nil {
		return nil, err
	}
	if o == nil {
		return nil, errors.New("it is null")
	}
	return o, nil
}

// canonical returns the bytes that the checksum is of, if o has none.
func (o object) canonical() ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(o); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}

// sum returns the checksum of o without its field.
func (o object) sum() (string, error) {
	rest := maps.Clone(o)
	delete(rest, checksumField)
	data, err := rest.canonical()
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(data)
	return checksumPrefix + hex.EncodeToString(sum[:]), nil
}

// encodeSummed encodes a struct, the unknown fields that its file had, and the checksum.
func encodeSummed(v any, unknown object) ([]byte, error) {
	data, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	o, err := decodeObject(data)
	if err != nil {
		return nil, err
	}
	o.addUnknown(unknown, reflect.TypeOf(v))
	if o[checksumField], err = o.sum(); err != nil {
		return nil, err
	}
	return o.canonical()
}

// decodeSummed decodes what encodeSummed has encoded into v, a pointer to a struct. summed is whether
// there was a checksum, and unknown are the fields that v does not have. If only the checksum is
// wrong, v is set nevertheless.
func decodeSummed(data []byte, v any) (unknown object, summed bool, err error) {
	o, err := decodeObject(data)
	if err != nil {
		return nil, false, err
	}
	found, summed := o[checksumField]
	want, err := o.sum()
	if err != nil {
		return nil, false, err
	}
	delete(o, checksumField)
	rest, err := o.canonical()
	if err != nil {
		return nil, false, err
	}
	if err := json.Unmarshal(rest, v); err != nil {
		return nil, false, err
	}
	t := reflect.TypeOf(v).Elem()
	if summed && found != want {
		return nil, summed, fmt.Errorf("its checksum is wrong: %v, and that of its contents is %s", found, want)
	}
	if !summed {
		if err := o.checkFields(t); err != nil {
			return nil, summed, err
		}
	}
	return o.unknown(t), summed, nil
}

// fieldsOf returns the fields of a struct by their names in JSON, in lower case, because package json
// finds them so.
func fieldsOf(t reflect.Type) map[string]reflect.Type {
	fields := map[string]reflect.Type{}
	for _, f := range reflect.VisibleFields(t) {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if name == "" {
			continue
		}
		fields[strings.ToLower(name)] = f.Type
	}
	return fields
}

// nested returns the object and the struct of a field that has both.
func nested(value any, t reflect.Type) (object, reflect.Type) {
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	o, _ := value.(map[string]any)
	if t.Kind() != reflect.Struct {
		return nil, t
	}
	return o, t
}

// unknown returns the fields that a struct does not have, in its fields too.
func (o object) unknown(t reflect.Type) object {
	found, fields := object{}, fieldsOf(t)
	for name, value := range o {
		field, known := fields[strings.ToLower(name)]
		if !known {
			found[name] = value
		} else if inner, t := nested(value, field); inner != nil {
			if more := inner.unknown(t); len(more) > 0 {
				found[name] = map[string]any(more)
			}
		}
	}
	return found
}

// addUnknown adds what unknown has returned. The unknown fields of a field that is gone, such as the
// claim of a released volume, are dropped.
func (o object) addUnknown(unknown object, t reflect.Type) {
	fields := fieldsOf(t)
	for name, value := range unknown {
		field, known := fields[strings.ToLower(name)]
		if !known {
			o[name] = value
			continue
		}
		more, t := nested(value, field)
		if inner, _ := nested(o[name], field); inner != nil {
			inner.addUnknown(more, t)
		}
	}
}

// checkFields refuses an object without a checksum that has a field whose name differs in one byte
// from one that a struct has: if that was the field with the networks of a volume's clients, all
// others could mount it.
func (o object) checkFields(t reflect.Type) error {
	fields := fieldsOf(t)
	for name, value := range o {
		field, known := fields[strings.ToLower(name)]
		if known {
			if inner, t := nested(value, field); inner != nil {
				if err := inner.checkFields(t); err != nil {
					return err
				}
			}
			continue
		}
		near := oneByteApart(checksumField, name)
		for f := range fields {
			near = near || oneByteApart(f, strings.ToLower(name))
		}
		if near || strings.ContainsFunc(name, unicode.IsControl) {
			return fmt.Errorf("it has no checksum, and its field %q is probably another one that was damaged", name)
		}
	}
	return nil
}

func oneByteApart(a, b string) bool {
	if len(a) != len(b) {
		return false
	}
	different := 0
	for i := range len(a) {
		if a[i] != b[i] {
			different++
		}
	}
	return different == 1
}

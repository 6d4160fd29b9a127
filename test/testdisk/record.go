package testdisk

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"os"
)

// EditRecord edits a record on podnas's disk as a person does, by docs/repair.md: it gets the checksum of its new contents.
func EditRecord(file string, edit func(fields map[string]any)) error {
	data, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	var fields map[string]any
	if err := d.Decode(&fields); err != nil {
		return err
	}
	edit(fields)
	delete(fields, "checksum")
	var rest bytes.Buffer
	e := json.NewEncoder(&rest)
	e.SetEscapeHTML(false)
	if err := e.Encode(fields); err != nil {
		return err
	}
	sum := sha256.Sum256(bytes.TrimSuffix(rest.Bytes(), []byte("\n")))
	fields["checksum"] = "sha256:" + hex.EncodeToString(sum[:])
	data, err = json.MarshalIndent(fields, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(file, data, 0o600)
}

package main

import (
	"bytes"
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"os"
	"strings"
	"time"

	cdx "github.com/CycloneDX/cyclonedx-go"
	"github.com/google/uuid"
)

// sbomPath is where the list is in the image.
const sbomPath = "usr/share/doc/podnas/sbom.cdx.json"

// writeSBOM writes the list of what an image is made of to a file, and returns it.
func writeSBOM(name string, binary []byte, beside []cdx.Component, version string, created time.Time) ([]byte, error) {
	sbom, err := newSBOM(binary, beside, version, created)
	if err != nil {
		return nil, err
	}
	fmt.Println(name)
	return sbom, os.WriteFile(name, sbom, 0o644)
}

// newSBOM lists what a binary is made of, in CycloneDX's JSON: the modules and the Go
// release that the linker noted in it. So it says what is there, and not what some
// go.mod asked for. Licenses of modules are not noted, so they are not told. After them
// it has what is embedded in the binary, and what is packed beside it.
func newSBOM(binary []byte, beside []cdx.Component, version string, created time.Time) ([]byte, error) {
	info, err := buildinfo.Read(bytes.NewReader(binary))
	if err != nil {
		return nil, fmt.Errorf("read what the binary was built from: %w", err)
	}
	sum := sha256.Sum256(binary)
	main := cdx.Component{
		BOMRef:     purl(info.Main.Path, version),
		Type:       cdx.ComponentTypeApplication,
		Name:       info.Main.Path,
		Version:    version,
		PackageURL: purl(info.Main.Path, version),
		Hashes:     &[]cdx.Hash{{Algorithm: cdx.HashAlgoSHA256, Value: hex.EncodeToString(sum[:])}},
		Licenses:   &cdx.Licenses{{License: &cdx.License{ID: "Apache-2.0"}}},
		Properties: &[]cdx.Property{},
	}
	for _, setting := range info.Settings {
		*main.Properties = append(*main.Properties, cdx.Property{Name: "go:build:" + setting.Key, Value: setting.Value})
	}

	components := []cdx.Component{component("std", strings.TrimPrefix(info.GoVersion, "go"), "")}
	for _, dep := range info.Deps {
		for dep.Replace != nil {
			dep = dep.Replace
		}
		components = append(components, component(dep.Path, dep.Version, dep.Sum))
	}
	components = append(components, embedded())
	components = append(components, beside...)
	refs := make([]string, len(components))
	for i := range components {
		refs[i] = components[i].BOMRef
	}

	bom := cdx.NewBOM()
	// The same binary beside the same packages is the same list.
	identity := sum[:]
	for i := range beside {
		identity = append(identity, beside[i].BOMRef...)
	}
	bom.SerialNumber = uuid.NewSHA1(uuid.NameSpaceURL, identity).URN()
	bom.Metadata = &cdx.Metadata{Timestamp: created.Format(time.RFC3339), Component: &main}
	bom.Components = &components
	// Which module needs which is not noted either.
	bom.Dependencies = &[]cdx.Dependency{{Ref: main.BOMRef, Dependencies: &refs}}

	var out bytes.Buffer
	if err := cdx.NewBOMEncoder(&out, cdx.BOMFileFormatJSON).SetPretty(true).Encode(bom); err != nil {
		return nil, fmt.Errorf("encode: %w", err)
	}
	return out.Bytes(), nil
}

// embedded is what of others the binary has but modules: the script that patches the status page, in internal/status/assets.
func embedded() cdx.Component {
	const id = "pkg:npm/idiomorph@0.8.0"
	return cdx.Component{
		BOMRef: id, Type: cdx.ComponentTypeLibrary, Name: "idiomorph", Version: "0.8.0", PackageURL: id,
		Licenses: &cdx.Licenses{{License: &cdx.License{ID: "0BSD"}}},
	}
}

func component(path, version, sum string) cdx.Component {
	c := cdx.Component{
		BOMRef:     purl(path, version),
		Type:       cdx.ComponentTypeLibrary,
		Name:       path,
		Version:    version,
		PackageURL: purl(path, version),
	}
	// h1: is SHA-256 over the names and sums of a module's files, as in go.sum.
	if hash, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(sum, "h1:")); err == nil && len(hash) == sha256.Size {
		c.Hashes = &[]cdx.Hash{{Algorithm: cdx.HashAlgoSHA256, Value: hex.EncodeToString(hash)}}
	}
	return c
}

// purl names a module as https://github.com/package-url/purl-spec does.
func purl(path, version string) string {
	return "pkg:golang/" + path + "@" + escapeVersion(version)
}

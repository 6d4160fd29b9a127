//go:build !race

package main

import (
	"bytes"
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/hex"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The parts of CycloneDX's documents that scanners look at, written here apart from
// the library that wrote them.
type (
	bom struct {
		BOMFormat, SpecVersion, SerialNumber string
		Metadata                             struct {
			Timestamp string
			Component bomComponent
		}
		Components   []bomComponent
		Dependencies []struct {
			Ref       string
			DependsOn []string
		}
	}
	bomComponent struct {
		Ref                       string `json:"bom-ref"`
		Type, Name, Version, Purl string
		Hashes                    []struct{ Alg, Content string }
		Licenses                  []struct{ License struct{ ID, Name string } }
		ExternalReferences        []struct{ URL string }
		Supplier                  struct{ Name string }
	}
)

// Every module that the linker put into the binary is listed, and the Go release.
func TestSBOM(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(packed(t), "podnas-v1.2.3-amd64.cdx.json"))
	if err != nil {
		t.Fatal(err)
	}
	got := decode[bom](t, text)
	binary := testBinary(t, "amd64")
	info, err := buildinfo.Read(bytes.NewReader(binary))
	if err != nil {
		t.Fatal(err)
	}
	if got.BOMFormat != "CycloneDX" || !strings.HasPrefix(got.SerialNumber, "urn:uuid:") || got.Metadata.Timestamp != "2023-11-14T22:13:20Z" {
		t.Errorf("format %s, number %s, time %s", got.BOMFormat, got.SerialNumber, got.Metadata.Timestamp)
	}
	sum := sha256.Sum256(binary)
	main := got.Metadata.Component
	if main.Purl != "pkg:golang/github.com/podnas/podnas@v1.2.3" || len(main.Hashes) != 1 || main.Hashes[0].Content != hex.EncodeToString(sum[:]) {
		t.Errorf("it is about %+v, want v1.2.3 with the hash of the binary", main)
	}

	listed := map[string]bomComponent{}
	for _, c := range got.Components {
		listed[c.Name] = c
	}
	if c := listed["std"]; c.Purl != "pkg:golang/std@"+strings.TrimPrefix(info.GoVersion, "go") {
		t.Errorf("the standard library is %+v", c)
	}
	// What internal/status/assets has of others.
	if c := listed["idiomorph"]; c.Purl != "pkg:npm/idiomorph@0.8.0" || len(c.Licenses) != 1 || c.Licenses[0].License.ID != "0BSD" {
		t.Errorf("the page's script is %+v", c)
	}
	if len(info.Deps) < 5 || len(listed) != len(info.Deps)+2 {
		t.Fatalf("%d components of %d modules", len(listed), len(info.Deps))
	}
	for _, dep := range info.Deps {
		c := listed[dep.Path]
		if c.Version != dep.Version || c.Type != "library" || len(c.Hashes) != 1 || len(c.Hashes[0].Content) != 64 {
			t.Errorf("module %s %s is %+v", dep.Path, dep.Version, c)
		}
	}
	if len(got.Dependencies) != 1 || got.Dependencies[0].Ref != main.Ref || len(got.Dependencies[0].DependsOn) != len(listed) {
		t.Errorf("dependencies %+v", got.Dependencies)
	}
}

func TestPurl(t *testing.T) {
	if got, want := purl("example.com/a/v2", "v2.0.0+incompatible"), "pkg:golang/example.com/a/v2@v2.0.0%2Bincompatible"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

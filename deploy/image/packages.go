package main

import (
	"bufio"
	"bytes"
	"crypto/md5" // dpkg's own sums: against slips, not against attacks
	"encoding/hex"
	"fmt"
	"maps"
	"net/textproto"
	"net/url"
	"path"
	"slices"
	"strings"

	cdx "github.com/CycloneDX/cyclonedx-go"
)

// statusDir says which of a distribution's packages the files are of, where an image has
// no dpkg: a file for each with what the package says of itself, as in dpkg's status, and
// one with the sums of its files. Scanners of images look there.
const statusDir = "var/lib/dpkg/status.d"

// packages lists what the files are of. It is an error when one is of no package, or is
// not what its package has.
func (r root) packages() ([]cdx.Component, error) {
	release := r.osRelease()
	var components []cdx.Component
	known := map[string]bool{}
	for _, name := range slices.Sorted(maps.Keys(r)) {
		if path.Dir(name) != statusDir {
			continue
		}
		known[name] = true
		if strings.HasSuffix(name, ".md5sums") {
			continue
		}
		control, err := textproto.NewReader(bufio.NewReader(bytes.NewReader(append(bytes.TrimSpace(r[name].data), "\n\n"...)))).ReadMIMEHeader()
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", name, err)
		}
		for _, field := range []string{"Package", "Version", "Architecture"} {
			if control.Get(field) == "" {
				return nil, fmt.Errorf("read %s: it has no %s", name, field)
			}
		}
		files, err := r.sums(name + ".md5sums")
		if err != nil {
			return nil, fmt.Errorf("package %s: %w", control.Get("Package"), err)
		}
		for _, file := range files {
			known[file] = true
		}
		components = append(components, r.debian(control, release))
	}
	for _, name := range slices.Sorted(maps.Keys(r)) {
		if !known[name] {
			return nil, fmt.Errorf("%s is of no package in %s", name, statusDir)
		}
	}
	return components, nil
}

// sums checks the files of a package, and returns their names.
func (r root) sums(name string) ([]string, error) {
	var files []string
	for line := range strings.Lines(string(r[name].data)) {
		sum, file, ok := strings.Cut(strings.TrimSpace(line), "  ")
		if !ok {
			return nil, fmt.Errorf("%s: %q is no sum of a file", name, line)
		}
		if is := md5.Sum(r[file].data); hex.EncodeToString(is[:]) != sum {
			return nil, fmt.Errorf("%s is not the one of %s", file, name)
		}
		files = append(files, file)
	}
	if len(files) == 0 {
		return nil, fmt.Errorf("%s names no file", name)
	}
	return files, nil
}

// osRelease is what os-release(5) says of the distribution.
func (r root) osRelease() map[string]string {
	release := map[string]string{}
	for line := range strings.Lines(string(r["usr/lib/os-release"].data)) {
		if key, value, ok := strings.Cut(strings.TrimSpace(line), "="); ok {
			release[key] = strings.Trim(value, `"`)
		}
	}
	return release
}

// debian is a package as https://github.com/package-url/purl-spec names it: with its
// source package, for which security trackers count, and its distribution.
func (r root) debian(control textproto.MIMEHeader, release map[string]string) cdx.Component {
	name, version := control.Get("Package"), control.Get("Version")
	qualifiers := url.Values{"arch": {control.Get("Architecture")}}
	if source, _, _ := strings.Cut(control.Get("Source"), " "); source != "" { // it may have a version of its own
		qualifiers.Set("upstream", source)
	}
	distribution := release["ID"]
	if release["VERSION_ID"] != "" { // Debian testing has none
		qualifiers.Set("distro", distribution+"-"+release["VERSION_ID"])
	}
	id := fmt.Sprintf("pkg:deb/%s/%s@%s?%s", distribution, name, escapeVersion(version), qualifiers.Encode())
	copyright := path.Join("usr/share/doc", name, "copyright")
	c := cdx.Component{
		BOMRef:     id,
		Type:       cdx.ComponentTypeLibrary,
		Name:       name,
		Version:    version,
		PackageURL: id,
		// Where it is not machine-readable, a person can read it.
		ExternalReferences: &[]cdx.ExternalReference{{Type: cdx.ERTypeLicense, URL: "file:///" + copyright}},
	}
	if maintainer := control.Get("Maintainer"); maintainer != "" {
		c.Supplier = &cdx.OrganizationalEntity{Name: maintainer}
	}
	if licenses := licenseNames(r[copyright].data); len(licenses) > 0 {
		c.Licenses = &licenses
	}
	return c
}

// licenseNames are those that a copyright file in Debian's machine-readable format
// names: of all files of the source package, so more than the package's own may have.
// They are Debian's names, and not SPDX's.
func licenseNames(copyright []byte) cdx.Licenses {
	if !bytes.HasPrefix(copyright, []byte("Format:")) {
		return nil
	}
	var names []string
	for line := range strings.Lines(string(copyright)) {
		if name, ok := strings.CutPrefix(line, "License:"); ok && strings.TrimSpace(name) != "" {
			names = append(names, strings.TrimSpace(name))
		}
	}
	slices.Sort(names)
	var licenses cdx.Licenses
	for _, name := range slices.Compact(names) {
		licenses = append(licenses, cdx.LicenseChoice{License: &cdx.License{Name: name}})
	}
	return licenses
}

func escapeVersion(version string) string {
	return strings.ReplaceAll(url.PathEscape(version), "+", "%2B")
}

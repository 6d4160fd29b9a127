//go:build !race

package main

import (
	"bytes"
	"crypto/md5"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// tree is what xfsprogs.sh makes, in small. Its sums are right.
func tree() map[string]string {
	files := map[string]string{
		"usr/sbin/mkfs.xfs":                "mkfs",
		"usr/share/doc/xfsprogs/copyright": "Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/\n\nFiles: *\nLicense: GPL-2\n\nFiles: a\nLicense: LGPL-2.1\n\nLicense: GPL-2\n As it says.\n",
		"lib/libc.so.6":                    "libc",
		"usr/share/doc/libc6/copyright":    "This is the GNU C Library. License: see below.\n",
		"usr/lib/os-release":               "NAME=\"Debian\"\nVERSION_ID=\"12\"\nID=debian\n",
		"var/lib/dpkg/status.d/xfsprogs":   "Package: xfsprogs\nVersion: 6.1.0-1\nArchitecture: amd64\nMaintainer: XFS <xfs@example.org>\nDescription: Tools\n for XFS.\n .\n And more.\n",
		"var/lib/dpkg/status.d/libc6":      "Package: libc6\nSource: glibc (2.36)\nVersion: 1:2.36-9+deb12u1\nArchitecture: amd64\nDescription: libc\n",
	}
	for name, of := range map[string][]string{
		"xfsprogs": {"usr/sbin/mkfs.xfs", "usr/share/doc/xfsprogs/copyright"},
		"libc6":    {"lib/libc.so.6", "usr/share/doc/libc6/copyright", "usr/lib/os-release"},
	} {
		sums := ""
		for _, file := range of {
			sums += fmt.Sprintf("%x  %s\n", md5.Sum([]byte(files[file])), file)
		}
		files["var/lib/dpkg/status.d/"+name+".md5sums"] = sums
	}
	return files
}

// packTree packs podnas beside a tree, and returns the folder with the image and its SBOM.
func packTree(t *testing.T, files map[string]string) (string, error) {
	t.Helper()
	in, out := t.TempDir(), t.TempDir()
	write := func(name string, data []byte, mode os.FileMode) string {
		name = filepath.Join(in, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o700), os.WriteFile(name, data, mode)); err != nil {
			t.Fatal(err)
		}
		return name
	}
	for name, text := range files {
		mode := os.FileMode(0o644)
		if strings.HasPrefix(name, "usr/sbin/") {
			mode = 0o755
		}
		write("added/"+name, []byte(text), mode)
	}
	return out, run([]string{
		"-ref", "ghcr.io/podnas/podnas-xfs:v1", "-version", "v1", "-out", out, "-license", write("license", nil, 0o600),
		"-add", "amd64=" + filepath.Join(in, "added"), "amd64=" + write("podnas", testBinary(t, "amd64"), 0o600),
	}, "")
}

// What is packed beside podnas is in the SBOM, by package, and in no other image's. The
// same files give the same bytes.
func TestPackages(t *testing.T) {
	out, err := packTree(t, tree())
	again, err2 := packTree(t, tree())
	if err := errors.Join(err, err2); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"podnas-xfs-v1.tar", "podnas-xfs-v1-amd64.tar", "podnas-xfs-v1-amd64.cdx.json"} {
		a, errA := os.ReadFile(filepath.Join(out, name))
		b, errB := os.ReadFile(filepath.Join(again, name))
		if err := errors.Join(errA, errB); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(a, b) {
			t.Errorf("%s differs between two runs on the same files", name)
		}
	}
	read := func(file string) bom {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		return decode[bom](t, text)
	}
	got := read(filepath.Join(out, "podnas-xfs-v1-amd64.cdx.json"))
	plain := read(filepath.Join(packed(t), "podnas-v1.2.3-amd64.cdx.json"))
	if got.SerialNumber == plain.SerialNumber || len(got.Components) != len(plain.Components)+2 {
		t.Errorf("%s has %d components, without packages %s has %d", got.SerialNumber, len(got.Components), plain.SerialNumber, len(plain.Components))
	}
	refs := map[string]bomComponent{}
	for _, c := range got.Components {
		refs[c.Purl] = c
	}
	xfsprogs := refs["pkg:deb/debian/xfsprogs@6.1.0-1?arch=amd64&distro=debian-12"]
	if xfsprogs.Name != "xfsprogs" || xfsprogs.Version != "6.1.0-1" || xfsprogs.Supplier.Name != "XFS <xfs@example.org>" ||
		len(xfsprogs.Licenses) != 2 || xfsprogs.Licenses[0].License.Name != "GPL-2" || xfsprogs.Licenses[1].License.Name != "LGPL-2.1" {
		t.Errorf("xfsprogs is %+v in %v", xfsprogs, slices.Sorted(maps.Keys(refs)))
	}
	libc := refs["pkg:deb/debian/libc6@1:2.36-9%2Bdeb12u1?arch=amd64&distro=debian-12&upstream=glibc"]
	if libc.Name != "libc6" || len(libc.Licenses) != 0 || len(libc.ExternalReferences) != 1 || libc.ExternalReferences[0].URL != "file:///usr/share/doc/libc6/copyright" {
		t.Errorf("libc6 is %+v in %v", libc, slices.Sorted(maps.Keys(refs)))
	}
	if dependsOn := got.Dependencies[0].DependsOn; !slices.Contains(dependsOn, libc.Ref) {
		t.Errorf("libc6 is not among %q", dependsOn)
	}
}

// No file gets into the image without its package.
func TestPackagesMissing(t *testing.T) {
	const status = "var/lib/dpkg/status.d/"
	for _, tt := range []struct {
		name  string
		slip  func(map[string]string)
		wants string
	}{
		{"a file of no package", func(f map[string]string) { f["lib/libother.so"] = "other" }, "lib/libother.so is of no package"},
		{"a file that was changed", func(f map[string]string) { f["lib/libc.so.6"] = "crack" }, "lib/libc.so.6 is not the one of"},
		{"a file that is not there", func(f map[string]string) { delete(f, "lib/libc.so.6") }, "lib/libc.so.6 is not the one of"},
		{"a package that is not told", func(f map[string]string) { delete(f, status+"libc6") }, "lib/libc.so.6 is of no package"},
		{"a package without files", func(f map[string]string) { delete(f, status+"libc6.md5sums") }, "libc6.md5sums names no file"},
		{"no version", func(f map[string]string) { f[status+"libc6"] = "Package: libc6\nArchitecture: amd64\n" }, "it has no Version"},
		{"no fields", func(f map[string]string) { f[status+"libc6"] = "libc6" }, "read " + status + "libc6"},
		{"no sums", func(f map[string]string) { f[status+"libc6.md5sums"] = "lib/libc.so.6\n" }, "is no sum of a file"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			files := tree()
			tt.slip(files)
			if _, err := packTree(t, files); err == nil || !strings.Contains(err.Error(), tt.wants) {
				t.Errorf("%v, want %q", err, tt.wants)
			}
		})
	}
}

//go:build !race

package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
)

const testRef = "ghcr.io/podnas/podnas:v1.2.3"

// packed is what pack returns, for tests that only read it.
func packed(t *testing.T) string {
	t.Helper()
	once.Do(func() { pack(t, outOnce) })
	return outOnce
}

var (
	once    sync.Once
	outOnce string
)

func TestMain(m *testing.M) {
	var err error
	if outOnce, err = os.MkdirTemp("", "image"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := m.Run()
	os.RemoveAll(outOnce)
	os.Exit(code)
}

// pack runs the command on two binaries, into a folder. They are this test's own program,
// with something to tell them apart by at the end.
func pack(t *testing.T, out string) {
	t.Helper()
	in := t.TempDir()
	write := func(name string, data []byte) string {
		path := filepath.Join(in, name)
		// Not executable here: the mode in the image is the packer's to set.
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	args := []string{
		"-ref", testRef, "-version", "v1.2.3", "-out", out, "-license", write("license", []byte("do as you like")),
		"amd64=" + write("amd", testBinary(t, "amd64")), "arm64=" + write("arm", testBinary(t, "arm64")),
	}
	if err := run(args, "1700000000"); err != nil {
		t.Fatal(err)
	}
}

func testBinary(t *testing.T, arch string) []byte {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(self)
	if err != nil {
		t.Fatal(err)
	}
	return append(data, "an "+arch+" binary"...)
}

// readTar returns the contents and the headers of an archive by name.
func readTar(t *testing.T, r io.Reader) (map[string][]byte, map[string]*tar.Header) {
	t.Helper()
	data, headers := map[string][]byte{}, map[string]*tar.Header{}
	for archive := tar.NewReader(r); ; {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return data, headers
		}
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(archive)
		if err != nil {
			t.Fatal(err)
		}
		data[header.Name], headers[header.Name] = content, header
	}
}

func readTarFile(t *testing.T, path string) map[string][]byte {
	t.Helper()
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	data, _ := readTar(t, file)
	return data
}

func decode[T any](t *testing.T, data []byte) T {
	t.Helper()
	var v T
	if err := json.Unmarshal(data, &v); err != nil {
		t.Fatalf("%v in %q", err, data)
	}
	return v
}

// The parts of the OCI image specification's documents that loaders look at,
// written here apart from the library that wrote the archive.
type (
	descriptor struct {
		MediaType   string
		Digest      string
		Size        int
		Annotations map[string]string
		Platform    struct{ OS, Architecture string }
	}
	index    struct{ Manifests []descriptor }
	manifest struct {
		Config descriptor
		Layers []descriptor
	}
	config struct {
		Created      string
		OS           string
		Architecture string
		Config       struct {
			User       string
			Env        []string
			Entrypoint []string
			Labels     map[string]string
		}
	}
)

func TestOCIArchive(t *testing.T) {
	files := readTarFile(t, filepath.Join(packed(t), "podnas-v1.2.3.tar"))
	blob := func(d descriptor) []byte {
		data, ok := files["blobs/"+strings.Replace(d.Digest, ":", "/", 1)]
		if !ok || len(data) != d.Size {
			t.Fatalf("blob %s of %d bytes: have %d", d.Digest, d.Size, len(data))
		}
		return data
	}

	if got := decode[map[string]string](t, files["oci-layout"])["imageLayoutVersion"]; got != "1.0.0" {
		t.Errorf("image layout version %q", got)
	}
	top := decode[index](t, files["index.json"])
	if len(top.Manifests) != 1 {
		t.Fatalf("%d entries in index.json, want the one index", len(top.Manifests))
	}
	if got := top.Manifests[0].Annotations["io.containerd.image.name"]; got != testRef {
		t.Errorf("name for containerd %q", got)
	}
	if got := top.Manifests[0].Annotations["org.opencontainers.image.ref.name"]; got != "v1.2.3" {
		t.Errorf("reference name %q", got)
	}

	platforms := decode[index](t, blob(top.Manifests[0])).Manifests
	if len(platforms) != 2 {
		t.Fatalf("%d platforms, want 2", len(platforms))
	}
	for i, arch := range []string{"amd64", "arm64"} {
		t.Run(arch, func(t *testing.T) {
			if p := platforms[i].Platform; p.OS != "linux" || p.Architecture != arch {
				t.Errorf("platform %+v", p)
			}
			m := decode[manifest](t, blob(platforms[i]))
			checkConfig(t, decode[config](t, blob(m.Config)), arch)
			if len(m.Layers) != 1 || m.Layers[0].MediaType != "application/vnd.oci.image.layer.v1.tar+gzip" {
				t.Fatalf("layers %+v", m.Layers)
			}
			checkLayer(t, blob(m.Layers[0]), arch)
		})
	}
}

func TestDockerArchive(t *testing.T) {
	out := packed(t)
	for _, arch := range []string{"amd64", "arm64"} {
		t.Run(arch, func(t *testing.T) {
			files := readTarFile(t, filepath.Join(out, "podnas-v1.2.3-"+arch+".tar"))
			entries := decode[[]struct {
				Config   string
				RepoTags []string
				Layers   []string
			}](t, files["manifest.json"])
			if len(entries) != 1 || !slices.Equal(entries[0].RepoTags, []string{testRef}) || len(entries[0].Layers) != 1 {
				t.Fatalf("manifest.json: %+v", entries)
			}
			checkConfig(t, decode[config](t, files[entries[0].Config]), arch)
			checkLayer(t, files[entries[0].Layers[0]], arch)
		})
	}
}

func checkConfig(t *testing.T, c config, arch string) {
	t.Helper()
	if c.OS != "linux" || c.Architecture != arch {
		t.Errorf("configuration for %s/%s", c.OS, c.Architecture)
	}
	if c.Created != "2023-11-14T22:13:20Z" {
		t.Errorf("created %s, want SOURCE_DATE_EPOCH's time", c.Created)
	}
	if c.Config.User != "0:0" || !slices.Equal(c.Config.Entrypoint, []string{"/usr/bin/podnas"}) ||
		!slices.Equal(c.Config.Env, []string{"PATH=/usr/bin"}) {
		t.Errorf("configuration %+v", c.Config)
	}
	if got := c.Config.Labels["io.podnas.sbom"]; got != "/usr/share/doc/podnas/sbom.cdx.json" {
		t.Errorf("the SBOM is said to be at %q", got)
	}
	if got := c.Config.Labels["org.opencontainers.image.version"]; got != "v1.2.3" {
		t.Errorf("version label %q", got)
	}
}

func checkLayer(t *testing.T, compressed []byte, arch string) {
	t.Helper()
	layer, err := gzip.NewReader(bytes.NewReader(compressed))
	if err != nil {
		t.Fatal(err)
	}
	data, headers := readTar(t, layer)
	for path, mode := range map[string]int64{
		"usr/bin/podnas": 0o755, "usr/bin/": 0o755, "etc/passwd": 0o644, "etc/group": 0o644,
		"usr/share/doc/podnas/LICENSE": 0o644, "usr/share/doc/podnas/sbom.cdx.json": 0o644,
	} {
		header := headers[path]
		if header == nil {
			t.Errorf("no %s in the layer", path)
			continue
		}
		if header.Mode != mode || header.Uid != 0 || header.Gid != 0 || header.ModTime.Unix() != 0 {
			t.Errorf("%s: mode %o, owner %d:%d, time %v", path, header.Mode, header.Uid, header.Gid, header.ModTime)
		}
	}
	if !bytes.Equal(data["usr/bin/podnas"], testBinary(t, arch)) {
		t.Errorf("podnas is not the binary for %s", arch)
	}
}

func TestReproducible(t *testing.T) {
	first, second := packed(t), t.TempDir()
	pack(t, second)
	for _, name := range []string{"podnas-v1.2.3.tar", "podnas-v1.2.3-amd64.tar", "podnas-v1.2.3-arm64.tar", "podnas-v1.2.3-arm64.cdx.json"} {
		a, errA := os.ReadFile(filepath.Join(first, name))
		b, errB := os.ReadFile(filepath.Join(second, name))
		if err := errors.Join(errA, errB); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(a, b) {
			t.Errorf("%s differs between two runs on the same binaries", name)
		}
	}
}

// The files of a folder that is added are in the image, with their rights, and what
// is in its usr/sbin can be run by name.
func TestAddedFiles(t *testing.T) {
	out, err := packTree(t, tree())
	if err != nil {
		t.Fatal(err)
	}
	files := readTarFile(t, filepath.Join(out, "podnas-xfs-v1-amd64.tar"))
	entries := decode[[]struct {
		Config string
		Layers []string
	}](t, files["manifest.json"])
	if env := decode[config](t, files[entries[0].Config]).Config.Env; !slices.Equal(env, []string{"PATH=/usr/bin:/usr/sbin"}) {
		t.Errorf("environment %q", env)
	}
	layer, err := gzip.NewReader(bytes.NewReader(files[entries[0].Layers[0]]))
	if err != nil {
		t.Fatal(err)
	}
	data, headers := readTar(t, layer)
	for name, mode := range map[string]int64{"usr/sbin/mkfs.xfs": 0o755, "usr/sbin/": 0o755, "var/lib/dpkg/status.d/libc6.md5sums": 0o644, "lib/libc.so.6": 0o644, "usr/bin/podnas": 0o755} {
		if h := headers[name]; h == nil || h.Mode != mode || h.Uid != 0 || h.ModTime.Unix() != 0 {
			t.Errorf("%s: %+v", name, h)
		}
	}
	if got := string(data["usr/sbin/mkfs.xfs"]); got != "mkfs" {
		t.Errorf("mkfs.xfs is %q", got)
	}
	link := t.TempDir()
	if err := os.Symlink("mkfs.xfs", filepath.Join(link, "link")); err != nil {
		t.Fatal(err)
	}
	if err := (root{}).add(os.DirFS(link)); err == nil || !strings.Contains(err.Error(), "no regular file") {
		t.Errorf("a symbolic link: %v", err)
	}
}

func TestBadArguments(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	good := []string{"-ref", testRef, "-license", file, "-out", t.TempDir()}
	for _, test := range []struct {
		name, epoch string
		args        []string
		want        string
	}{
		{"no binaries", "", good, "no binaries"},
		{"no tag", "", []string{"-ref", "ghcr.io/podnas/podnas", "amd64=" + file}, "read -ref"},
		{"no path", "", append(slices.Clone(good), "amd64"), "is not ARCH=PATH"},
		{"no folder to add", "", append(slices.Clone(good), "-add", "amd64", "amd64="+file), "is not ARCH=FOLDER"},
		{"no such folder", "", append(slices.Clone(good), "-add", "amd64="+file+".gone", "amd64="+file), "layer of amd64"},
		{"no such binary", "", append(slices.Clone(good), "amd64="+file+".gone"), "layer of amd64"},
		{"no Go binary", "", append(slices.Clone(good), "amd64="+file), "read what the binary was built from"},
		{"bad time", "yesterday", append(slices.Clone(good), "amd64="+file), "read SOURCE_DATE_EPOCH"},
	} {
		t.Run(test.name, func(t *testing.T) {
			err := run(test.args, test.epoch)
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want an error with %q", err, test.want)
			}
		})
	}
}

package main

import (
	"archive/tar"
	"bytes"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"slices"

	cdx "github.com/CycloneDX/cyclonedx-go"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// Names for the ids that are likely in a container, for tools that look.
const (
	passwd = "root:x:0:0:root:/:/sbin/nologin\nnobody:x:65534:65534:nobody:/:/sbin/nologin\n"
	group  = "root:x:0:\nnogroup:x:65534:\n"
)

// root is the files of an image, by path.
type root map[string]file

// file is a regular file with its permissions.
type file struct {
	mode fs.FileMode
	data []byte
}

// rootfs is what is in the image: podnas in the PATH, its license, and nothing to
// run beside it, unless a folder is given, whose packages it returns. No certificates:
// the API server's come with the service account, and podnas talks to no one else.
func rootfs(binary, license, folder string) (files root, packages []cdx.Component, err error) {
	files = root{}
	if folder != "" {
		if err := files.add(os.DirFS(folder)); err != nil {
			return nil, nil, fmt.Errorf("add %s: %w", folder, err)
		}
		if packages, err = files.packages(); err != nil {
			return nil, nil, fmt.Errorf("add %s: %w", folder, err)
		}
	}
	podnas, err := os.ReadFile(binary)
	if err != nil {
		return nil, nil, err
	}
	text, err := os.ReadFile(license)
	if err != nil {
		return nil, nil, err
	}
	maps.Copy(files, root{
		"etc/group":                    {0o644, []byte(group)},
		"etc/passwd":                   {0o644, []byte(passwd)},
		"usr/bin/podnas":               {0o755, podnas},
		"usr/share/doc/podnas/LICENSE": {0o644, text},
	})
	return files, packages, nil
}

// add takes over the regular files of a folder. It has no others: what is packed is
// chosen file by file.
func (r root) add(folder fs.FS) error {
	return fs.WalkDir(folder, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		if !info.Mode().IsRegular() {
			return fmt.Errorf("%s is no regular file", name)
		}
		data, err := fs.ReadFile(folder, name)
		r[name] = file{info.Mode().Perm(), data}
		return err
	})
}

// path is where commands are looked for.
func (r root) path() string {
	for name := range r {
		if path.Dir(name) == "usr/sbin" {
			return "/usr/bin:/usr/sbin"
		}
	}
	return "/usr/bin"
}

// layer is the image's one layer: the files and the folders that they are in, in the
// order of their names.
func (r root) layer() (v1.Layer, error) {
	headers := map[string]*tar.Header{}
	for name, f := range r {
		headers[name] = &tar.Header{Name: name, Mode: int64(f.mode), Size: int64(len(f.data))}
		for dir := path.Dir(name); dir != "."; dir = path.Dir(dir) {
			headers[dir] = &tar.Header{Name: dir + "/", Mode: 0o755}
		}
	}
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	for _, name := range slices.Sorted(maps.Keys(headers)) {
		// A zero ModTime is written as 1970: times would make every build differ.
		header := headers[name]
		header.Format = tar.FormatUSTAR
		if err := w.WriteHeader(header); err != nil {
			return nil, err
		}
		if _, err := w.Write(r[name].data); err != nil {
			return nil, err
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	open := func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(buf.Bytes())), nil }
	return tarball.LayerFromOpener(open, tarball.WithMediaType(types.OCILayer), tarball.WithCompressedCaching)
}

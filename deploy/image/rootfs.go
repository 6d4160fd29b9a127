package main

import (
	"archive/tar"
	"bytes"
	"io"
	"os"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// Names for the ids that are likely in a container, for tools that look.
const (
	passwd = "root:x:0:0:root:/:/sbin/nologin\nnobody:x:65534:65534:nobody:/:/sbin/nologin\n"
	group  = "root:x:0:\nnogroup:x:65534:\n"
)

// rootfs returns the image's one layer: podnas in the PATH, its license, and
// nothing to run beside it. No certificates: the API server's come with the
// service account, and podnas talks to no one else.
func rootfs(binary, license string) (v1.Layer, error) {
	podnas, err := os.ReadFile(binary)
	if err != nil {
		return nil, err
	}
	text, err := os.ReadFile(license)
	if err != nil {
		return nil, err
	}
	entries := []struct {
		name string // a folder when it ends in a slash
		mode int64
		data []byte
	}{
		{"etc/", 0o755, nil},
		{"etc/group", 0o644, []byte(group)},
		{"etc/passwd", 0o644, []byte(passwd)},
		{"usr/", 0o755, nil},
		{"usr/bin/", 0o755, nil},
		{"usr/bin/podnas", 0o755, podnas},
		{"usr/share/", 0o755, nil},
		{"usr/share/doc/", 0o755, nil},
		{"usr/share/doc/podnas/", 0o755, nil},
		{"usr/share/doc/podnas/LICENSE", 0o644, text},
	}

	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	for _, e := range entries {
		// A zero ModTime is written as 1970: times would make every build differ.
		header := &tar.Header{Name: e.name, Mode: e.mode, Size: int64(len(e.data)), Format: tar.FormatUSTAR}
		if err := w.WriteHeader(header); err != nil {
			return nil, err
		}
		if _, err := w.Write(e.data); err != nil {
			return nil, err
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	open := func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(buf.Bytes())), nil }
	return tarball.LayerFromOpener(open, tarball.WithMediaType(types.OCILayer), tarball.WithCompressedCaching)
}

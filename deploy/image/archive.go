package main

import (
	"archive/tar"
	"fmt"
	"io"
	"io/fs"
	"os"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// writeDocker writes one architecture as docker save does. docker load without
// containerd's image store takes no other format, and no index.
func writeDocker(file string, tag name.Tag, img v1.Image) error {
	return tarball.WriteToFile(file, tag, img)
}

// writeOCI writes an OCI image layout as a tar archive: oci-layout, index.json
// and the blobs. index.json has one entry, the index of all architectures, with
// the names that tools look for: containerd its own annotation, with the whole
// reference; others the one of the OCI image layout specification.
func writeOCI(file string, tag name.Tag, images []platformImage) error {
	dir, err := os.MkdirTemp("", "podnas-image-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	path, err := layout.Write(dir, empty.Index)
	if err != nil {
		return fmt.Errorf("write layout: %w", err)
	}
	err = path.AppendIndex(newIndex(images), layout.WithAnnotations(map[string]string{
		"io.containerd.image.name":          tag.Name(),
		"org.opencontainers.image.ref.name": tag.TagStr(),
	}))
	if err != nil {
		return fmt.Errorf("append index: %w", err)
	}

	out, err := os.Create(file)
	if err != nil {
		return err
	}
	if err := tarFolder(out, os.DirFS(dir)); err != nil {
		_ = out.Close()
		return err
	}
	return out.Close()
}

// tarFolder writes the regular files of a folder, ordered by name and without
// times or owners.
func tarFolder(out io.Writer, folder fs.FS) error {
	w := tar.NewWriter(out)
	err := fs.WalkDir(folder, ".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		return tarFile(w, folder, path)
	})
	if err != nil {
		return err
	}
	return w.Close()
}

func tarFile(w *tar.Writer, folder fs.FS, path string) error {
	file, err := folder.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return err
	}
	header := &tar.Header{Name: path, Mode: 0o644, Size: info.Size(), Format: tar.FormatUSTAR}
	if err := w.WriteHeader(header); err != nil {
		return err
	}
	_, err = io.Copy(w, file)
	return err
}

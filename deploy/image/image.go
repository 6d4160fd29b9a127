package main

import (
	"fmt"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

type platformImage struct {
	arch  string
	image v1.Image
}

// newImage makes an image of one layer. It runs podnas as root, which acts on
// files of many owners; a pod takes away what root needs not.
func newImage(layer v1.Layer, arch, version, path string, created time.Time) (v1.Image, error) {
	img := mutate.MediaType(empty.Image, types.OCIManifestSchema1)
	img = mutate.ConfigMediaType(img, types.OCIConfigJSON)
	img, err := mutate.Append(img, mutate.Addendum{
		Layer:   layer,
		History: v1.History{Created: v1.Time{Time: created}, CreatedBy: "podnas deploy/image"},
	})
	if err != nil {
		return nil, fmt.Errorf("append layer: %w", err)
	}
	config, err := img.ConfigFile()
	if err != nil {
		return nil, fmt.Errorf("read configuration: %w", err)
	}
	config = config.DeepCopy()
	config.OS = "linux"
	config.Architecture = arch
	config.Created = v1.Time{Time: created}
	config.Config = v1.Config{
		User:         "0:0",
		Env:          []string{"PATH=" + path},
		Entrypoint:   []string{"/usr/bin/podnas"},
		ExposedPorts: map[string]struct{}{"2049/tcp": {}, "8080/tcp": {}},
		Labels: map[string]string{
			"org.opencontainers.image.title":    "podnas",
			"org.opencontainers.image.source":   "https://github.com/podnas/podnas",
			"org.opencontainers.image.licenses": "Apache-2.0",
			"org.opencontainers.image.version":  version,
			"io.podnas.sbom":                    "/" + sbomPath,
		},
	}
	return mutate.ConfigFile(img, config)
}

// newIndex joins the images of all architectures under one digest.
func newIndex(images []platformImage) v1.ImageIndex {
	index := v1.ImageIndex(empty.Index)
	for _, i := range images {
		index = mutate.AppendManifests(index, mutate.IndexAddendum{
			Add:        i.image,
			Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: i.arch}},
		})
	}
	return index
}

package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/podnas/podnas/internal/volume"
	"github.com/podnas/podnas/internal/volume/diskimage"
	"github.com/podnas/podnas/server/exports"
)

// imageFlag is the value of --disk-image: PATH,size=S.
type imageFlag struct{ spec *diskimage.Spec } // nil: not given

func (f *imageFlag) Type() string { return "PATH,size=S" }

func (f *imageFlag) String() string {
	if f.spec == nil {
		return ""
	}
	return fmt.Sprintf("%s,size=%d", f.spec.Path, f.spec.Size)
}

// Set reads the value. The size is as in a claim: 20Gi.
func (f *imageFlag) Set(s string) error {
	at := strings.LastIndex(s, ",size=") // the path may have a comma
	if at <= 0 {
		return errors.New("want PATH,size=S, for example /disk/podnas.img,size=20Gi")
	}
	size, err := resource.ParseQuantity(s[at+len(",size="):])
	if err != nil {
		return fmt.Errorf("size %q: %w", s[at+len(",size="):], err)
	}
	path, err := filepath.Abs(s[:at])
	if err != nil {
		return err
	}
	spec := diskimage.Spec{Path: path, Size: size.Value()}
	if err := spec.Validate(); err != nil {
		return err
	}
	f.spec = &spec
	return nil
}

// imageDisk is a disk that may be in an image; spec is nil if not.
type imageDisk struct {
	*volume.Store
	spec *diskimage.Spec
}

// CheckWrite explains an error that an image is the reason of.
func (d imageDisk) CheckWrite() error { return d.spec.Explain(d.Store.CheckWrite()) }

// open mounts the image at root, where there is to be one, and returns what
// unmounts it, for when the server and the store are done. To be called before
// anything else looks at root.
func (f *imageFlag) open(ctx context.Context, root string, exports *exports.Table, log *slog.Logger) (func() error, error) {
	if f.spec == nil {
		return func() error { return nil }, nil
	}
	image, err := diskimage.Open(ctx, *f.spec, root, log)
	if err != nil {
		return nil, err
	}
	return func() error {
		// What is exported is open, and would keep the image mounted.
		for _, v := range exports.Volumes() {
			exports.Remove(v.ID)
		}
		return image.Close()
	}, nil
}

package main

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/podnas/podnas/internal/volume/diskimage"
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

package main

import (
	"errors"
	"fmt"
	"strings"
	"syscall"
	"testing"

	"github.com/podnas/podnas/volume/diskimage"
)

func TestImageFlag(t *testing.T) {
	for _, c := range []struct {
		value string
		want  diskimage.Spec
		err   string
	}{
		{"/disk/podnas.img,size=20Gi", diskimage.Spec{Path: "/disk/podnas.img", Size: 20 << 30}, ""},
		{"/disk/a,b.img,size=1G", diskimage.Spec{Path: "/disk/a,b.img", Size: 1e9}, ""},
		{"/disk//x/../podnas.img,size=1Gi", diskimage.Spec{Path: "/disk/podnas.img", Size: 1 << 30}, ""},
		{"/disk/podnas.img", diskimage.Spec{}, "want PATH,size=S"},
		{",size=20Gi", diskimage.Spec{}, "want PATH,size=S"},
		{"/disk/podnas.img,size=", diskimage.Spec{}, "size"},
		{"/disk/podnas.img,size=20GB", diskimage.Spec{}, "20GB"},
		{"/disk/podnas.img,size=100Mi", diskimage.Spec{}, "too small"},
		{"/disk/podnas.img,size=-1Gi", diskimage.Spec{}, "too small"},
	} {
		var f imageFlag
		err := f.Set(c.value)
		switch {
		case c.err != "":
			if err == nil || !strings.Contains(err.Error(), c.err) || f.spec != nil {
				t.Errorf("%s: %v, want an error with %q", c.value, err, c.err)
			}
		case err != nil || *f.spec != c.want:
			t.Errorf("%s: %+v, %v; want %+v", c.value, f.spec, err, c.want)
		}
	}
}

// An error of the disk is explained where there is an image, and no other is.
func TestImageExplains(t *testing.T) {
	with, without := imageFlag{spec: &diskimage.Spec{Path: "/disk/podnas.img"}}, imageFlag{}
	broken := fmt.Errorf("write: %w", syscall.EIO)
	for _, tt := range []struct {
		name string
		flag imageFlag
		err  error
		says string // empty: the error is as it was
	}{
		{"an image that is shut down", with, broken, "the XFS in /disk/podnas.img has shut down"},
		{"no image", without, broken, ""},
		{"another error", with, syscall.EACCES, ""},
		{"no error", with, nil, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			err := tt.flag.explain(tt.err)
			if !errors.Is(err, tt.err) || !strings.Contains(fmt.Sprint(err), tt.says) {
				t.Errorf("%v, want %q in it", err, tt.says)
			}
			if tt.says == "" && fmt.Sprint(err) != fmt.Sprint(tt.err) {
				t.Errorf("%v, want what it was", err)
			}
		})
	}
}

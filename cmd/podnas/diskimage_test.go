package main

import (
	"strings"
	"testing"

	"github.com/podnas/podnas/internal/volume/diskimage"
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

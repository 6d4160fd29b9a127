package diskimage

import (
	"errors"
	"fmt"
	"strings"
	"syscall"
	"testing"
)

// An error of the disk is explained where there is an image, and no other is.
func TestExplain(t *testing.T) {
	with := &Spec{Path: "/disk/podnas.img"}
	broken := fmt.Errorf("write: %w", syscall.EIO)
	for _, tt := range []struct {
		name string
		spec *Spec
		err  error
		says string // empty: the error is as it was
	}{
		{"an image that is shut down", with, broken, "the XFS in /disk/podnas.img has shut down"},
		{"no image", nil, broken, ""},
		{"another error", with, syscall.EACCES, ""},
		{"no error", with, nil, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			err := tt.spec.Explain(tt.err)
			if !errors.Is(err, tt.err) || !strings.Contains(fmt.Sprint(err), tt.says) {
				t.Errorf("%v, want %q in it", err, tt.says)
			}
			if tt.says == "" && fmt.Sprint(err) != fmt.Sprint(tt.err) {
				t.Errorf("%v, want what it was", err)
			}
		})
	}
}

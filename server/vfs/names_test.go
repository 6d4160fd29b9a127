package vfs

import (
	"errors"
	"strings"
	"syscall"
	"testing"
)

func TestCheckName(t *testing.T) {
	for name, want := range map[string]error{
		"name": nil, "\xff": nil, "...": nil, strings.Repeat("n", 255): nil,
		"": syscall.EINVAL, ".": syscall.EINVAL, "..": syscall.EINVAL, "a/b": syscall.EINVAL, "a\x00": syscall.EINVAL,
		strings.Repeat("n", 256): syscall.ENAMETOOLONG,
	} {
		if err := checkName([]byte(name)); !errors.Is(err, want) {
			t.Errorf("checkName(%q) = %v, want %v", name, err, want)
		}
	}
}

package volume

import (
	"errors"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// A directory of a claim that has no record any more is not just any directory.
func TestLostRecord(t *testing.T) {
	const name = "pvc-0d3b1d3c-4a0f-4d4e-9d0a-5f5f3f0d6c11"
	root := t.TempDir()
	s, _ := open(t, root)
	makeVolume(Spec{Name: name, Size: 1 << 20})(t, s, root)
	if lost := s.Lost(); len(lost) != 0 {
		t.Errorf("lost: %v", lost)
	}
	mustDo(t, s.Close())
	was, err := os.ReadFile(filepath.Join(root, recordFile(name)))
	mustDo(t, errors.Join(err, os.Remove(filepath.Join(root, recordFile(name)))))
	mustDo(t, os.Mkdir(filepath.Join(root, "pvc-of-somebody"), 0o700))

	s, _ = open(t, root)
	found, err := s.Check()
	if err != nil || len(found) != 2 || found[0].Path != name || found[0].Notice || !strings.Contains(found[0].Fix, path.Base(recordFile(name))) || !found[1].Notice {
		t.Errorf("found: %v, %v", found, err)
	}
	if lost := s.Lost(); !slices.Equal(lost, []string{name}) {
		t.Errorf("lost: %v", lost)
	}
	if v, err := s.Create(t.Context(), Spec{Name: name, Size: 1 << 20}); !errors.Is(err, ErrExists) || !strings.Contains(err.Error(), "adopt") {
		t.Errorf("%+v, %v", v, err)
	}
	_, err = s.Adopt(t.Context(), Spec{Name: name, Size: 1 << 20})
	if lost := s.Lost(); err != nil || len(lost) != 0 {
		t.Errorf("adopted: %v, lost: %v", err, lost)
	}
	isKept(t, filepath.Join(root, name))
	mustDo(t, s.Close())

	mustDo(t, os.WriteFile(filepath.Join(root, recordFile(name)), was, 0o600))
	s, e := open(t, root)
	if lost := s.Lost(); len(lost) != 0 || !slices.Equal(e.names(), []string{name}) {
		t.Errorf("lost: %v, served %v", lost, e.names())
	}
}

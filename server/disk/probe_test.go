package disk_test

import (
	"errors"
	"testing"

	"github.com/podnas/podnas/server/disk"
)

func TestProbeSaysWhatIsMissing(t *testing.T) {
	err := disk.ProbeHandles("/proc")
	var needs *disk.NeedsError
	if !errors.As(err, &needs) || needs.What == "" || needs.Fix == "" {
		t.Errorf("ProbeHandles(/proc) = %v, want a NeedsError", err)
	}
}

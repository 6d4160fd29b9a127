package disk

import (
	"errors"
	"testing"
)

func TestProbeSaysWhatIsMissing(t *testing.T) {
	err := ProbeHandles("/proc")
	var needs *NeedsError
	if !errors.As(err, &needs) || needs.What == "" || needs.Fix == "" {
		t.Errorf("ProbeHandles(/proc) = %v, want a NeedsError", err)
	}
}

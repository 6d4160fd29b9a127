package disk

import (
	"os"
	"testing"
)

// What is not known of a file system is not taken for granted.
func TestDiskOf(t *testing.T) {
	f, err := os.Open("/proc")
	must(t, err)
	defer f.Close()
	got := Of(f)
	got.NoAtime, got.RelAtime = false, false // as it is mounted here
	if got != (FS{}) {
		t.Errorf("/proc: %+v", got)
	}
}

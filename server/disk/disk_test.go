package disk_test

import (
	"os"
	"testing"

	"github.com/podnas/podnas/server/disk"
)

// What is not known of a file system is not taken for granted.
func TestDiskOf(t *testing.T) {
	f, err := os.Open("/proc")
	must(t, err)
	defer f.Close()
	got := disk.Of(f)
	got.NoAtime, got.RelAtime = false, false // as it is mounted here
	if got != (disk.FS{}) {
		t.Errorf("/proc: %+v", got)
	}
}

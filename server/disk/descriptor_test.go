package disk_test

import (
	"os"
	"testing"

	"github.com/podnas/podnas/server/disk"
)

// A descriptor is closed once, by whoever has it last.
func TestDescriptor(t *testing.T) {
	before := openDescriptors(t)
	d, err := disk.OpenEntry(-1, t.TempDir())
	must(t, err)
	kept := d.Take()
	if d.Close(); openDescriptors(t) != before+1 || d.FD() != -1 {
		t.Errorf("what was handed on is closed by who had it, or is still %d", d.FD())
	}
	fd := kept.FD()
	kept.Close()
	other, err := disk.OpenEntry(-1, t.TempDir()) // with the same number
	must(t, err)
	defer other.Close()
	if kept.Close(); other.FD() != fd || openDescriptors(t) != before+1 {
		t.Error("closed twice")
	}
	if none, err := disk.OpenEntry(-1, "/nothing/here"); err == nil || none != (disk.Descriptor{}) {
		t.Errorf("%v, %v", none, err)
	}
}

func openDescriptors(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	must(t, err)
	return len(entries)
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

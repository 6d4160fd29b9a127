package export

import "testing"

// A descriptor is closed once, by whoever has it last.
func TestDescriptor(t *testing.T) {
	before := descriptors(t)
	d, err := openEntry(-1, t.TempDir())
	mustDo(t, err)
	kept := d.take()
	if d.close(); descriptors(t) != before+1 || d.fd() != -1 {
		t.Errorf("what was handed on is closed by who had it, or is still %d", d.fd())
	}
	fd := kept.fd()
	kept.close()
	other, err := openEntry(-1, t.TempDir()) // with the same number
	mustDo(t, err)
	defer other.close()
	if kept.close(); other.fd() != fd || descriptors(t) != before+1 {
		t.Error("closed twice")
	}
	if none, err := openEntry(-1, "/nothing/here"); err == nil || none != (descriptor{}) {
		t.Errorf("%v, %v", none, err)
	}
}

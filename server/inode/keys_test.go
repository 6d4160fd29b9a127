package inode

import (
	"testing"

	"github.com/podnas/podnas/server/disk"
)

// TestModeRecords: the name of a record is all that it has, and any other name is none.
func TestModeRecords(t *testing.T) {
	r := modeRecord{fileKey{7, disk.NewFileID([]byte{1, 2, 3})}, 0o4050, 0o600}
	if got, ok := parseModeRecord(r.name()); !ok || got != r {
		t.Errorf("%s is %+v", r.name(), got)
	}
	for _, name := range []string{
		"", spareRecord, r.key.name(), "0000000000000007-010203-4050-600x", "0000000000000007-010203-14050-600", "0000000000000007-010203-4050-777",
		"7-010203-4050-600", "0000000000000007--4050-600", "0000000000000007-01020g-4050-600", "0000000000000007-010203--600", "0000000000000007-010203-4050-600-1",
	} {
		if got, ok := parseModeRecord(name); ok {
			t.Errorf("%q is %+v", name, got)
		}
	}
}

// A name is a key, or none.
func FuzzParseFileKey(f *testing.F) {
	k := fileKey{1, disk.NewFileID([]byte{1, 2, 3})}
	f.Add(k.name())
	f.Fuzz(func(t *testing.T, name string) {
		if k, ok := parseFileKey(name); ok {
			if again, ok := parseFileKey(k.name()); !ok || again != k {
				t.Errorf("%q is %v, and that is %q", name, k, k.name())
			}
		}
	})
}

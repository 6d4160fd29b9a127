package gonfs

import (
	"io/fs"
	"testing"
)

// What is kept of directories that clients list has a bound, whatever their size, and the
// latest is kept.
func TestListingsAreBounded(t *testing.T) {
	var l listings
	kept := func() (entries int) {
		for _, listing := range l.recent {
			entries += len(listing.entries)
		}
		return entries
	}
	for _, tt := range []struct{ size, want int }{
		{entriesMax / 2, entriesMax / 2},
		{entriesMax / 2, entriesMax},
		{1, entriesMax/2 + 1},
		{2 * entriesMax, 2 * entriesMax},
		{1, 1},
	} {
		entries := make([]fs.FileInfo, tt.size)
		for i := range entries {
			entries[i] = &fileInfo{}
		}
		path := string(rune('a' + len(l.recent)))
		verifier := l.VerifierFor(path, entries)
		if got := kept(); got != tt.want {
			t.Errorf("after %d more: %d entries are kept, want %d", tt.size, got, tt.want)
		}
		if got := l.DataForVerifier(path, verifier); len(got) != tt.size {
			t.Errorf("the latest has %d entries, want %d", len(got), tt.size)
		}
	}
}

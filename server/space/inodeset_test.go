package space

import "testing"

// Numbers of inodes are kept 64 to an entry.
func TestInodeSet(t *testing.T) {
	s := inodeSet{}
	for i := range uint64(1 << 20) {
		if !s.add(Inode{1, i}) || s.add(Inode{1, i}) {
			t.Fatalf("inode %d is not new, and then known", i)
		}
	}
	if !s.add(Inode{2, 0}) {
		t.Error("another device's inode is known")
	}
	if len(s) > 1<<20/64+1 {
		t.Errorf("%d entries", len(s))
	}
	for i := range uint64(1 << 20) {
		s.remove(Inode{1, i})
	}
	s.remove(Inode{3, 5})
	if len(s) != 1 || s.add(Inode{2, 0}) || !s.add(Inode{1, 7}) {
		t.Errorf("after removal: %v", s)
	}
	inodeSet(nil).remove(Inode{1, 1}) // as of an account whose scan has ended
}

package space

import (
	"testing"

	"github.com/podnas/podnas/server/disk"
)

// Numbers of inodes are kept 64 to an entry.
func TestInodeSet(t *testing.T) {
	s := inodeSet{}
	for i := range uint64(1 << 20) {
		if !s.add(disk.Inode{Device: 1, Number: i}) || s.add(disk.Inode{Device: 1, Number: i}) {
			t.Fatalf("inode %d is not new, and then known", i)
		}
	}
	if !s.add(disk.Inode{Device: 2, Number: 0}) {
		t.Error("another device's inode is known")
	}
	if len(s) > 1<<20/64+1 {
		t.Errorf("%d entries", len(s))
	}
	for i := range uint64(1 << 20) {
		s.remove(disk.Inode{Device: 1, Number: i})
	}
	s.remove(disk.Inode{Device: 3, Number: 5})
	if len(s) != 1 || s.add(disk.Inode{Device: 2, Number: 0}) || !s.add(disk.Inode{Device: 1, Number: 7}) {
		t.Errorf("after removal: %v", s)
	}
	inodeSet(nil).remove(disk.Inode{Device: 1, Number: 1}) // as of an account whose scan has ended
}

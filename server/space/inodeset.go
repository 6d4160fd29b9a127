package space

import "github.com/podnas/podnas/server/disk"

// inodeSet is a set of inodes. File systems number files in runs, so 64 numbers
// share an entry: a million files take less than a megabyte.
type inodeSet map[disk.Inode]uint64 // the numbers are of 64 inodes each

// add is false of what is in it already.
func (s inodeSet) add(i disk.Inode) bool {
	key, bit := bitOf(i)
	if s[key]&bit != 0 {
		return false
	}
	s[key] |= bit
	return true
}

func (s inodeSet) remove(i disk.Inode) {
	key, bit := bitOf(i)
	switch left := s[key] &^ bit; {
	case left != 0:
		s[key] = left
	default:
		delete(s, key)
	}
}

// bitOf returns the key of an inode in the map, and its bit there.
func bitOf(i disk.Inode) (disk.Inode, uint64) {
	return disk.Inode{Device: i.Device, Number: i.Number / 64}, 1 << (i.Number % 64)
}

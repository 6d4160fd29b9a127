package space

// inodeSet is a set of inodes. File systems number files in runs, so 64 numbers
// share an entry: a million files take less than a megabyte.
type inodeSet map[Inode]uint64 // the numbers are of 64 inodes each

// add is false of what is in it already.
func (s inodeSet) add(i Inode) bool {
	key, bit := i.place()
	if s[key]&bit != 0 {
		return false
	}
	s[key] |= bit
	return true
}

func (s inodeSet) remove(i Inode) {
	key, bit := i.place()
	switch left := s[key] &^ bit; {
	case left != 0:
		s[key] = left
	default:
		delete(s, key)
	}
}

func (i Inode) place() (Inode, uint64) {
	return Inode{i.Device, i.Number / 64}, 1 << (i.Number % 64)
}

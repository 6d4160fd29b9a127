package snapshot

// marks is a set of inode numbers. Numbers that are near each other take little: file systems give them out in chunks.
type marks map[uint64]*[marksEach / 64]uint64

const marksEach = 512

func (m marks) has(inode uint64) bool {
	chunk := m[inode/marksEach]
	return chunk != nil && chunk[inode%marksEach/64]&(1<<(inode%64)) != 0
}

func (m marks) add(inode uint64) {
	chunk := m[inode/marksEach]
	if chunk == nil {
		chunk = new([marksEach / 64]uint64)
		m[inode/marksEach] = chunk
	}
	chunk[inode%marksEach/64] |= 1 << (inode % 64)
}

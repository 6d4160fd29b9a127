package volume

// Inodes tells how many files and directories the disk can hold, and how many more
// it has room for. Both are 0 where the file system makes them as they are needed
// and has no number (btrfs).
func (s *Store) Inodes() (total, free uint64, err error) {
	st, err := s.statfs()
	return st.Files, st.Ffree, err
}

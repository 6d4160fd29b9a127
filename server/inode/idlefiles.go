package inode

// idleFiles is a list of cached descriptors that nobody uses, the least recently used first. A descriptor goes in and out
// with each call, so the list's links are in descriptor, and allocate nothing. The mu of the list's shard guards it.
type idleFiles struct {
	first, last *descriptor
	len         int
}

// push puts a descriptor at the end.
func (l *idleFiles) push(f *descriptor) {
	f.in, f.before, f.after = l, l.last, nil
	if l.last != nil {
		l.last.after = f
	} else {
		l.first = f
	}
	l.last = f
	l.len++
}

// remove takes a descriptor out that is in the list.
func (l *idleFiles) remove(f *descriptor) {
	if f.before != nil {
		f.before.after = f.after
	} else {
		l.first = f.after
	}
	if f.after != nil {
		f.after.before = f.before
	} else {
		l.last = f.before
	}
	f.in, f.before, f.after = nil, nil, nil
	l.len--
}

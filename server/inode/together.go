package inode

// Together has several changes by one call be one for snapshots: each snapshot has all of them, or none. The call has it, and it
// outlives the call's files. The zero Together is ready.
type Together struct{ entered bool }

// Do calls do, which changes files of the volume of f: f itself, what is made in it, and data, which is the same file as f, open
// for its data. data is nil unless do sets the size. A cut waits for do, so what may wait must be before or after it: the lock
// of the data is taken before. The error is do's, or as that of a single change.
//
// Not checked: data may be nil.
//
// +checklocksignore
func (t *Together) Do(f, data *File, do func() error) error {
	if data != nil && data.use == UseWrite {
		defer data.enterToResize()()
		data.cached.inode.content.lock()
		defer data.cached.inode.content.mu.Unlock()
		data.together = t
	}
	f.together = t
	entered, err := f.enterChange()
	if err != nil {
		return err
	}
	t.entered = true
	defer func() {
		t.entered = false
		f.leaveChange(entered)
	}()
	return do()
}

// hasEntered reports whether the call has entered for this file already.
func (f *File) hasEntered() bool { return f.together != nil && f.together.entered }

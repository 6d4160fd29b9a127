package actas

import "golang.org/x/sys/unix"

// AsOwner runs do with CAP_FOWNER beside the user's own rights: the thread may do what takes the owner of a file, but still can't
// use a file or a directory that the user may not. The error is EPERM, without do, if the thread acts as the process, which
// has the capability already or lacks it.
func (t Thread) AsOwner(do func() error) error {
	t.MustAct()
	if !t.user {
		return unix.EPERM
	}
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3} // of this thread
	var before [2]unix.CapUserData
	if err := unix.Capget(&header, &before[0]); err != nil {
		return err
	}
	with := before
	with[unix.CAP_FOWNER/32].Effective |= 1 << (unix.CAP_FOWNER % 32)
	if err := unix.Capset(&header, &with[0]); err != nil {
		return err
	}
	defer func() { _ = unix.Capset(&header, &before[0]) }() // to drop one can't fail; Users.As would drop it, too
	return do()
}

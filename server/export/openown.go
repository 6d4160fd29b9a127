package export

import (
	"golang.org/x/sys/unix"
)

// openOwn opens a file of the only user, which is open as path, although its mode does not let its
// owner. A client that has made a file may write it whatever its mode, and the server does not see
// opens; names in a directory may be changed by who may not read it; and what has just been made
// without a right for anybody is synced. Root needs no right for any of these. Another owner gets it
// by the mode, for a moment.
func (o *Opener) openOwn(v *Volume, id FileID, path int, use Use) (descriptor, error) {
	o.modes.Lock()
	defer o.modes.Unlock()
	attr, err := v.look(path, nil)
	switch {
	case err != nil:
		return descriptor{}, err
	case attr.UID != o.table.Only.UID:
		return descriptor{}, unix.EACCES
	}
	wants := uint32(unix.S_IRUSR)
	if use == UseWrite {
		wants |= unix.S_IWUSR
	}
	defer o.beginChange(v, id).end()
	if err := unix.Chmod(procPath(path), attr.Mode|wants); err != nil {
		return descriptor{}, err
	}
	fd, err := unix.Open(procPath(path), use.flags()&^unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if restored := unix.Chmod(procPath(path), attr.Mode); err == nil && restored != nil {
		_ = unix.Close(fd)
		return descriptor{}, restored
	}
	if err != nil {
		return descriptor{}, err
	}
	return owned(fd), nil
}

// syncOwn syncs such a file, which is open with O_PATH.
func (o *Opener) syncOwn(file *openFile) error {
	d, err := o.openOwn(file.key.volume, file.key.id, file.fd, UseRead)
	if err != nil {
		return err
	}
	defer d.close()
	return file.key.volume.disk.sync(d.fd(), false)
}

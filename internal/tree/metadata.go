package tree

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// metadata is everything of a file but its content: owner, mode, times, and
// extended attributes including ACLs.
type metadata struct {
	status
	attrs []attribute // the ACLs last: they can take the right to set others
}

// status is what is copied of statx(2).
type status struct {
	uid, gid     uint32
	mode         uint16
	atime, mtime unix.StatxTimestamp
}

func statusOf(st *unix.Statx_t) status {
	return status{uid: st.Uid, gid: st.Gid, mode: st.Mode, atime: st.Atime, mtime: st.Mtime}
}

type attribute struct {
	name  string
	value []byte
}

// copied reports whether an extended attribute is copied. A security label like
// SELinux's is not: it depends on where a file is created.
func copied(name string) bool {
	if strings.HasPrefix(name, "trusted.SGI_ACL_") {
		return false // XFS lists its ACLs twice
	}
	return strings.HasPrefix(name, "user.") || strings.HasPrefix(name, "trusted.") ||
		name == "security.capability" || isACL(name)
}

func isACL(name string) bool { return strings.HasPrefix(name, "system.posix_acl_") }

// readMetadata reads what stat lacks. fd may be O_PATH.
func readMetadata(fd int, stat *unix.Statx_t) (metadata, error) {
	m := metadata{status: statusOf(stat)}
	names, err := attributeNames(fd)
	if err != nil {
		return m, fmt.Errorf("list extended attributes: %w", err)
	}
	var acls []attribute
	for _, name := range names {
		value, err := grow(func(b []byte) (int, error) { return unix.Getxattr(procPath(fd), name, b) })
		if errors.Is(err, unix.ENODATA) {
			continue // removed meanwhile
		}
		if err != nil {
			return m, fmt.Errorf("read extended attribute %q: %w", name, err)
		}
		if isACL(name) {
			acls = append(acls, attribute{name, value})
		} else {
			m.attrs = append(m.attrs, attribute{name, value})
		}
	}
	m.attrs = append(m.attrs, acls...)
	return m, nil
}

// attributeNames returns a file's extended attributes that are copied.
func attributeNames(fd int) ([]string, error) {
	list, err := grow(func(b []byte) (int, error) { return unix.Listxattr(procPath(fd), b) })
	if errors.Is(err, unix.ENOTSUP) {
		return nil, nil
	}
	var names []string
	for name := range strings.SplitSeq(string(list), "\x00") {
		if copied(name) {
			names = append(names, name)
		}
	}
	return names, err
}

// grow calls a function that fills a buffer, first to ask for the size.
func grow(fill func([]byte) (int, error)) ([]byte, error) {
	for {
		n, err := fill(nil)
		if n == 0 || err != nil {
			return nil, err
		}
		b := make([]byte, n)
		n, err = fill(b)
		if errors.Is(err, unix.ERANGE) {
			continue // it grew in between
		}
		if err != nil {
			return nil, err
		}
		return b[:n], nil
	}
}

// apply sets a file's metadata to exactly this. fd may be O_PATH. The times come
// last: a file that has them is complete.
func (m *metadata) apply(fd int) error {
	// Changing the owner clears setuid and capabilities, so it comes first.
	if err := m.applyOwner(fd); err != nil {
		return err
	}
	if err := m.applyAttributes(fd); err != nil {
		return err
	}
	return m.applyModeAndTimes(fd)
}

// apply sets this. The file must have its extended attributes.
func (s *status) apply(fd int) error {
	if err := s.applyOwner(fd); err != nil {
		return err
	}
	return s.applyModeAndTimes(fd)
}

func (s *status) applyOwner(fd int) error {
	err := unix.Fchownat(fd, "", int(s.uid), int(s.gid), unix.AT_EMPTY_PATH)
	if err != nil && !forRoot(err) {
		return fmt.Errorf("change the owner: %w", err)
	}
	return nil
}

func (s *status) applyModeAndTimes(fd int) error {
	if s.mode&unix.S_IFMT != unix.S_IFLNK {
		if err := unix.Chmod(procPath(fd), uint32(s.mode)&^unix.S_IFMT); err != nil {
			return fmt.Errorf("change the mode: %w", err)
		}
	}
	var times [2]unix.Timespec
	for i, t := range []unix.StatxTimestamp{s.atime, s.mtime} {
		var err error
		if times[i], err = unix.TimeToTimespec(time.Unix(t.Sec, int64(t.Nsec))); err != nil {
			return fmt.Errorf("set the times: %w", err)
		}
	}
	if err := unix.UtimesNanoAt(unix.AT_FDCWD, procPath(fd), times[:], 0); err != nil {
		return fmt.Errorf("set the times: %w", err)
	}
	return nil
}

func (m *metadata) applyAttributes(fd int) error {
	// A file created in a directory with a default ACL has inherited one.
	has, err := attributeNames(fd)
	if err != nil {
		return fmt.Errorf("list extended attributes: %w", err)
	}
	for _, name := range has {
		if !m.hasAttribute(name) {
			if err := unix.Removexattr(procPath(fd), name); err != nil {
				return fmt.Errorf("remove extended attribute %q: %w", name, err)
			}
		}
	}
	for _, a := range m.attrs {
		if err := unix.Setxattr(procPath(fd), a.name, a.value, 0); err != nil && !forRoot(err) {
			return fmt.Errorf("set extended attribute %q: %w", a.name, err)
		}
	}
	return nil
}

func (m *metadata) hasAttribute(name string) bool {
	for _, a := range m.attrs {
		if a.name == name {
			return true
		}
	}
	return false
}

// forRoot reports whether an error is that of a missing right. If podnas is an
// ordinary user, all its files are its own, and root's settings are not kept.
func forRoot(err error) bool { return errors.Is(err, unix.EPERM) && os.Geteuid() != 0 }

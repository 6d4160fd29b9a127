package volume

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path"
	"slices"

	"golang.org/x/sys/unix"
)

// Unserved is a volume that clients can't mount, although there is a record of it.
type Unserved struct {
	Volume         // as far as it is known
	State   string // Damaged or NotServed
	Problem string
	Fix     string
}

// Unserved lists the volumes that are not served, sorted by name.
func (s *Store) Unserved() []Unserved {
	var unserved []Unserved
	for _, d := range s.stillRefused() {
		if path.Dir(d.file) != volumesDir {
			continue
		}
		f := d.finding()
		u := Unserved{State: Damaged, Problem: f.Problem, Fix: f.Fix}
		if d.contradicted {
			u.Volume = d.r.Volume
		}
		u.Name = d.volume()
		unserved = append(unserved, u)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range s.records {
		if f := unservedFinding(r); f != nil {
			unserved = append(unserved, Unserved{r.Volume, NotServed, f.Problem, f.Fix})
		}
	}
	slices.SortFunc(unserved, func(a, b Unserved) int { return cmp.Compare(a.Name, b.Name) })
	return unserved
}

// unservedFinding says why a volume is not served, nil if it is, or if it should not be.
func unservedFinding(r *record) *Finding {
	if r.unserved == nil {
		return nil
	}
	f := &Finding{Volume: r.Name, Path: r.Path, Problem: "it is not served: " + r.unserved.Error(), Fix: "correct that, and restart podnas"}
	switch {
	case errors.Is(r.unserved, errHalfDeleted):
		f.Fix = "delete it again when the disk works; after a restart of podnas it is either deleted or as it was"
	case errors.Is(r.unserved, errNoView), r.View && errors.Is(r.unserved, errMissing):
		f.Fix = "bring the " + r.source() + " back from a backup of the disk and restart podnas, or delete the volume"
	case errors.Is(r.unserved, errMissing):
		f.Fix = "put the directory back and restart podnas, or delete the volume"
	case errors.Is(r.unserved, errMounted):
		f.Fix = "unmount it, and restart podnas"
	case r.State == copyingState:
		f.Fix = "bring that volume back and restart podnas, or delete this one"
	}
	return f
}

// notFound returns the error of a volume that is not there. If there may be a record of it, explain says so.
func notFound(name string) error { return fmt.Errorf("%s: %w", name, ErrNotFound) }

var (
	errMissing = errors.New("its directory is missing")
	errMounted = errors.New("something is mounted over its directory, so clients would write into that")
)

// servable returns an error if the directory of a volume can't be exported.
func (s *Store) servable(p string) error {
	if err := s.plainDir(p); err != nil {
		return fmt.Errorf("%w: %w", errMissing, err)
	}
	mounted, err := s.isMountedOver(p)
	if err == nil && mounted {
		err = errMounted
	}
	return err
}

// isMountedOver reports whether a directory is on another mount than the root of the disk.
func (s *Store) isMountedOver(p string) (bool, error) {
	root, err := s.mountOf(".")
	if err != nil {
		return false, err
	}
	dir, err := s.mountOf(p)
	return root != dir, err
}

// mount identifies a mount. Before Linux 5.8 there is only the device, which is that of
// the subvolume on btrfs.
type mount struct {
	id           uint64
	major, minor uint32
}

func (s *Store) mountOf(p string) (mount, error) {
	d, err := openDir(s.root, p)
	if err != nil {
		return mount{}, err
	}
	defer d.Close()
	var st unix.Statx_t
	if err := unix.Statx(int(d.Fd()), "", unix.AT_EMPTY_PATH, unix.STATX_MNT_ID, &st); err != nil {
		return mount{}, os.NewSyscallError("statx", err)
	}
	if st.Mask&unix.STATX_MNT_ID != 0 {
		return mount{id: st.Mnt_id}, nil
	}
	return mount{major: st.Dev_major, minor: st.Dev_minor}, nil
}

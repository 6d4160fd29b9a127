// Package quota sets hard limits on directory trees with the project quotas of
// XFS and ext4, by system calls alone: no xfs_quota binary, no /etc/projects.
//
// A project is a 32-bit number. Assign marks a directory with it so that
// everything created below inherits the number; SetLimit limits the usage and the
// number of all files of the project together; the zero Limit means none. The kernel
// enforces it for every write and every new file, of any process, and statfs(2) on
// the marked directory reports the limit as the
// size of the file system. See xfs_quota(8), "PROJECT QUOTA", and quotactl(2).
package quota

import (
	"errors"
	"fmt"
	"os"
)

// Mode is the requested way to enforce limits.
type Mode string

// The modes.
const (
	// Auto uses the kernel's project quotas if the disk has them, otherwise the
	// server's own accounting.
	Auto Mode = "auto"
	// Kernel requires the kernel's project quotas, of XFS or ext4.
	Kernel Mode = "kernel"
	// Server lets the server enforce them, which counts what clients write. It needs
	// nothing of the disk.
	Server Mode = "server"
	// Off enforces no limit.
	Off Mode = "off"
)

// ParseMode checks a mode given by the user.
func ParseMode(s string) (Mode, error) {
	switch m := Mode(s); m {
	case Auto, Kernel, Server, Off:
		return m, nil
	}
	return "", fmt.Errorf("unknown quota mode %q: use auto, kernel, server or off", s)
}

// UnsupportedError says why a disk can't have project quotas and what would
// change that.
type UnsupportedError struct {
	Reason string
	Fix    string
}

func (e *UnsupportedError) Error() string { return e.Reason + "; " + e.Fix }

// Limit is the limit of a project; 0: none.
type Limit struct {
	Bytes  int64
	Inodes int64 // files, directories and all else
}

// Usage is a volume's usage and limit, counted by the kernel in its project, or by the
// server. It is zero for a project that the kernel does not know. Commands get it as
// JSON.
type Usage struct {
	Bytes  int64 `json:"bytes"` // used, in bytes of disk blocks
	Inodes int64 `json:"files"` // used: files, directories and all else
	Limit  Limit `json:"-"`     // hard
	// Partial is whether the server is still counting the files that existed at its
	// start.
	Partial bool `json:"partial,omitempty"`
}

// Choice is how limits are enforced on a disk, and why.
type Choice struct {
	Projects *Projects // not nil: by the kernel
	Server   bool      // by the server's accounting
	Reason   string    // for people
}

// Mode is what enforces the limits: Kernel, Server or Off.
func (c *Choice) Mode() Mode {
	switch {
	case c.Projects != nil:
		return Kernel
	case c.Server:
		return Server
	}
	return Off
}

// ModeOf is what enforces the limit of a volume with a project, 0: none. Volumes from
// before the kernel could have none, and the server counts what is in them.
func (c *Choice) ModeOf(project uint32) Mode {
	if mode := c.Mode(); mode != Kernel || project != 0 {
		return mode
	}
	return Server
}

// Select selects how limits are enforced on the disk of root. The error of mode
// Kernel on a disk that can't is an *UnsupportedError.
func Select(mode Mode, root string) (Choice, error) {
	switch mode {
	case Off:
		return Choice{Reason: "sizes are not enforced, as requested: a volume can fill the whole disk"}, nil
	case Server:
		return Choice{Server: true, Reason: "the server enforces sizes by counting what clients write, as requested"}, nil
	}
	p, err := Open(root)
	if err == nil {
		return Choice{Projects: p, Reason: "the kernel enforces sizes: " + p.kind + " project quotas"}, nil
	}
	var unsupported *UnsupportedError
	if mode == Auto && errors.As(err, &unsupported) {
		return Choice{Server: true, Reason: "the server enforces sizes by counting what clients write; the kernel can't: " + unsupported.Reason}, nil
	}
	return Choice{}, fmt.Errorf("quota on %s: %w", root, err)
}

// Projects is the project quota of one file system. Its methods may be called
// concurrently.
type Projects struct {
	root *os.File // a directory on the file system, for quotactl_fd(2)
	kind string   // XFS or ext4
	// device is the block device for quotactl(2), where the kernel has no
	// quotactl_fd(2) (before Linux 5.14); else empty.
	device string
}

// Open tests whether the file system at root counts and enforces project quotas
// and that this process may set them.
//
// ext4 does not limit processes with CAP_SYS_RESOURCE, so Open calls DropResource there.
func Open(root string) (*Projects, error) {
	f, err := os.Open(root)
	if err != nil {
		return nil, err
	}
	p := &Projects{root: f}
	err = p.probe()
	if err == nil && p.kind == "ext4" {
		err = DropResource()
	}
	if err != nil {
		_ = f.Close() // only read from
		return nil, err
	}
	return p, nil
}

// Close releases the file system. The limits stay.
func (p *Projects) Close() error { return p.root.Close() }

// Assign marks the directory with a project that new files below it inherit.
// It must be empty: what is already in it is not marked, see AssignTree for that.
func (p *Projects) Assign(dir *os.File, id uint32) error {
	if id == 0 {
		return errors.New("project 0 stands for files without a project and can't be assigned")
	}
	if _, err := setProject(dir, id, true); err != nil {
		return fmt.Errorf("mark %s with project %d: %w", dir.Name(), id, err)
	}
	return nil
}

// Assigned reports whether a directory has a project and new files in it inherit
// that. It says nothing of what is in it.
func (p *Projects) Assigned(dir *os.File, id uint32) (bool, error) {
	is, err := assigned(dir, id)
	if err != nil {
		return false, fmt.Errorf("read the project of %s: %w", dir.Name(), err)
	}
	return is, nil
}

// SetLimit sets the hard limit of a project. Bytes are rounded up to the units of
// the kernel: 512 bytes on XFS, 1,024 on ext4.
func (p *Projects) SetLimit(id uint32, limit Limit) error {
	if err := p.setLimit(id, limit); err != nil {
		return fmt.Errorf("set the limit of project %d: %w", id, err)
	}
	return nil
}

// Usage returns the usage of a project. XFS frees the space of removed files late
// (up to seconds), so the number falls after the files are gone.
func (p *Projects) Usage(id uint32) (Usage, error) {
	u, err := p.usage(id)
	if err != nil {
		return Usage{}, fmt.Errorf("read the usage of project %d: %w", id, err)
	}
	return u, nil
}

// Usages returns the usage of every project that uses something or has a limit. It
// is one pass over the disk's records of quotas, about 0.1 s for a thousand
// projects.
func (p *Projects) Usages() (map[uint32]Usage, error) {
	usages := map[uint32]Usage{}
	for id := uint32(1); id != 0; id++ { // 0, past the largest, is no project
		next, u, found, err := p.nextUsage(id)
		if err != nil {
			return nil, fmt.Errorf("read the usage of the first project from %d on: %w", id, err)
		}
		if !found {
			break
		}
		if u != (Usage{}) {
			usages[next] = u
		}
		id = next
	}
	return usages, nil
}

package actas

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/podnas/podnas/internal/statedir"
	"github.com/podnas/podnas/server/disk"
)

// Right is something that takes a capability, capabilities(7). It is probed by trying it, because
// a capability does not help with users that the namespace does not have, nor where the file system
// or a security module refuses.
type Right struct {
	Capability string
	Without    string // what does not work without it, for people
	Err        error  // why it lacks; nil: it is there
}

// Rights are what this process may do with the files of a disk. The zero Rights are those of root.
type Rights struct {
	Tried []Right
	// Only is the user as whom everything is done, because threads can't act as others; nil: each
	// call is done as its caller.
	Only *Only
}

// Only is the user of a process that can't act as others.
type Only struct {
	UID, GID uint32
	// Overrides is whether this user may use the files of all others, so that whoever is served as
	// this user could do so, too.
	Overrides bool
}

// errNotTried is for what only a file of another owner can show.
var errNotTried = errors.New("not tried without CHOWN")

// rightsFile is a name in the root of the disk, where no volume has it. It exists for a moment.
const rightsFile = ".podnas-rights"

// TryRights tries on the disk at dir what this process may do. On a disk that has no room for a file it is what
// the process's capabilities say.
func TryRights(dir string) Rights {
	users := probeIdentities()
	chown, override, fowner, fsetid := tryOwners(dir)
	device := tryDevice(dir)
	if statedir.IsFull(chown) {
		chown, override, fowner, fsetid = capable(unix.CAP_CHOWN), capable(unix.CAP_DAC_OVERRIDE), capable(unix.CAP_FOWNER), capable(unix.CAP_FSETID)
	}
	if statedir.IsFull(device) {
		device = capable(unix.CAP_MKNOD)
	}
	r := Rights{Tried: []Right{
		{"SETUID and SETGID", fmt.Sprintf("every call is done as podnas's own user %d and group %d", unix.Geteuid(), unix.Getegid()), users},
		{"CHOWN", "nobody can change the owner of a file", chown},
		{"DAC_OVERRIDE", "modes bind root of a client, and podnas itself, as they do other users", override},
		{"FOWNER", "root of a client can't set mode and times of files of other owners", fowner},
		{"FSETID", "root of a client can't set setgid on a file of another group", fsetid},
		{"MKNOD", "root of a client can't make device nodes", device},
	}}
	if users != nil {
		r.Only = &Only{uint32(unix.Geteuid()), uint32(unix.Getegid()), override == nil && severalUsers()}
	}
	return r
}

// tryOwners tries the rights of root to files, on a file that has no name any more.
func tryOwners(dir string) (chown, override, fowner, fsetid error) {
	path := filepath.Join(dir, rightsFile)
	_ = os.Remove(path) // of a process that was killed
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL|unix.O_NOFOLLOW, 0)
	if err != nil {
		return err, err, err, err
	}
	defer f.Close()
	if err := os.Remove(path); err != nil {
		return err, err, err, err
	}
	fd := int(f.Fd())
	if again, err := os.OpenFile(disk.ProcPath(fd), os.O_RDWR, 0); err != nil { // its mode is 0
		override = err
	} else {
		_ = again.Close()
	}
	other := int(otherUser())
	if err := unix.Fchown(fd, other, other); err != nil {
		return err, override, errNotTried, errNotTried
	}
	if fowner = unix.Fchmod(fd, 0o600); fowner != nil {
		_ = unix.Fchown(fd, unix.Geteuid(), other)
	}
	fsetid = unix.Fchmod(fd, unix.S_ISGID|0o010)
	var st unix.Stat_t
	if fsetid == nil {
		fsetid = unix.Fstat(fd, &st)
	}
	if fsetid == nil && st.Mode&unix.S_ISGID == 0 { // chmod(2) clears it silently
		fsetid = unix.EPERM
	}
	return nil, override, fowner, fsetid
}

// otherUser is a user, and group, that the process is not.
func otherUser() uint32 {
	if unix.Geteuid() == anonymous || unix.Getegid() == anonymous {
		return anonymous - 1
	}
	return anonymous
}

// tryDevice tries to make a device node, that of /dev/null.
func tryDevice(dir string) error {
	path := filepath.Join(dir, rightsFile)
	_ = os.Remove(path)
	if err := unix.Mknod(path, unix.S_IFCHR, int(unix.Mkdev(1, 3))); err != nil {
		return err
	}
	return os.Remove(path)
}

// capable returns EPERM if this process lacks a capability.
func capable(capability uint) error {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&header, &data[0]); err != nil {
		return err
	}
	if data[capability/32].Effective&(1<<(capability%32)) == 0 {
		return unix.EPERM
	}
	return nil
}

// severalUsers reports whether this process's user namespace has more than one user,
// user_namespaces(7).
func severalUsers() bool {
	b, err := os.ReadFile("/proc/self/uid_map")
	fields := strings.Fields(string(b))
	if err != nil || len(fields) != 3 {
		return true
	}
	n, err := strconv.ParseUint(fields[2], 10, 64)
	return err != nil || n != 1
}

// String is one line for people: what is there, and what is not.
func (r *Rights) String() string {
	var has, lacks []string
	for _, t := range r.Tried {
		if t.Err == nil {
			has = append(has, t.Capability)
		} else {
			lacks = append(lacks, fmt.Sprintf("without %s %s", t.Capability, t.Without))
		}
	}
	if len(has) == 0 {
		has = []string{"none"}
	}
	return strings.Join(append([]string{strings.Join(has, ", ")}, lacks...), "; ")
}

// RootLacks returns the capabilities that lack a process of root, and one that may use the files of
// others but not act as them. An ordinary user needs none.
func (r *Rights) RootLacks() (capabilities []string) {
	if r.Only != nil && !r.Only.Overrides {
		return nil
	}
	for _, t := range r.Tried {
		if t.Err != nil {
			capabilities = append(capabilities, t.Capability)
		}
	}
	return capabilities
}

// Refuses returns why a volume that has callers squashed like this can't be served by a process that is only this
// user, or nil. What promises that callers are certain users, or are told apart, must not be served
// otherwise. A volume that says nothing of users is served as the only user, if that user has no
// right to files of others.
func (u *Only) Refuses(s Squash) error {
	if u == nil {
		return nil
	}
	const fix = "give podnas the capabilities SETUID and SETGID"
	anon := s.Identity(noID, noID, nil)
	switch {
	case s.All && anon.UID == u.UID && (anon.GID == u.GID || s.AnonGID == 0):
		return nil
	case s.All || s.Root || s.AnonUID != 0 || s.AnonGID != 0:
		return fmt.Errorf("podnas can act only as its own user %d and group %d: use allSquash with anonUid %d and anonGid %d, or none of rootSquash, allSquash, anonUid and anonGid; or %s", u.UID, u.GID, u.UID, u.GID, fix)
	case u.Overrides:
		return fmt.Errorf("podnas can't act as the users that call, and its own user %d may use the files of all of them: %s, or run it as an ordinary user without DAC_OVERRIDE", u.UID, fix)
	}
	return nil
}

// probeIdentities tests whether threads of this process can act as other users. The error is
// a *disk.NeedsError.
func probeIdentities() error {
	answer := make(chan error)
	go func() {
		runtime.LockOSThread() // for good: the thread ends with the goroutine
		answer <- become(&Identity{UID: otherUser(), GID: otherUser()})
	}()
	if err := <-answer; err != nil {
		return &disk.NeedsError{What: "threads can't act as other users", Fix: "run as root with the capabilities SETUID and SETGID", Err: err}
	}
	return nil
}

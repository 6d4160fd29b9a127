package actas

import (
	"errors"
	"fmt"
	"runtime"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Users runs functions as the user of a call, so that the kernel checks mode bits, ACLs,
// sticky and setgid directories. The goroutine of a call is locked to its thread, the thread
// gets the user's identity, and after the function its own again.
//
// A thread for each user, or threads that keep their last identity, save those system calls
// but take two switches between threads, which cost more: docs/internals/tried.md.
type Users struct {
	self Identity // the process's own
	root bool     // the process runs as root, and its groups don't matter
	only bool     // the process can act as self alone, and does everything as self
}

// Thread is a thread that acts as a user. Methods that the kernel must check the user's rights for
// take one: only Users.As has one of the caller, and AsProcess one of the process. The zero Thread
// acts as nobody, and those methods panic.
type Thread struct {
	acts bool
	user bool // as a user, and the goroutine is locked to it
}

// AsProcess returns any goroutine's thread, outside of Users.As: it acts as the process.
func AsProcess() Thread { return Thread{acts: true} }

// MustAct panics if the thread acts as nobody.
func (t Thread) MustAct() {
	if !t.acts {
		panic("actas: no thread that acts as the caller")
	}
}

// ErrIdentity means that a thread could not get the identity of a user.
var ErrIdentity = errors.New("can't act as the user")

// NewUsers returns Users. If only is not nil, the process can act as that user alone, and all is
// done so. It sets the umask of the process to 0: clients apply their own, and the kernel applies
// default ACLs.
func NewUsers(only *Only) *Users {
	unix.Umask(0)
	u := &Users{root: isRoot(), self: Identity{UID: uint32(unix.Geteuid()), GID: uint32(unix.Getegid())}}
	if only != nil {
		u.self, u.only = Identity{UID: only.UID, GID: only.GID}, true
		return u
	}
	if groups, err := unix.Getgroups(); err == nil && !u.root {
		for _, g := range groups[:min(len(groups), GroupsMax)] {
			u.self.groups[u.self.n] = uint32(g)
			u.self.n++
		}
	}
	return u
}

// Identity returns as whom a call is done in a volume that has callers squashed like this.
func (u *Users) Identity(s Squash, uid, gid uint32, groups []uint32) Identity {
	if u.only {
		return u.self
	}
	return s.Identity(uid, gid, groups)
}

// Only reports whether all calls are done as one user, who may not be root.
func (u *Users) Only() bool { return u.only }

// IsProcess reports whether any goroutine can act with an identity, because it is
// root's, or that of the only user.
func (u *Users) IsProcess(id *Identity) bool {
	return u.only || u.root && id.UID == 0 && id.GID == 0
}

// As runs do with an identity, on this goroutine. The error is do's, or ErrIdentity, without
// do. A call of As in do would end the outer one.
//
// Nothing but do runs on the thread meanwhile: the goroutine is locked to it, and the Go runtime
// starts no threads from one to which a goroutine is locked, as they would inherit its identity.
func (u *Users) As(id *Identity, do func(Thread) error) error {
	if u.IsProcess(id) {
		return do(AsProcess())
	}
	runtime.LockOSThread()
	defer u.leave()
	if err := become(id); err != nil {
		return fmt.Errorf("%w: %v", ErrIdentity, err) // which is no error of a file
	}
	return do(Thread{acts: true, user: true})
}

// leave gives the thread the process's identity again. As long as that fails, which is for want of
// memory, nothing else may run on the thread.
func (u *Users) leave() {
	for u.becomeSelf() != nil {
		time.Sleep(time.Millisecond)
	}
	runtime.UnlockOSThread()
}

// becomeSelf leaves root the groups of the last caller, as they don't matter.
func (u *Users) becomeSelf() error {
	if u.root {
		return becomeUser(&u.self)
	}
	return become(&u.self)
}

// isRoot reports whether the process is root with the capabilities that override
// file permissions, so that its groups don't matter.
func isRoot() bool {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	const passing = 1<<unix.CAP_CHOWN | 1<<unix.CAP_DAC_OVERRIDE | 1<<unix.CAP_FOWNER | 1<<unix.CAP_FSETID
	return unix.Geteuid() == 0 && unix.Getegid() == 0 && unix.Capget(&header, &data[0]) == nil && data[0].Effective&passing == passing
}

// GroupsMax is the maximum number of supplementary groups in a credential, RFC
// 5531 appendix A.
const GroupsMax = 16

// Identity is the user of a call. It is comparable.
type Identity struct {
	UID, GID uint32
	groups   [GroupsMax]uint32
	n        int
}

// noID is (uid_t)-1, with which setfsuid(2) and chown(2) change nothing. As an
// identity it would leave the thread's identity unchanged.
const noID = 1<<32 - 1

// anonymous is used if Squash.AnonUID or AnonGID is 0.
const anonymous = 65534

// Squash says which callers of a volume become its anonymous user. With the zero Squash none does.
type Squash struct {
	Root, All        bool   // callers that are root, or all
	AnonUID, AnonGID uint32 // the anonymous user and group; 0 stands for 65534
}

// Identity returns the identity of a caller.
func (s Squash) Identity(uid, gid uint32, groups []uint32) Identity {
	anonUID, anonGID := s.AnonUID, s.AnonGID
	if anonUID == 0 || anonUID == noID {
		anonUID = anonymous
	}
	if anonGID == 0 || anonGID == noID {
		anonGID = anonymous
	}
	if uid == noID || gid == noID || s.All {
		return Identity{UID: anonUID, GID: anonGID}
	}
	id := Identity{UID: uid, GID: gid}
	if s.Root {
		if uid == 0 {
			id.UID = anonUID
		}
		if gid == 0 {
			id.GID = anonGID
		}
	}
	for _, g := range groups {
		if g == noID || s.Root && g == 0 || id.n == GroupsMax {
			continue
		}
		id.groups[id.n] = g
		id.n++
	}
	return id
}

// become changes the identity of the calling thread alone: x/sys changes the
// thread, package syscall the whole process. setfsuid(2) and setfsgid(2) fail
// silently, so become checks the result. A user other than 0 loses the
// capabilities that override file permissions, and 0 regains them,
// capabilities(7).
func become(id *Identity) error {
	if _, _, errno := unix.RawSyscall(unix.SYS_SETGROUPS, uintptr(id.n), uintptr(unsafe.Pointer(&id.groups)), 0); errno != 0 {
		return fmt.Errorf("setgroups: %w", errno)
	}
	return becomeUser(id)
}

// becomeUser is become without the supplementary groups.
func becomeUser(id *Identity) error {
	if err := setfsid(unix.SYS_SETFSGID, id.GID); err != nil {
		return fmt.Errorf("setfsgid %d: %w", id.GID, err)
	}
	if err := setfsid(unix.SYS_SETFSUID, id.UID); err != nil {
		return fmt.Errorf("setfsuid %d: %w", id.UID, err)
	}
	return nil
}

func setfsid(trap uintptr, id uint32) error {
	_, _, _ = unix.RawSyscall(trap, uintptr(id), 0, 0)
	if now, _, _ := unix.RawSyscall(trap, uintptr(noID), 0, 0); uint32(now) != id {
		return unix.EPERM
	}
	return nil
}

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

package actas

import (
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

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

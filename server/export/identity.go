package export

import (
	"fmt"
	"runtime"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"
)

// GroupsMax is how many supplementary groups a credential carries, RFC 5531
// appendix A.
const GroupsMax = 16

// Identity is who a call is made for. It can be compared.
type Identity struct {
	UID, GID uint32
	groups   [GroupsMax]uint32
	n        int
}

// noID is (uid_t)-1, which setfsuid(2) takes for a question and chown(2) for no
// change. Taken as an identity it would leave the thread who it was.
const noID = 1<<32 - 1

// anonymous is what Options.AnonUID and AnonGID of 0 stand for.
const anonymous = 65534

// Identity is who a caller is in the volume.
func (o *Options) Identity(uid, gid uint32, groups []uint32) Identity {
	anonUID, anonGID := o.AnonUID, o.AnonGID
	if anonUID == 0 || anonUID == noID {
		anonUID = anonymous
	}
	if anonGID == 0 || anonGID == noID {
		anonGID = anonymous
	}
	if uid == noID || gid == noID || o.AllSquash {
		return Identity{UID: anonUID, GID: anonGID}
	}
	id := Identity{UID: uid, GID: gid}
	if o.RootSquash {
		if uid == 0 {
			id.UID = anonUID
		}
		if gid == 0 {
			id.GID = anonGID
		}
	}
	for _, g := range groups {
		if g == noID || o.RootSquash && g == 0 || id.n == GroupsMax {
			continue
		}
		id.groups[id.n] = g
		id.n++
	}
	return id
}

// Workers are threads that act as whoever a call is made for, so that mode bits,
// ACLs, sticky and setgid directories are the kernel's work. Each keeps its
// identity until a call has another, since switching costs as much as a system
// call or two.
type Workers struct {
	jobs chan job
	wg   sync.WaitGroup
	root bool // so is all of the process, and no group matters
	// spare has a place for each job of root that is under way on an ordinary
	// goroutine: to wake a thread that keeps an identity takes longer.
	spare chan struct{}
}

// Job is work for a thread with an identity.
type Job interface {
	// Run does it. The error is not nil if the thread could not take the
	// identity; Run must then touch nothing.
	Run(error)
}

type job struct {
	id Identity
	Job
}

// NewWorkers starts n threads. It sets the umask of the process to 0: a client
// has applied its own, and default ACLs are the kernel's affair.
func NewWorkers(n int) *Workers {
	unix.Umask(0)
	w := &Workers{jobs: make(chan job, n), root: isRoot(), spare: make(chan struct{}, n)}
	for range n {
		w.start()
	}
	return w
}

// Do runs a job as somebody: on a thread with that identity, or for root on any. It
// waits while all threads are busy and as many jobs wait.
func (w *Workers) Do(id Identity, do Job) {
	if w.Spare(&id) {
		select {
		case w.spare <- struct{}{}:
			w.wg.Add(1)
			go w.run(do)
			return
		default:
		}
	}
	w.jobs <- job{id, do}
}

func (w *Workers) run(do Job) {
	defer w.wg.Done()
	defer func() { <-w.spare }()
	do.Run(nil)
}

// Spare tells whether any goroutine can do what is to be done with an identity: it
// is root's.
func (w *Workers) Spare(id *Identity) bool { return w.root && id.UID == 0 && id.GID == 0 }

// isRoot tells whether the process is root with the capabilities that pass the
// permissions of files, so that its groups don't matter.
func isRoot() bool {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	const passing = 1<<unix.CAP_CHOWN | 1<<unix.CAP_DAC_OVERRIDE | 1<<unix.CAP_DAC_READ_SEARCH | 1<<unix.CAP_FOWNER | 1<<unix.CAP_FSETID
	return unix.Geteuid() == 0 && unix.Getegid() == 0 && unix.Capget(&header, &data[0]) == nil && data[0].Effective&passing == passing
}

// Close ends the threads after the work that was handed to them.
func (w *Workers) Close() {
	close(w.jobs)
	w.wg.Wait()
}

func (w *Workers) start() { w.wg.Go(w.work) }

// work is one thread. It never unlocks the thread: when the goroutine ends, the
// Go runtime ends the thread, and no other code ever runs with its identity.
func (w *Workers) work() {
	runtime.LockOSThread()
	dropSysResource()
	var current Identity // none before the first job
	known := false
	for j := range w.jobs {
		if !known || current != j.id {
			if err := become(&j.id); err != nil {
				w.start() // in place of this thread, whose identity is not known
				j.Run(err)
				return
			}
			current, known = j.id, true
		}
		j.Run(nil)
	}
}

// become changes the identity of the calling thread alone: x/sys calls for the
// thread, where package syscall's would for the process. setfsuid(2) and
// setfsgid(2) fail silently, so both are asked what came of it. A user other
// than 0 loses the capabilities that pass file permissions, and 0 gets them back,
// capabilities(7).
func become(id *Identity) error {
	if _, _, errno := unix.RawSyscall(unix.SYS_SETGROUPS, uintptr(id.n), uintptr(unsafe.Pointer(&id.groups)), 0); errno != 0 {
		return fmt.Errorf("setgroups: %w", errno)
	}
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

// dropSysResource takes CAP_SYS_RESOURCE from the calling thread: with it, ext4
// lets a write pass the project's limit. Without the right to, nothing is lost.
func dropSysResource() {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if _, _, errno := unix.RawSyscall(unix.SYS_CAPGET, uintptr(unsafe.Pointer(&header)), uintptr(unsafe.Pointer(&data)), 0); errno != 0 {
		return
	}
	const bit = 1 << unix.CAP_SYS_RESOURCE
	data[0].Effective &^= bit
	data[0].Permitted &^= bit
	_, _, _ = unix.RawSyscall(unix.SYS_CAPSET, uintptr(unsafe.Pointer(&header)), uintptr(unsafe.Pointer(&data)), 0)
}

//go:build vm

package vm_test

import (
	"fmt"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

// identity is whom a test acts as.
type identity struct {
	uid, gid int
	groups   []int
}

// actAs starts a thread that is a user's, as a process of that user would be:
// real, effective and file system ids, groups, and no capabilities but for root.
// What it returns runs a function there. Starting a program for each would take
// longer than all the test does.
func actAs(t *testing.T, id identity) func(func() error) error {
	t.Helper()
	jobs, results := make(chan func() error), make(chan error)
	go func() {
		// The identity is the thread's, and the thread ends with the goroutine.
		runtime.LockOSThread()
		err := id.become()
		for do := range jobs {
			if err != nil {
				results <- err
				continue
			}
			results <- do()
		}
	}()
	t.Cleanup(func() { close(jobs) })
	return func(do func() error) error {
		jobs <- do
		return <-results
	}
}

// become changes the calling thread alone: the package syscall and glibc would
// change all of the process.
func (id identity) become() error {
	if err := unix.Setgroups(id.groups); err != nil {
		return fmt.Errorf("setgroups %v: %w", id.groups, err)
	}
	for _, call := range []struct {
		name string
		trap uintptr
		id   int
	}{{"setresgid", unix.SYS_SETRESGID, id.gid}, {"setresuid", unix.SYS_SETRESUID, id.uid}} {
		n := uintptr(call.id)
		if _, _, errno := unix.RawSyscall(call.trap, n, n, n); errno != 0 {
			return fmt.Errorf("%s %d: %w", call.name, call.id, errno)
		}
	}
	return nil
}

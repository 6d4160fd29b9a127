// Package leaks fails the tests of a package that leave something open behind: a descriptor,
// a goroutine, or a thread that acts as another user.
package leaks

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"runtime/pprof"
	"strconv"
	"strings"
	"testing"
	"time"
)

// wait is how long what ends by itself may take after the last test.
const wait = 20 * time.Second

// Main is the TestMain of a package.
func Main(m *testing.M) {
	before := take()
	code := m.Run()
	if code == 0 && !fuzzing() {
		code = check(before)
	}
	os.Exit(code)
}

// fuzzing reports whether the process fuzzes: then the testing package has goroutines and
// processes of its own.
func fuzzing() bool {
	for _, name := range []string{"test.fuzz", "test.fuzzworker"} {
		if f := flag.Lookup(name); f != nil && f.Value.String() != "" && f.Value.String() != "false" {
			return true
		}
	}
	return false
}

// state is what a process has open.
type state struct {
	descriptors map[string]string // what each leads to
	goroutines  int
	users       map[string]int // threads by the user that they act as
}

func take() state {
	s := state{descriptors: map[string]string{}, goroutines: runtime.NumGoroutine(), users: map[string]int{}}
	links, _ := filepath.Glob("/proc/self/fd/*")
	for _, link := range links {
		// What is closed by now, like the one of the directory itself, has no target.
		if target, err := os.Readlink(link); err == nil && !strings.HasPrefix(target, "anon_inode:") {
			s.descriptors[filepath.Base(link)] = target
		}
	}
	tasks, _ := filepath.Glob("/proc/self/task/*/status")
	for _, task := range tasks {
		if filepath.Base(filepath.Dir(task)) == strconv.Itoa(os.Getpid()) {
			continue // Go can't end the main thread, and parks it for good instead
		}
		status, _ := os.ReadFile(task) // none if the thread has ended
		for line := range strings.Lines(string(status)) {
			if fields := strings.Fields(line); len(fields) == 5 && fields[0] == "Uid:" {
				s.users[fields[4]]++ // the one for files, proc_pid_status(5)
			}
		}
	}
	return s
}

// check returns 1, and tells why, if more is open than before.
func check(before state) int {
	var left []string
	for deadline := time.Now().Add(wait); ; time.Sleep(20 * time.Millisecond) {
		if left = more(before, take()); len(left) == 0 {
			return 0
		}
		if time.Now().After(deadline) {
			break
		}
	}
	fmt.Fprintf(os.Stderr, "left behind by the tests:\n  %s\n", strings.Join(left, "\n  "))
	_ = pprof.Lookup("goroutine").WriteTo(os.Stderr, 1)
	return 1
}

func more(before, after state) (left []string) {
	if len(after.descriptors) > len(before.descriptors) {
		for fd, target := range after.descriptors {
			if before.descriptors[fd] != target {
				left = append(left, fmt.Sprintf("descriptor %s of %s", fd, target))
			}
		}
	}
	if n := after.goroutines - before.goroutines; n > 0 {
		left = append(left, fmt.Sprintf("%d goroutines", n))
	}
	for user, threads := range after.users {
		if before.users[user] == 0 {
			left = append(left, fmt.Sprintf("%d threads that act as user %s", threads, user))
		}
	}
	return left
}

package leaks

import (
	"net"
	"os"
	"runtime"
	"strings"
	"syscall"
	"testing"
)

// What is open shows, and no more once it is closed.
func TestMore(t *testing.T) {
	before := take()
	f, err := os.Open("/")
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	end, ended := make(chan struct{}), make(chan struct{})
	acts := make(chan struct{})
	var act func()
	act = func() {
		runtime.LockOSThread()
		if syscall.Gettid() == os.Getpid() { // the main thread does not end with the goroutine
			defer runtime.UnlockOSThread()
			other := make(chan struct{})
			go func() {
				act()
				close(other)
			}()
			<-other
			return
		}
		if os.Getuid() == 0 {
			_, _, _ = syscall.RawSyscall(syscall.SYS_SETFSUID, 12345, 0, 0)
		}
		close(acts)
		<-end
		close(ended)
	}
	go act()
	<-acts
	left := strings.Join(more(before, take()), "\n")
	want := []string{"of /", "of socket:", " goroutines"}
	if os.Getuid() == 0 {
		want = append(want, "act as user 12345")
	}
	for _, want := range want {
		if !strings.Contains(left, want) {
			t.Errorf("no %q in %s", want, left)
		}
	}
	f.Close()
	l.Close()
	close(end)
	<-ended
	if check(before) != 0 {
		t.Error("told of what is closed")
	}
}

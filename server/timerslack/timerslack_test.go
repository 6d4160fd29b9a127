package timerslack

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// inChild makes this program one that calls Set, and prints its arguments and the slack of its
// threads.
const inChild = "PODNAS_TEST_TIMERSLACK"

func TestMain(m *testing.M) {
	if os.Getenv(inChild) == "" {
		os.Exit(m.Run())
	}
	Set()
	threads, err := os.ReadDir("/proc/self/task")
	for _, thread := range threads {
		slack, readErr := os.ReadFile("/proc/" + thread.Name() + "/timerslack_ns") // the process's own takes no right
		if readErr == nil {
			fmt.Println(strings.TrimSpace(string(slack)))
		}
	}
	fmt.Println(os.Args[1:], len(threads) > 1, err)
	os.Exit(0)
}

// All threads have it, the scheduler's monitor too, and the program has its arguments.
func TestSet(t *testing.T) {
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if os.Getuid() != 0 {
		t.Skip("only root may look at the timer slack of threads")
	}
	run := exec.Command(program, "an argument")
	run.Env = append(os.Environ(), inChild+"=1")
	run.Stderr = os.Stderr
	out, err := run.Output()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	last := len(lines) - 1
	if lines[last] != "[an argument] true <nil>" {
		t.Errorf("the program prints %q", lines[last])
	}
	if last == 0 {
		t.Error("no thread's slack is known")
	}
	for _, slack := range lines[:last] {
		if slack != fmt.Sprint(long.Nanoseconds()) {
			t.Errorf("a thread has a timer slack of %s ns", slack)
		}
	}
}

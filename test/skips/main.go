// Command skips runs a suite of Go tests and says at its end which tests did not run, and
// why not, and which failed:
//
//	go run ./test/skips go test -json ./...
//
// Where the variable CI is set such a test fails the suite, unless expected.go has it. So
// does a test binary that found no test to run.
//
// It reads what the command prints: the events of go test -json, which it prints as go test
// without -v would, and lines as go test -v prints them, which it passes on. The latter come
// from suites whose tests run in a guest, or in another process whose output a test logs.
package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
)

func main() {
	if len(os.Args) < 2 {
		fmt.Fprintln(os.Stderr, "usage: skips COMMAND...")
		os.Exit(2)
	}
	if err := run(os.Args[1:], os.Stdout, os.Getenv("CI") != ""); err != nil {
		fmt.Fprintln(os.Stderr, "skips:", err)
		os.Exit(1)
	}
}

// run runs a command. Its error is that the command failed, or that a test did not run which
// had to.
func run(command []string, out io.Writer, ci bool) error {
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Stdin, cmd.Stderr = os.Stdin, os.Stderr
	printed, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	// Ctrl-C goes to the command too. It ends when it has cleaned up, and this after it.
	interrupts := make(chan os.Signal, 1)
	signal.Notify(interrupts, os.Interrupt, syscall.SIGTERM)
	defer signal.Stop(interrupts)
	if err := cmd.Start(); err != nil {
		return err
	}
	go func() {
		for s := range interrupts {
			if s == syscall.SIGTERM {
				_ = cmd.Process.Signal(s)
			}
		}
	}()
	s := newSuite(out)
	readErr := s.read(printed)
	if err := errors.Join(readErr, cmd.Wait()); err != nil {
		_ = s.report(false)
		return fmt.Errorf("%s: %w", command[0], err)
	}
	return s.report(ci)
}

// event is a line of go test -json: see go doc test2json.
type event struct {
	Action, Package, Test, Output string
}

// suite is what is known of the tests so far.
type suite struct {
	out      io.Writer
	packages map[string]*results
	skips    map[skip]bool
	failed   []failure
	empty    int // how many test binaries found no test to run
}

func newSuite(out io.Writer) *suite {
	return &suite{out: out, packages: make(map[string]*results), skips: make(map[skip]bool)}
}

// read reads all that a suite prints.
func (s *suite) read(from io.Reader) error {
	lines := bufio.NewReader(from)
	for {
		line, err := lines.ReadBytes('\n')
		var e event
		if bytes.HasPrefix(line, []byte(`{"`)) && json.Unmarshal(line, &e) == nil && e.Action != "" {
			s.add(&e)
		} else {
			fmt.Fprintf(s.out, "%s", line)
			s.of("").scan(s, "", string(line))
		}
		if errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
	}
}

func (s *suite) of(pkg string) *results {
	if s.packages[pkg] == nil {
		s.packages[pkg] = newResults(pkg)
	}
	return s.packages[pkg]
}

func (s *suite) add(e *event) {
	p := s.of(e.Package)
	switch e.Action {
	case "build-output":
		fmt.Fprint(s.out, e.Output)
	case "output":
		p.print(e.Test, e.Output)
		p.scan(s, e.Test, e.Output)
	case "pass", "skip":
		if e.Test != "" {
			delete(p.output, e.Test)
			return
		}
		p.finish(s.out, false)
		delete(s.packages, e.Package)
	case "fail":
		if e.Test != "" {
			s.failed = append(s.failed, failure{pkg: e.Package, test: e.Test})
		} else {
			p.finish(s.out, true)
			delete(s.packages, e.Package)
		}
	}
}

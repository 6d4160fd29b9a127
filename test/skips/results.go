package main

import (
	"fmt"
	"io"
	"regexp"
	"strings"
)

// results is what a package's tests have printed. Tests that were printed as lines, not as
// events, are one package without a name.
type results struct {
	name   string
	order  []string            // the tests, as they began
	output map[string][]string // of those that have not passed, in pieces; "" is the package's own

	streams map[string]*stream // by the test that an event is of; "" is that of lines
	said    map[string]string  // the last line each test logged
}

// stream is what one test prints, and those whose output it logs. Tests that run beside each other may each have begun a
// line.
type stream struct {
	line    string // its beginning, while the rest has not come
	running string // the test that printed last
}

func newResults(name string) *results {
	return &results{name: name, output: make(map[string][]string), streams: make(map[string]*stream), said: make(map[string]string)}
}

// print keeps what a test printed until it is known how the test ends.
func (r *results) print(test, text string) {
	if _, ok := r.output[test]; !ok {
		r.order = append(r.order, test)
	}
	r.output[test] = append(r.output[test], text)
}

// finish prints what go test without -v does: a line for a package that passes, and for one
// that fails all that its failed tests printed.
func (r *results) finish(out io.Writer, failed bool) {
	if failed {
		for _, test := range r.order {
			if test != "" {
				fmt.Fprint(out, strings.Join(r.output[test], ""))
			}
		}
		fmt.Fprint(out, strings.Join(r.output[""], ""))
		return
	}
	for line := range strings.Lines(strings.Join(r.output[""], "")) {
		if strings.HasPrefix(line, "ok ") || strings.HasPrefix(line, "? ") {
			fmt.Fprint(out, line)
		}
	}
}

var (
	ended  = regexp.MustCompile(`^--- (PASS|FAIL|SKIP): (\S+) \(`)
	begins = regexp.MustCompile(`^=== (?:RUN|CONT|NAME) +(\S+)`)
	logs   = regexp.MustCompile(`^[^ :]+\.go:\d+: (.*)`)
	skips  = regexp.MustCompile(`^--- SKIP: (\S+) \(`)
)

// end looks for a test that has ended, in lines that are printed already, and keeps what one
// that failed has printed: it may be far from the end of a long output.
func (r *results) end(s *suite, running, line string) {
	m := ended.FindStringSubmatch(strings.TrimLeft(line, " "))
	switch {
	case m == nil:
		r.print(running, line+"\n")
	case line[0] != ' ': // one test runs at a time in such a suite
		if m[1] == "FAIL" {
			s.failed = append(s.failed, failure{test: m[2], order: r.order, output: r.output})
		}
		r.order, r.output = nil, make(map[string][]string)
	case m[1] != "FAIL" && len(s.failed) > 0: // its subtests, told after it
		delete(s.failed[len(s.failed)-1].output, m[2])
	}
}

// scan looks for tests that skip, at any depth: a test that logs the output of others
// indents it.
func (r *results) scan(s *suite, test, text string) {
	from := r.streams[test]
	if from == nil {
		from = &stream{running: test}
		r.streams[test] = from
	}
	from.line += text
	for {
		line, rest, ok := strings.Cut(from.line, "\n")
		if !ok {
			return
		}
		from.line = rest
		if r.name == "" {
			r.end(s, from.running, line)
		}
		line = strings.TrimSpace(line)
		if m := begins.FindStringSubmatch(line); m != nil {
			from.running = m[1]
		} else if m := skips.FindStringSubmatch(line); m != nil {
			s.skips[skip{r.name, m[1], r.said[m[1]]}] = true
		} else if m := logs.FindStringSubmatch(line); m != nil {
			r.said[from.running] = m[1]
		} else if line == "testing: warning: no tests to run" {
			s.empty++
		}
	}
}

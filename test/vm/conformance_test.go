//go:build vm

package vm_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"maps"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// A conformance suite, put to a server that is not podnas. It is a check on the suite: what
// that server does otherwise is either its fault, or the suite asks for what it may not ask for.

type suiteResult struct{ outcome, said string }

var (
	suiteRuns = regexp.MustCompile(`^ *=== (?:RUN|NAME) +TestExternal/([^/]+/[^/]+)(/.*)?$`)
	suiteEnds = regexp.MustCompile(`^ *--- (PASS|FAIL|SKIP): TestExternal/([^/]+/[^/]+) \(`)
)

// runSuite runs the suite whose program run.sh has built, but for the tests of skip, and
// returns what came of it, by the names of the tests.
func runSuite(t *testing.T, skip map[string]string, flags ...string) map[string]suiteResult {
	t.Helper()
	program := os.Getenv("NFSTEST")
	if program == "" {
		t.Fatal("no NFSTEST in the environment: this test is run by test/vm/run.sh")
	}
	var not []string
	for name := range skip {
		not = append(not, "^TestExternal$/^"+strings.ReplaceAll(name, "/", "$/^")+"$")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Minute)
	defer cancel()
	args := append([]string{"-test.v", "-test.run", "^TestExternal$", "-test.skip", strings.Join(not, "|")}, flags...)
	out, err := exec.CommandContext(ctx, program, args...).CombinedOutput()
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	results := suiteResults(out)
	if len(results) < 80 {
		t.Errorf("only %d tests of the suite have a result:\n%s", len(results), tail(out, 20))
	}
	return results
}

// suiteResults reads what the suite printed, by the names of its tests.
func suiteResults(out []byte) map[string]suiteResult {
	said, results := map[string]string{}, map[string]suiteResult{}
	running := ""
	lines := bufio.NewScanner(bytes.NewReader(out))
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		if m := suiteRuns.FindStringSubmatch(lines.Text()); m != nil {
			running = m[1]
			if m[2] != "" {
				said[running] += m[2] + "\n"
			}
		} else if m := suiteEnds.FindStringSubmatch(lines.Text()); m != nil {
			results[m[2]] = suiteResult{outcome: m[1], said: said[m[2]]}
		} else {
			said[running] += lines.Text() + "\n"
		}
	}
	return results
}

// judge compares the results with what is known of the server.
func judge(t *testing.T, server string, results map[string]suiteResult, differs map[string]string) {
	t.Helper()
	for _, name := range slices.Sorted(maps.Keys(results)) {
		switch why, known := differs[name]; {
		case results[name].outcome == "FAIL" && known:
			t.Logf("known: %s: %s", name, why)
		case results[name].outcome == "FAIL":
			t.Errorf("%s differs in %s, which is new: find out who is wrong, it or the suite\n%s", server, name, results[name].said)
		case results[name].outcome == "SKIP": // as go test -v says it, for test/skips
			t.Logf("\n=== RUN   TestExternal/%[1]s\n%[2]s--- SKIP: TestExternal/%[1]s (0.00s)", name, results[name].said)
		case known:
			t.Logf("%s no longer differs in %s: %s", server, name, why)
		}
	}
	for name := range differs {
		if _, ran := results[name]; !ran {
			t.Errorf("the suite has no test %s any more", name)
		}
	}
}

// tail is the last n lines of what a program printed.
func tail(out []byte, n int) string {
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}

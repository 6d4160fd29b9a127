package main

import (
	"bytes"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// suiteFiles are a module whose tests pass, fail and skip: alone, in a subtest, in parallel,
// and in another process whose output is logged.
var suiteFiles = map[string]string{
	"go.mod": "module example.com/suite\n\ngo 1.26\n",
	"good/good_test.go": `package good

import "testing"

func TestRuns(t *testing.T) { t.Log("fine") }

func TestAlone(t *testing.T) { t.Skip("there is no disk") }

func TestParent(t *testing.T) {
	for _, name := range []string{"one", "two"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if name == "two" {
				t.Skipf("there is no %s:\nnot anywhere", name)
			}
		})
	}
}

func TestBare(t *testing.T) { t.SkipNow() }

func TestExternal(t *testing.T) { t.Skip("named skip: external: no server is given by -nfs") }
`,
	"inner/inner_test.go": `package inner

import (
	"os"
	"os/exec"
	"testing"
)

func TestOuter(t *testing.T) {
	if os.Getenv("INSIDE") == "" {
		cmd := exec.Command(os.Args[0], "-test.v", "-test.run", "^TestOuter$")
		cmd.Env = append(os.Environ(), "INSIDE=1")
		out, err := cmd.CombinedOutput()
		t.Logf("in a process of its own:\n%s", out)
		if err != nil {
			t.Error(err)
		}
		return
	}
	t.Run("XFS", func(t *testing.T) { t.Skip("there is no mkfs.xfs") })
	t.Run("ext4", func(t *testing.T) {})
}
`,
	"bad/bad_test.go": `package bad

import "testing"

func TestPasses(t *testing.T) { t.Log("not of interest") }

func TestFails(t *testing.T) {
	t.Run("not", func(t *testing.T) { t.Log("said by one that passes") })
	t.Run("here", func(t *testing.T) { t.Error("this is wrong") })
}
`,
}

// enterSuite makes the module, and is in its folder until the test ends.
func enterSuite(t *testing.T) {
	t.Helper()
	dir := t.TempDir()
	for name, content := range suiteFiles {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	t.Chdir(dir)
}

func goTest(ci bool, args ...string) (text string, err error) {
	var out bytes.Buffer
	err = run(append([]string{"go", "test", "-vet=off"}, args...), &out, ci)
	return out.String(), err
}

func TestSuite(t *testing.T) {
	enterSuite(t)
	t.Run("skips", testSkips)
	t.Run("output", testOutput)
	t.Run("failed", testFailed)
	t.Run("nothing to run", testNothingToRun)
}

const found = `
Did not run: 4 tests, because
  (no reason was given)
      TestBareGOOD
  there is no disk
      TestAloneGOOD
  there is no mkfs.xfs
      TestOuter/XFSINNER
  there is no two:
      TestParent/twoGOOD
Expected not to run: 1 tests (test/skips/expected.go says why)
`

func testSkips(t *testing.T) {
	for _, tt := range []struct {
		name string
		flag string
		want string
	}{
		{"events", "-json", strings.NewReplacer("GOOD", "  example.com/suite/good", "INNER", "  example.com/suite/inner").Replace(found)},
		{"lines", "-v", strings.NewReplacer("GOOD", "", "INNER", "").Replace(found)},
	} {
		t.Run(tt.name, func(t *testing.T) {
			text, err := goTest(false, tt.flag, "./good", "./inner")
			if err != nil || !strings.HasSuffix(text, tt.want) {
				t.Errorf("%v, printed\n%s\nwant at its end%s", err, text, tt.want)
			}
			text, err = goTest(true, tt.flag, "./good", "./inner")
			if err == nil || !strings.Contains(err.Error(), "4 tests did not run") || !strings.HasSuffix(text, tt.want) {
				t.Errorf("in CI: %v, printed\n%s", err, text)
			}
			if text, err = goTest(true, tt.flag, "-run", "TestRuns|TestExternal", "./good"); err != nil {
				t.Errorf("in CI, none skips: %v, printed\n%s", err, text)
			}
		})
	}
}

// A package that passes is one line, and one that fails says what go test without -v does.
func testOutput(t *testing.T) {
	text, err := goTest(false, "-json", "./...")
	if exit := (*exec.ExitError)(nil); !errors.As(err, &exit) {
		t.Errorf("%v, want %T", err, exit)
	}
	for _, part := range []string{"--- FAIL: TestFails", "this is wrong", "FAIL\texample.com/suite/bad", "ok  \texample.com/suite/good", "there is no disk"} {
		if !strings.Contains(text, part) {
			t.Errorf("not said: %q", part)
		}
	}
	for _, part := range []string{"not of interest", "fine", "TestPasses", "TestRuns", "{"} {
		if strings.Contains(text, part) {
			t.Errorf("said: %q", part)
		}
	}
	if t.Failed() {
		t.Log(text)
	}
}

// What failed is said once more at the end.
func testFailed(t *testing.T) {
	for flag, want := range map[string]string{
		"-json": "      TestFails  example.com/suite/bad\n",
		"-v":    "    bad_test.go:9: this is wrong\n",
	} {
		text, err := goTest(false, flag, "./bad", "./good", "-run", "TestFails|TestPasses|TestRuns")
		if _, failed, _ := strings.Cut(text, "\nFailed: "); strings.Contains(failed, "one that passes") {
			t.Errorf("what passed is said with what failed:\n%s", failed)
		}
		if err == nil || !strings.Contains(text, "\nFailed: ") || !strings.HasSuffix(text, want) {
			t.Errorf("%v, printed\n%s\nwant at its end%s", err, text, want)
		}
	}
}

// A test binary that finds nothing to run passes, but not in CI.
func testNothingToRun(t *testing.T) {
	for _, flag := range []string{"-json", "-v"} {
		if text, err := goTest(true, flag, "-run", "TestOfAnOldName", "./good"); err == nil || !strings.Contains(err.Error(), "1 test binaries had no test to run") {
			t.Errorf("in CI with %s: %v, printed\n%s", flag, err, text)
		}
		if text, err := goTest(false, flag, "-run", "TestOfAnOldName", "./good"); err != nil {
			t.Errorf("with %s: %v, printed\n%s", flag, err, text)
		}
	}
}

// A test that has begun a line takes nothing from what those beside it say.
func TestBesideEachOther(t *testing.T) {
	s := newSuite(io.Discard)
	printed := func(test, output string) {
		s.add(&event{Action: "output", Package: "p", Test: test, Output: output})
	}
	printed("TestOther", "=== RUN   TestOther\n")
	printed("TestOther", "half a line")
	printed("TestSkips", "=== RUN   TestSkips\n")
	printed("TestSkips", "    a_test.go:1: there is no disk\n")
	printed("TestOther", " and its end\n")
	printed("TestSkips", "--- SKIP: TestSkips (0.00s)\n")
	if want := (skip{"p", "TestSkips", "there is no disk"}); len(s.skips) != 1 || !s.skips[want] {
		t.Errorf("found %v, want %v", s.skips, want)
	}
}

func TestCommandFails(t *testing.T) {
	var out bytes.Buffer
	if err := run([]string{"sh", "-c", "echo said; exit 3"}, &out, true); err == nil || out.String() != "said\n" {
		t.Errorf("%v, printed %q", err, out.String())
	}
	if err := run([]string{"/no/such/command"}, &out, true); err == nil {
		t.Error("a command that is not there passes")
	}
}

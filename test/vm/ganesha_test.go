//go:build vm

package vm_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestGanesha puts NFS-Ganesha to the conformance suite of nfs/nfstest. It is
// a check on the suite: what another server does otherwise is either its fault,
// or the suite asks for what it may not ask for.
func TestGanesha(t *testing.T) {
	program := os.Getenv("NFSTEST")
	if program == "" {
		t.Fatal("no NFSTEST in the environment: this test is run by test/vm/run.sh (make vm ENGINE=ganesha)")
	}
	export := filepath.Join(xfs, "ganesha")
	if err := errors.Join(os.Mkdir(export, 0o777), os.Chmod(export, 0o777)); err != nil {
		t.Fatal(err)
	}
	g := startGanesha(t, export)
	var skip []string
	for name := range ganeshaNot {
		skip = append(skip, "^TestExternal$/^"+strings.ReplaceAll(name, "/", "$/^")+"$")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Minute)
	defer cancel()
	out, err := exec.CommandContext(ctx, program, "-test.v", "-test.run", "^TestExternal$", "-test.skip", strings.Join(skip, "|"),
		"-nfs", ganeshaNFS, "-mount", ganeshaMount, "-export", export, "-dir", export).CombinedOutput()
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	select {
	case err := <-g.exited:
		t.Errorf("Ganesha ended in the middle of the suite: %v\n%s\n%s", err, tail(out, 10), tail(g.output(t), 20))
	default:
	}
	results := suiteResults(out)
	if len(results) < 80 {
		t.Errorf("only %d tests of the suite have a result:\n%s", len(results), tail(out, 20))
	}
	for _, name := range slices.Sorted(maps.Keys(results)) {
		switch why, known := ganeshaDiffers[name]; {
		case results[name].outcome == "FAIL" && known:
			t.Logf("known: %s: %s", name, why)
		case results[name].outcome == "FAIL":
			t.Errorf("Ganesha %s differs in %s, which is new: find out who is wrong, it or the suite\n%s", g.version, name, results[name].said)
		case results[name].outcome == "SKIP": // as go test -v says it, for test/skips
			t.Logf("\n=== RUN   TestExternal/%[1]s\n%[2]s--- SKIP: TestExternal/%[1]s (0.00s)", name, results[name].said)
		case known:
			t.Logf("Ganesha %s no longer differs in %s: %s", g.version, name, why)
		}
	}
	for name := range ganeshaDiffers {
		if _, ran := results[name]; !ran {
			t.Errorf("the suite has no test %s any more", name)
		}
	}
}

// ganeshaNot are the tests that Ganesha 4.3 can't be put to.
var ganeshaNot = map[string]string{
	"rpc/oversized-record": "Ganesha: it allocates what a record mark of 2 GiB announces, and aborts",
	"handles/forged":       "Ganesha: its handles have no MAC and not all bytes of them are looked at; one that was changed is never answered",
}

// ganeshaDiffers are the tests that Ganesha 4.3 fails, with who is wrong.
var ganeshaDiffers = map[string]string{
	"rpc/unknown-RPC-version":               "Ganesha: it ends the connection, where RFC 5531 (section 9) has RPC_MISMATCH",
	"rpc/unknown-enums":                     "Ganesha: it takes a WRITE whose stable_how is 3",
	"rpc/exact-results":                     "Ganesha: a READDIR whose count has room for no entry gives OK, none, not the end, and 8 bytes too many, where RFC 1813 has TOOSMALL",
	"rpc/fragments":                         "Ganesha: it ends the connection where an integer lies in two fragments (RFC 5531, section 11)",
	"mount/MNT-of-unknown-paths":            "Ganesha: it takes a path as ended by a zero byte",
	"attributes/GETATTR-as-the-disk-has-it": "nobody: it keeps attributes for a minute, as a server may that is alone on its disk",
	"attributes/size-of-what-has-none":      "Ganesha: SETATTR gives BADTYPE, which RFC 1813 has for MKNOD alone",
	"attributes/wcc-data":                   "nobody: it has no attributes of before a WRITE, COMMIT or MKDIR, which RFC 1813 lets a server leave out; clients then forget what they cached",
	"io/seen-on-the-disk":                   "nobody: as attributes/GETATTR-as-the-disk-has-it",
	"remove/LINK-refused":                   "Ganesha: LINK of a directory gives BADTYPE, which RFC 1813 has for MKNOD alone",
	"readdir/bounds":                        "Ganesha: as rpc/exact-results",
	"filesystem/PATHCONF":                   "Ganesha: it says that names may have 1024 bytes and files 8 links, whatever the disk takes",
	"names/more-than-one-component":         "Ganesha: it takes a name with a slash in it for a path",
	"names/outside-of-the-export":           "Ganesha: it follows such names out of the export, and makes a file there",
	"concurrency/own-changes":               "Ganesha: it looks at a directory before and after a change while others change it too",
	"symlinks/not-followed":                 "Ganesha: CREATE over a link and SETATTR of its size give BADTYPE, as attributes/size-of-what-has-none",
	"symlinks/out-of-the-export":            "Ganesha: as symlinks/not-followed",
}

type suiteResult struct{ outcome, said string }

var (
	suiteRuns = regexp.MustCompile(`^=== (?:RUN|NAME) +TestExternal/([^/]+/.+)$`)
	suiteEnds = regexp.MustCompile(`^ *--- (PASS|FAIL|SKIP): TestExternal/([^/]+/[^/]+) \(`)
)

// suiteResults reads what the suite printed, by the names of its tests.
func suiteResults(out []byte) map[string]suiteResult {
	said, results := map[string]string{}, map[string]suiteResult{}
	running := ""
	lines := bufio.NewScanner(bytes.NewReader(out))
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		if m := suiteRuns.FindStringSubmatch(lines.Text()); m != nil {
			running = m[1]
		} else if m := suiteEnds.FindStringSubmatch(lines.Text()); m != nil {
			results[m[2]] = suiteResult{outcome: m[1], said: said[m[2]]}
		} else {
			said[running] += lines.Text() + "\n"
		}
	}
	return results
}

// tail is the last n lines of what a program printed.
func tail(out []byte, n int) string {
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}

// As test/bench/peers.sh has them.
const (
	ganeshaNFS   = "127.0.0.1:20490"
	ganeshaMount = "127.0.0.1:20048"
	ganeshaLog   = "/run/ganesha/log"
)

// ganesha is NFS-Ganesha in the guest, which is the only place to run it: it lets
// clients out of what it exports, as root.
type ganesha struct {
	version string
	exited  chan error
}

func startGanesha(t *testing.T, export string) *ganesha {
	t.Helper()
	g := &ganesha{exited: make(chan error, 1)}
	cmd := exec.Command("bash", "-euc", `source ../bench/peers.sh; register; ganesha "$1"; wait $!`, "peers", export)
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		g.exited <- cmd.Wait()
		close(ended)
	}()
	t.Cleanup(func() {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // it may have ended
		<-ended
	})
	eventually(t, "Ganesha listens", func() bool {
		for _, addr := range []string{ganeshaNFS, ganeshaMount} {
			conn, err := net.Dial("tcp", addr)
			if err != nil {
				return false
			}
			conn.Close()
		}
		return true
	})
	if m := regexp.MustCompile(`Ganesha Version (\S+)`).FindSubmatch(g.output(t)); m != nil {
		g.version = string(m[1])
	}
	return g
}

func (g *ganesha) output(t *testing.T) []byte {
	t.Helper()
	b, err := os.ReadFile(ganeshaLog)
	if err != nil {
		t.Error(err)
	}
	return b
}

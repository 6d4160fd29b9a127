//go:build vm

package vm_test

import (
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"syscall"
	"testing"
)

// TestGanesha puts NFS-Ganesha to the conformance suite of test/conformance/nfstest, to check that suite.
func TestGanesha(t *testing.T) {
	export := filepath.Join(xfs, "ganesha")
	if err := errors.Join(os.Mkdir(export, 0o777), os.Chmod(export, 0o777)); err != nil {
		t.Fatal(err)
	}
	g := startGanesha(t, export)
	results := runSuite(t, ganeshaNot, "-nfs", ganeshaNFS, "-mount", ganeshaMount, "-export", export, "-dir", export)
	select {
	case err := <-g.exited:
		t.Errorf("Ganesha ended in the middle of the suite: %v\n%s", err, tail(g.output(t), 20))
	default:
	}
	judge(t, "Ganesha "+g.version, results, ganeshaDiffers)
}

// ganeshaNot are the tests that Ganesha 4.3 can't be put to.
var ganeshaNot = map[string]string{
	"rpc/oversized-record": "Ganesha: it allocates what a record mark of 2 GiB announces, and aborts",
	"handles/forged":       "Ganesha: its handles have no MAC and not all bytes of them are looked at; one that was changed is never answered",
}

// ganeshaDiffers are the tests that Ganesha 4.3 fails, with who is wrong.
var ganeshaDiffers = map[string]string{
	"rpc/unknown-RPC-version":                "Ganesha: it ends the connection, where RFC 5531 (section 9) has RPC_MISMATCH",
	"rpc/unknown-enums":                      "Ganesha: it takes a WRITE whose stable_how is 3",
	"rpc/exact-results":                      "Ganesha: a READDIR whose count has room for no entry gives OK, none, not the end, and 8 bytes too many, where RFC 1813 has TOOSMALL",
	"rpc/fragments":                          "Ganesha: it ends the connection where an integer lies in two fragments (RFC 5531, section 11)",
	"mount/MNT-of-unknown-paths":             "Ganesha: it takes a path as ended by a zero byte",
	"attributes/GETATTR-as-the-disk-has-it":  "nobody: it keeps attributes for a minute, as a server may that is alone on its disk",
	"attributes/size-of-what-has-none":       "Ganesha: SETATTR gives BADTYPE, which RFC 1813 has for MKNOD alone",
	"attributes/wcc-data":                    "nobody: it has no attributes of before a WRITE, COMMIT or MKDIR, which RFC 1813 lets a server leave out; clients then forget what they cached",
	"io/seen-on-the-disk":                    "nobody: as attributes/GETATTR-as-the-disk-has-it",
	"remove/LINK-refused":                    "Ganesha: LINK of a directory gives BADTYPE, which RFC 1813 has for MKNOD alone",
	"readdir/bounds":                         "Ganesha: as rpc/exact-results",
	"filesystem/PATHCONF":                    "Ganesha: it says that names may have 1024 bytes and files 8 links, whatever the disk takes",
	"names/more-than-one-component":          "Ganesha: it takes a name with a slash in it for a path",
	"names/outside-of-the-export":            "Ganesha: it follows such names out of the export, and makes a file there",
	"concurrency/a-name-that-comes-and-goes": "Ganesha: REMOVE of a name that another client has just removed gives STALE, as if the directory were gone",
	"concurrency/own-changes":                "Ganesha: it looks at a directory before and after a change while others change it too",
	"symlinks/not-followed":                  "Ganesha: CREATE over a link and SETATTR of its size give BADTYPE, as attributes/size-of-what-has-none",
	"symlinks/out-of-the-export":             "Ganesha: as symlinks/not-followed",
	"create/owner-that-may-not-be-set":       "Ganesha: MKDIR says OK and leaves the owner out, and MKNOD leaves what it could not give the owner; RFC 1813 does not say that a create that fails leaves nothing",
	"io/the-largest-file":                    "Ganesha: a READ that would go past 2^63-1 gives FBIG, which RFC 1813 has for changes alone",
	"readdir/cookie-verifier":                "Ganesha: it does not look at the verifier of a cookie, for which RFC 1813 has BAD_COOKIE",
	"readdir/dircount-is-a-hint":             "Ganesha: as rpc/exact-results",
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

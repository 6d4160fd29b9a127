package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/podnas/podnas/internal/doctor"
	"github.com/podnas/podnas/provisioner/control"
	"github.com/podnas/podnas/test/testdisk"
)

// onDisk starts podnas on an ext4 of its own, mounted where it alone sees it, and frozen from the start with
// FROZEN=1. When the test is gone, however it went, the disk is thawed and podnas ended.
const onDisk = `
mount -o loop "$1" "$2" || exit 77
(
	while kill -0 "$3" && kill -0 $$; do sleep 1; done
	fsfreeze --unfreeze "$2"
	kill $$
) </dev/null >/dev/null 2>&1 &
[ -z "$FROZEN" ] || fsfreeze --freeze "$2" || exit 77
shift 3
exec "$@"`

// webProcess is a podnas whose HTTP port is asked.
type webProcess struct {
	*served
	http string // its address
	root string // of its disk, as this process reaches it
	log  *syncBuffer
}

// disk is what podnas is started on.
type disk int

const (
	folder    disk = iota
	freezable      // an ext4 that can be frozen
	frozen         // which is frozen before podnas opens it
)

// startWeb starts podnas and waits until it is ready.
func startWeb(t *testing.T, on disk) *webProcess {
	t.Helper()
	s := execWeb(t, on)
	s.eventually("podnas is ready", func() bool { return s.get("127.0.0.1", "/readyz").code == http.StatusOK })
	return s
}

// execWeb starts podnas.
func execWeb(t *testing.T, on disk) *webProcess {
	t.Helper()
	if on != folder {
		needFreezable(t)
	}
	dir := t.TempDir()
	program, err := builtPodnas()
	mustDo(t, err)
	root := filepath.Join(dir, "disk")
	mustDo(t, os.Mkdir(root, 0o755))
	mustDo(t, os.Mkdir(filepath.Join(dir, "claims"), 0o755))
	s := &webProcess{http: freeAddress(t), root: root, log: &syncBuffer{}}
	nfs := freeAddress(t)
	args := []string{program, "serve", "--standalone", "--root=" + root, "--claims=" + filepath.Join(dir, "claims"), "--listen=" + nfs, "--http=" + s.http}
	if on != folder {
		image := filepath.Join(dir, "image")
		mustDo(t, os.WriteFile(image, nil, 0o600))
		mustDo(t, os.Truncate(image, 64<<20))
		if out, err := exec.Command("mkfs.ext4", "-q", image).CombinedOutput(); err != nil {
			t.Fatalf("mkfs.ext4: %v\n%s", err, out)
		}
		args = append([]string{"unshare", "--mount", "sh", "-c", onDisk, "sh", image, root, fmt.Sprint(os.Getpid())}, args...)
	}
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Stdout, cmd.Stderr = s.log, s.log
	if on == frozen {
		cmd.Env = append(os.Environ(), "FROZEN=1")
	}
	mustDo(t, cmd.Start())
	s.served = &served{t: t, pid: cmd.Process.Pid, nfs: nfs}
	if on != folder {
		s.root = fmt.Sprintf("/proc/%d/root%s", s.pid, root)
	}
	t.Cleanup(func() {
		if on != folder {
			_ = s.freeze("--unfreeze") // it may be thawed
		}
		_ = cmd.Process.Signal(syscall.SIGTERM)
		if err := cmd.Wait(); err != nil || t.Failed() {
			t.Logf("podnas ended: %v\n%s", err, s.log.String())
		}
	})
	s.eventually("podnas answers", func() bool {
		if _, err := os.Stat(fmt.Sprintf("/proc/%d/exe", s.pid)); err != nil {
			t.Skipf("no ext4 can be mounted here: %s", s.log.String())
		}
		return s.get("127.0.0.1", "/healthz").code == http.StatusOK
	})
	return s
}

// needFreezable skips a test where no disk can be frozen.
func needFreezable(t *testing.T) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("needs root, to mount a disk and freeze it")
	}
	for _, program := range []string{"mkfs.ext4", "fsfreeze", "unshare"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skip(err)
		}
	}
}

func (s *webProcess) freeze(how string) error {
	out, err := exec.Command("fsfreeze", how, s.root).CombinedOutput()
	if err != nil {
		return fmt.Errorf("fsfreeze %s: %w: %s", how, err, out)
	}
	return nil
}

// reply is what somebody gets, with code 0 if they get nothing.
type reply struct {
	code int
	body string
	took time.Duration
}

// get asks from an address of this machine.
func (s *webProcess) get(from, path string) reply {
	client := http.Client{Timeout: 30 * time.Second, Transport: &http.Transport{
		DialContext:       (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}).DialContext,
		DisableKeepAlives: true,
	}}
	begin := time.Now()
	r, err := http.NewRequestWithContext(s.t.Context(), http.MethodGet, "http://"+s.http+path, http.NoBody)
	if err != nil {
		return reply{body: err.Error()}
	}
	response, err := client.Do(r)
	if err != nil {
		return reply{body: err.Error(), took: time.Since(begin)}
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return reply{body: err.Error(), took: time.Since(begin)}
	}
	return reply{response.StatusCode, string(body), time.Since(begin)}
}

// While the disk is being opened podnas is alive, and says that it is not ready: kubelet
// must not end it again and again for a disk that hangs.
func TestAliveBeforeTheDisk(t *testing.T) {
	s := execWeb(t, frozen)
	says := func(path, want string) {
		t.Helper()
		if r := s.get("127.0.0.1", path); !strings.HasPrefix(fmt.Sprint(r.code, " ", r.body), want) {
			t.Errorf("%s: %d %q, want %q", path, r.code, r.body, want)
		}
	}
	for range 2 {
		says("/healthz", "200 ok")
		says("/readyz", "503 start: the disk ")
		says("/", "503 podnas is starting")
		time.Sleep(100 * time.Millisecond)
	}
	mustDo(t, s.freeze("--unfreeze"))
	s.eventually("podnas is ready", func() bool { return s.get("127.0.0.1", "/readyz").code == http.StatusOK })
	says("/", "200 ")
}

// threadsOfCommands is how many commands that change something are at work at a time.
const threadsOfCommands = 32

// While the disk hangs everything that is asked is answered in time, says so, and takes
// a bounded number of threads; when the disk is back all is well. It takes half a minute,
// so only CI runs it.
func TestFrozenDisk(t *testing.T) {
	testdisk.OnlyCI(t)
	t.Parallel() // it mostly waits
	s := startWeb(t, freezable)
	commands := control.NewClient(s.root)
	_, err := commands.Doctor(t.Context())
	mustDo(t, err)
	before := s.status("Threads")
	mustDo(t, s.freeze("--freeze"))
	s.eventually("replies are held", func() bool {
		return s.get("127.0.0.1", "/readyz").code == http.StatusServiceUnavailable
	})

	each := func(code int) func(reply) bool {
		return func(r reply) bool {
			return r.code == code || r.code == http.StatusServiceUnavailable && strings.HasPrefix(r.body, "too many requests at a time")
		}
	}
	// Eight clients: of one alone no more than 64 are served at a time.
	const clients, inTurn = 8, 15
	want := map[string]func(reply) bool{
		"/readyz": func(r reply) bool {
			return r.code == http.StatusServiceUnavailable && strings.HasPrefix(r.body, "disk: no answer for ")
		},
		"/healthz": func(r reply) bool { return r.code == http.StatusOK },
		"/":        func(r reply) bool { return r.code == http.StatusOK },

		"/?filter=ready": each(http.StatusOK),
		"/volume/none":   each(http.StatusNotFound),
		"/metrics": func(r reply) bool {
			return r.code == http.StatusOK && strings.Contains(r.body, "\npodnas_nfs_connections ")
		},
	}
	var asking sync.WaitGroup
	for client := range clients {
		for path, ok := range want {
			for range 5 {
				asking.Go(func() {
					for n := 0; n < inTurn && !t.Failed(); n++ {
						r := s.get(fmt.Sprintf("127.0.1.%d", 1+client), path)
						// Without a header for 5 s, as on a busy machine, a connection is closed.
						for tries := 0; r.code == 0 && tries < 3; tries++ {
							r = s.get(fmt.Sprintf("127.0.1.%d", 1+client), path)
						}
						if !ok(r) || r.took > 20*time.Second {
							t.Errorf("%s: %d after %s: %.200q", path, r.code, r.took, r.body)
						}
					}
				})
			}
		}
	}
	hung, letGo := context.WithCancel(t.Context())
	defer letGo()
	var changing sync.WaitGroup
	for i := range 2 * threadsOfCommands {
		changing.Go(func() { // it comes to nothing, or to a volume when the disk is back
			_, _ = commands.Create(hung, control.CreateRequest{Name: fmt.Sprint("hung-", i), Size: 1 << 20})
		})
	}
	for range 20 {
		asking.Go(func() {
			if _, err := commands.List(t.Context(), true); err != nil {
				t.Errorf("podnas volume list: %v", err)
			}
			report, err := commands.Doctor(t.Context())
			if err != nil || !told(report.Checks, "disk", doctor.Failed, "no answer for ") {
				t.Errorf("podnas doctor: %+v, %v", report.Checks, err)
			}
		})
	}
	most := 0
	done := make(chan struct{})
	go func() { asking.Wait(); close(done) }()
	for asked := false; !asked; {
		select {
		case <-done:
			asked = true
		case <-time.After(50 * time.Millisecond):
		}
		most = max(most, s.status("Threads"))
	}
	t.Logf("%d threads before, %d at most while %d requests met a frozen disk", before, most, clients*inTurn*5*len(want))
	if most > before+threadsOfCommands+30 {
		t.Errorf("%d threads, %d before", most, before)
	}
	if r := s.get("127.0.0.1", "/readyz"); !want["/readyz"](r) || r.took > 2*time.Second {
		t.Errorf("that the disk hangs is told after %s: %d, %q", r.took, r.code, r.body)
	}
	if r := s.get("127.0.0.1", "/"); !strings.Contains(r.body, "no answer for ") {
		s.eventually("the page says that the disk hangs", func() bool {
			return strings.Contains(s.get("127.0.0.1", "/").body, "no answer for ")
		})
	}

	letGo()
	changing.Wait()
	mustDo(t, s.freeze("--unfreeze"))
	s.eventually("podnas is ready", func() bool { return s.get("127.0.0.1", "/readyz").code == http.StatusOK })
	s.eventually("podnas doctor says that the disk is well", func() bool { // once its own check is back
		report, err := commands.Doctor(t.Context())
		mustDo(t, err)
		return told(report.Checks, "disk", doctor.OK, "written to")
	})
	s.eventually("the metrics are all there", func() bool {
		body := s.get("127.0.0.1", "/metrics").body
		return strings.Contains(body, "\npodnas_disk_unanswered_seconds 0\n") && strings.Contains(body, "\npodnas_disk_size_bytes ")
	})
}

func told(results []doctor.Result, check string, status doctor.Status, text string) bool {
	for _, r := range results {
		if r.Check == check {
			return r.Status == status && strings.Contains(r.Says, text)
		}
	}
	return false
}

//go:build page

// Package page_test looks at the status page in a browser. See README.md.
package page_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// podnas is a running one, and a proxy before its page that keeps what it answers.
type podnas struct {
	page string // its address, past the proxy
	nfs  string
	root string

	proxy *httptest.Server
	mu    sync.Mutex
	typed string                   // into the filter, by a script of the test's own
	pages []string                 // what was answered to GET /
	gone  bool                     // answer with an error
	hangs bool                     // answer nothing at all
	alter func(page string) string // nil: what is answered is not changed
	after int                      // be gone after so many pages, 0: never
}

var binary string // of podnas; set by TestMain, only read after

func TestMain(m *testing.M) {
	code, err := runWithBinary(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(code)
}

func runWithBinary(m *testing.M) (code int, err error) {
	dir, err := os.MkdirTemp("", "podnas-page-")
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(dir)
	binary = filepath.Join(dir, "podnas")
	if out, err := exec.Command("go", "build", "-o", binary, "../../cmd/podnas").CombinedOutput(); err != nil {
		return 0, fmt.Errorf("go build: %w\n%s", err, out)
	}
	return m.Run(), nil
}

// start serves the claims of a manifest.
func start(t *testing.T, claims string) *podnas {
	t.Helper()
	dir := t.TempDir()
	p := &podnas{root: filepath.Join(dir, "root")}
	mustDo(t, os.Mkdir(p.root, 0o755))
	mustDo(t, os.Mkdir(filepath.Join(dir, "claims"), 0o755))
	mustDo(t, os.WriteFile(filepath.Join(dir, "claims", "claims.yaml"), []byte(claims), 0o600))
	ctx, cancel := context.WithCancel(context.Background())
	cmd := exec.CommandContext(ctx, binary, "serve", "--standalone", "--root="+p.root, "--claims="+filepath.Join(dir, "claims"),
		"--listen=127.0.0.1:0", "--http=127.0.0.1:0", "--quota=server")
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	out, in := io.Pipe()
	var log bytes.Buffer
	var logged sync.Mutex
	cmd.Stdout, cmd.Stderr = in, in
	mustDo(t, cmd.Start())
	found := make(chan bool, 1)
	read := make(chan struct{})
	go func() {
		defer close(read)
		lines := bufio.NewScanner(out)
		for lines.Scan() {
			logged.Lock()
			fmt.Fprintln(&log, lines.Text())
			logged.Unlock()
			if _, url, ok := strings.Cut(lines.Text(), "status page at "); ok {
				p.page = url
			}
			if _, address, ok := strings.Cut(lines.Text(), `msg="nfs: serving NFS" address=`); ok {
				p.nfs, _, _ = strings.Cut(address, " ")
			}
			if p.page != "" && p.nfs != "" {
				select {
				case found <- true:
				default:
				}
			}
		}
	}()
	t.Cleanup(func() {
		cancel()
		if err := cmd.Wait(); err != nil && ctx.Err() == nil {
			t.Error(err)
		}
		in.Close()
		<-read
		if t.Failed() {
			t.Logf("podnas says:\n%s", &log)
		}
	})
	select {
	case <-found:
	case <-time.After(30 * time.Second):
		logged.Lock()
		defer logged.Unlock()
		t.Fatalf("podnas does not start:\n%s", &log)
	}
	p.startProxy(t)
	return p
}

// typeLater types into the filter.
const typeLater = `
setTimeout(() => {
  const field = document.getElementById("filter");
  field.focus();
  field.value = %q;
  field.dispatchEvent(new Event("input", { bubbles: true }));
}, 1000);
`

// startProxy puts a proxy before the page.
func (p *podnas) startProxy(t *testing.T) {
	t.Helper()
	to, err := url.Parse(p.page)
	mustDo(t, err)
	proxy := httputil.NewSingleHostReverseProxy(to)
	proxy.ModifyResponse = func(r *http.Response) error {
		p.mu.Lock()
		typed := p.typed
		p.mu.Unlock()
		if r.Request.URL.Path == "/page.js" && typed != "" {
			script, err := io.ReadAll(r.Body)
			script = fmt.Appendf(script, typeLater, typed)
			r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(script)), int64(len(script))
			r.Header.Set("Content-Length", fmt.Sprint(len(script)))
			return err
		}
		if r.Request.URL.Path != "/" {
			return nil
		}
		page, err := io.ReadAll(r.Body)
		if err != nil {
			return err
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.alter != nil {
			page = []byte(p.alter(string(page)))
			r.ContentLength = int64(len(page))
			r.Header.Set("Content-Length", fmt.Sprint(len(page)))
		}
		r.Body = io.NopCloser(bytes.NewReader(page))
		p.pages = append(p.pages, string(page))
		p.gone = p.gone || len(p.pages) == p.after
		return nil
	}
	p.proxy = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p.mu.Lock()
		gone, hangs := p.gone && r.URL.Path == "/", p.hangs && r.URL.Path == "/"
		p.mu.Unlock()
		if hangs {
			<-r.Context().Done()
			return
		}
		if gone {
			http.Error(w, "gone", http.StatusBadGateway)
			return
		}
		r.Header.Set("Accept-Encoding", "identity") // pages can be read here
		proxy.ServeHTTP(w, r)
	}))
	t.Cleanup(p.proxy.Close)
}

// reset forgets what was answered, and has the proxy be gone after some pages.
func (p *podnas) reset(after int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.pages, p.gone, p.hangs, p.alter, p.after = nil, false, false, nil, after
}

// change has the proxy change pages.
func (p *podnas) change(alter func(page string) string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.alter = alter
}

func (p *podnas) answered() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.pages
}

// chromium runs the browser and returns what it prints and what its pages have
// complained of.
func chromium(t *testing.T, args ...string) (dom, console string) {
	t.Helper()
	binary := chromiumPath(t)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	var out, errs bytes.Buffer
	run := func() error {
		out.Reset()
		errs.Reset()
		cmd := exec.CommandContext(ctx, binary, append(chromiumFlags(t), append(args, "--enable-logging=stderr")...)...)
		cmd.Stdout, cmd.Stderr = &out, &errs
		return cmd.Run()
	}
	err := run()
	if hasCrashed(err) {
		t.Logf("%s: %v: started again", binary, err)
		err = run()
	}
	if err != nil {
		t.Fatalf("%s: %v\n%s", binary, err, &errs)
	}
	for line := range strings.Lines(errs.String()) {
		if strings.Contains(line, "CONSOLE") {
			console += line
		}
	}
	return out.String(), console
}

// hasCrashed reports whether a program has died of a fault of its own, as Chromium sometimes does.
func hasCrashed(err error) bool {
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		return false
	}
	status, ok := exit.Sys().(syscall.WaitStatus)
	return ok && status.Signaled() && status.Signal() == syscall.SIGSEGV
}

func chromiumPath(t *testing.T) string {
	t.Helper()
	binary := os.Getenv("CHROMIUM")
	if binary == "" {
		t.Fatal("no CHROMIUM in the environment: run this with make page")
	}
	return binary
}

func chromiumFlags(t *testing.T) []string {
	t.Helper()
	return []string{
		"--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars", "--no-first-run",
		"--disable-background-networking", "--disable-component-update", "--disable-sync", "--user-data-dir=" + t.TempDir(),
	}
}

func mustDo(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

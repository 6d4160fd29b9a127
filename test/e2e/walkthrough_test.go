//go:build e2e

package e2e

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/podnas/podnas/test/docs"
)

// walkthrough has what README.md and the quick start tell people to do in a cluster: the
// blocks of shell that are marked "on a node: NAME". Each is run once, by one of the steps,
// as it is written.
type walkthrough map[block]string

type block struct{ page, name string }

func loadWalkthrough(t *testing.T) walkthrough {
	t.Helper()
	w := walkthrough{}
	for _, page := range []string{"README.md", "docs/quickstart.md"} {
		blocks, err := docs.Blocks(filepath.Join(top, page))
		if err != nil {
			t.Fatal(err)
		}
		for _, b := range blocks {
			name, ok := strings.CutPrefix(b.Kind, docs.OnANode)
			if !ok {
				continue
			}
			if _, twice := w[block{page, name}]; twice {
				t.Fatalf("%s has two blocks called %q", page, name)
			}
			w[block{page, name}] = b.Script
		}
	}
	return w
}

// take returns a block that has not been run yet.
func (w walkthrough) take(t *testing.T, page, name string) string {
	t.Helper()
	script, ok := w[block{page, name}]
	if !ok {
		t.Fatalf("%s has no block %q that is not run yet", page, name)
	}
	delete(w, block{page, name})
	return script
}

// allRun checks that no block was left out.
func (w walkthrough) allRun(t *testing.T) {
	t.Helper()
	for b := range w {
		t.Errorf("%s: nobody has run the block %q", b.page, b.name)
	}
}

// run runs a block and returns what it prints.
func (w walkthrough) run(t *testing.T, page, name string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	out, err := shell(ctx, w.take(t, page, name)).CombinedOutput()
	if err != nil {
		t.Fatalf("%s, %s: %v\n%s", page, name, err, out)
	}
	return string(out)
}

// watch runs a block that ends with Ctrl-C, which comes when isTrue says so of what it has
// printed.
func (w walkthrough) watch(t *testing.T, page, name string, isTrue func(printed string) bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	cmd := shell(ctx, w.take(t, page, name))
	var out printed
	cmd.Stdout, cmd.Stderr = &out, &out
	// Ctrl-C goes to all of a terminal's processes.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGINT) }
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	for !isTrue(out.String()) {
		select {
		case err := <-ended:
			t.Fatalf("%s, %s: it ended by itself (%v)\n%s", page, name, err, out.String())
		case <-time.After(500 * time.Millisecond):
		}
	}
	cancel()
	t.Logf("%s, %s: after Ctrl-C: %v", page, name, <-ended)
}

// shell makes a command of a script, at the top of the tree, as a person has it.
func shell(ctx context.Context, script string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "bash", "-euo", "pipefail", "-c", script)
	cmd.Dir = top
	cmd.Env = append(os.Environ(), "KUBECONFIG="+cluster.kubeconfig, "PATH="+cluster.bin+":"+os.Getenv("PATH"))
	return cmd
}

// printed is what a command has printed so far.
type printed struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (p *printed) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.buf.Write(b)
}

func (p *printed) String() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.buf.String()
}

// quickStart follows the quick start from where podnas is installed, and deletes podnas's
// pod as it says.
func (w walkthrough) quickStart(t *testing.T) {
	const page = "docs/quickstart.md"
	w.run(t, page, "two pods")
	w.watch(t, page, "watch", showsLine(5))
	out := w.run(t, page, "ask")
	if !strings.Contains(out, "Nothing is wrong.") || !regexp.MustCompile(`(?m)^pvc-\S+ +(\S+ +)+default/shared +ready `).MatchString(out) {
		t.Errorf("podnas says\n%s", out)
	}
	replacePodnas(t, func() { w.run(t, page, "take away") })
	w.watch(t, page, "watch again", showsLine(len(shown(t))+1))
}

// showsLine tells whether the reader has shown a line.
func showsLine(n int) func(printed string) bool {
	return regexp.MustCompile(fmt.Sprintf(`(?m)^%d `, n)).MatchString
}

// remove takes everything away as the quick start says, with the examples at work. Nothing
// of podnas is left in the cluster.
func (w walkthrough) remove(t *testing.T) {
	kubectl(t, "apply", "-f", deploy+"examples/")
	kubectl(t, "wait", "--for=condition=Ready", "pod/writer", "pod/reader", "--timeout=300s")
	w.run(t, "docs/quickstart.md", "remove")
	objects := kubectl(t, "get", "pv,storageclass,priorityclass,clusterrole,clusterrolebinding,namespace,validatingadmissionpolicy,validatingadmissionpolicybinding", "-o", "name")
	if left := regexp.MustCompile(`(?m)^persistentvolume/pvc-.*$|^.*/podnas(-persistentvolumes)?$`).FindAllString(objects, -1); left != nil {
		t.Errorf("there is left of podnas: %q", left)
	}
}

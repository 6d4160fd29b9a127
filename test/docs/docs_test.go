package docs

import (
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/podnas/podnas/test/testdisk"
)

const top = "../.."

// pages are all that people read.
func pages(t *testing.T) []string {
	t.Helper()
	var all []string
	for _, pattern := range []string{"*.md", "docs/*.md", "docs/internals/*.md", "docs/reference/*.md", "deploy/*.md", "deploy/helm/*/*.md", "test/*/*.md"} {
		found, err := filepath.Glob(filepath.Join(top, pattern))
		if err != nil || len(found) == 0 {
			t.Fatalf("no page %s (%v)", pattern, err)
		}
		all = append(all, found...)
	}
	return all
}

// TestCommands runs what the pages say, without a cluster: each page in an empty folder
// of its own, in which bin/podnas and deploy/ are as in the tree.
func TestCommands(t *testing.T) {
	binary := filepath.Join(t.TempDir(), "podnas")
	// As this test is built, so that what podnas is made of has been compiled.
	race := "-race=false"
	if info, ok := debug.ReadBuildInfo(); ok && slices.Contains(info.Settings, debug.BuildSetting{Key: "-race", Value: "true"}) {
		race = "-race"
	}
	if out, err := exec.Command("go", "build", race, "-o", binary, top+"/cmd/podnas").CombinedOutput(); err != nil {
		t.Fatalf("build podnas: %v\n%s", err, out)
	}
	for _, page := range pages(t) {
		blocks, err := Blocks(page)
		if err != nil {
			t.Fatal(err)
		}
		blocks = slices.DeleteFunc(blocks, func(b Block) bool { return b.Kind == InCluster || strings.HasPrefix(b.Kind, OnANode) })
		if len(blocks) == 0 {
			continue
		}
		name := filepath.Base(page)
		t.Run(name, func(t *testing.T) {
			r := newReader(t, binary, folderFor(t, name))
			for _, b := range blocks {
				switch b.Kind {
				case "":
					r.run(b)
				case "in background":
					r.stop()
					r.start(b)
				case "stopped":
					r.stop()
					r.run(b)
				default:
					t.Fatalf("%s:%d: run what? %q", page, b.Line, b.Kind)
				}
			}
			r.stop()
		})
	}
}

// reader does what a page says.
type reader struct {
	t     *testing.T
	dir   string
	ports *strings.Replacer // those of the pages to free ones
	http  string

	background *exec.Cmd // podnas, while it runs
	log        bytes.Buffer
}

// folderFor returns an empty folder for a page: on an XFS, if it is about what needs one.
func folderFor(t *testing.T, page string) (dir string) {
	t.Helper()
	if page != "restic.md" {
		return t.TempDir()
	}
	if _, err := exec.LookPath("restic"); err != nil {
		t.Skipf("Debian's package restic is not here: %v", err)
	}
	return testdisk.OneXFS(t)
}

func newReader(t *testing.T, binary, dir string) *reader {
	t.Helper()
	whole, err := filepath.Abs(filepath.Join(top, "deploy"))
	if err != nil {
		t.Fatal(err)
	}
	r := &reader{t: t, dir: dir}
	for link, target := range map[string]string{"bin/podnas": binary, "deploy": whole} {
		link = filepath.Join(r.dir, link)
		if err := os.MkdirAll(filepath.Dir(link), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(target, link); err != nil {
			t.Fatal(err)
		}
	}
	nfs, http := freePort(t), freePort(t)
	r.ports, r.http = strings.NewReplacer("20490", nfs, "20491", http), http
	t.Cleanup(func() {
		if r.background != nil {
			_ = r.background.Process.Kill() // the test has failed
			_ = r.background.Wait()
			t.Logf("podnas says\n%s", r.log.Bytes())
		}
	})
	return r
}

func freePort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return fmt.Sprint(l.Addr().(*net.TCPAddr).Port)
}

func (r *reader) command(ctx context.Context, b Block) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "bash", "-euo", "pipefail", "-c", r.ports.Replace(b.Script))
	cmd.Dir = r.dir
	cmd.WaitDelay = time.Second // its children may have its output, and go on
	return cmd
}

func (r *reader) run(b Block) {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), time.Minute)
	defer cancel()
	out, err := r.command(ctx, b).CombinedOutput()
	if err != nil {
		r.t.Fatalf("the block at line %d: %v\n%s", b.Line, err, out)
	}
	r.t.Logf("line %d\n%s", b.Line, out)
}

// start runs a block that does not end, and waits until it answers.
func (r *reader) start(b Block) {
	r.t.Helper()
	// exec, so that signals reach podnas and not a shell before it.
	b.Script = "exec " + b.Script
	cmd := r.command(context.Background(), b)
	cmd.Stdout, cmd.Stderr = &r.log, &r.log
	if err := cmd.Start(); err != nil {
		r.t.Fatal(err)
	}
	r.background = cmd
	ready := Block{Line: b.Line, Script: `until exec 3<>/dev/tcp/127.0.0.1/` + r.http + `; do sleep 0.1; done 2>/dev/null
printf 'GET /readyz HTTP/1.0\r\n\r\n' >&3; head -1 <&3 | grep ' 200 '`}
	r.run(Block{Line: b.Line, Script: "until (" + ready.Script + "); do sleep 0.1; done"})
}

// stop ends what runs in the background as Ctrl-C does.
func (r *reader) stop() {
	r.t.Helper()
	if r.background == nil {
		return
	}
	cmd := r.background
	if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
		r.t.Fatal(err)
	}
	err := cmd.Wait()
	r.background = nil
	if err != nil {
		r.t.Fatalf("podnas ended badly: %v\n%s", err, r.log.Bytes())
	}
}

// Links lead to files, and to headings, that are there.
func TestLinks(t *testing.T) {
	link := regexp.MustCompile(`\]\(([^)\s]+)\)`)
	for _, page := range pages(t) {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, found := range link.FindAllStringSubmatch(string(text), -1) {
			target, anchor, _ := strings.Cut(found[1], "#")
			if strings.Contains(target, "://") {
				continue
			}
			file := page
			if target != "" {
				file = filepath.Join(filepath.Dir(page), target)
			}
			if _, err := os.Stat(file); err != nil {
				t.Errorf("%s: link to %s: %v", page, found[1], err)
				continue
			}
			if anchor != "" && !slices.Contains(anchors(t, file), anchor) {
				t.Errorf("%s: no heading for the link to %s", page, found[1])
			}
		}
	}
}

// What code, manifests and scripts say of a page is there: the page, and the heading where one is named.
func TestNamedPages(t *testing.T) {
	named := regexp.MustCompile(`\b(docs/[a-z0-9/-]+\.(?:md|svg|png))(?:#([a-z0-9-]+)|, \\?"([^"\\]+)\\?")?`)
	found := 0
	err := filepath.WalkDir(top, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() {
			if name := entry.Name(); name == "testdata" || name == "data" || name == "dist" || name == ".git" {
				return filepath.SkipDir
			}
			return nil
		}
		if ext := filepath.Ext(path); ext != ".go" && ext != ".yaml" && ext != ".sh" && ext != ".tpl" && ext != ".html" {
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		for _, match := range named.FindAllStringSubmatch(string(text), -1) {
			found++
			page := filepath.Join(top, match[1])
			if _, err := os.Stat(page); err != nil {
				t.Errorf("%s names %s, which is not there", path, match[1])
				continue
			}
			anchor := match[2] + anchorOf(match[3])
			if anchor != "" && !slices.Contains(anchors(t, page), anchor) {
				t.Errorf("%s names %s, whose heading is not there", path, match[0])
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if found < 40 {
		t.Errorf("only %d names of pages were found", found)
	}
}

// anchors are what GitHub makes of a page's headings.
func anchors(t *testing.T, page string) []string {
	t.Helper()
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, found := range heading.FindAllStringSubmatch(string(text), -1) {
		all = append(all, anchorOf(found[1]))
	}
	return all
}

var (
	heading         = regexp.MustCompile("(?m)^#+ (.*)$")
	leftOutOfAnchor = regexp.MustCompile(`[^\p{L}\p{N} _-]`)
)

func anchorOf(heading string) string {
	return strings.ReplaceAll(strings.ToLower(leftOutOfAnchor.ReplaceAllString(heading, "")), " ", "-")
}

// manifestTag is the tag of the image that the manifest has.
func manifestTag(t *testing.T) string {
	t.Helper()
	manifest, err := os.ReadFile(filepath.Join(top, "deploy/podnas.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	tag := regexp.MustCompile(`image: ghcr\.io/podnas/podnas:(\S+)`).FindSubmatch(manifest)
	if tag == nil {
		t.Fatal("deploy/podnas.yaml has no image of podnas")
	}
	return string(tag[1])
}

// The pages name the image that the manifest has.
func TestImageTag(t *testing.T) {
	tag := manifestTag(t)
	named := regexp.MustCompile(`podnas[:-](v[0-9][0-9A-Za-z.-]*?)(?:-amd64|-arm64)?(?:\.tar|\s|$)`)
	for _, page := range pages(t) {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, found := range named.FindAllSubmatch(text, -1) {
			if string(found[1]) != tag {
				t.Errorf("%s names the image %s, the manifest %s", page, found[0], tag)
			}
		}
	}
}

//go:build page

package page_test

import (
	"cmp"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/podnas/podnas/nfs/nfs3"
	"github.com/podnas/podnas/test/conformance/nfstest"
	"github.com/podnas/podnas/test/testdisk"
)

const claims = `
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: shared}
provisioner: podnas.io/nfs
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: documents, namespace: team}
spec:
  storageClassName: shared
  accessModes: [ReadWriteMany]
  resources: {requests: {storage: 10Mi}}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: scratch, namespace: team}
spec:
  storageClassName: shared
  accessModes: [ReadWriteMany]
  resources: {requests: {storage: 20Mi}}
`

// answers is on the page unless podnas does not answer.
const answers = `<p id="late" role="alert"></p>`

// TestPage does what clients do, and looks at what the page makes of it.
func TestPage(t *testing.T) {
	p := start(t, claims)
	documents, scratch := p.volume(t, "team/documents"), p.volume(t, "team/scratch")
	client, err := nfstest.Dial(t.Context(), p.nfs, p.nfs)
	mustDo(t, err)
	defer client.Close()
	write(t, client, "/"+documents, 97*10<<20/100)
	write(t, client, "/"+scratch, 5<<20)
	p.waitFor(t, `GETATTR</th>`) // a sample was taken after the last call
	p.waitFor(t, `<path class="line0" d="M`)
	p.waitFor(t, "97% full") // the checks ran after that

	t.Run("values", func(t *testing.T) {
		p.reset(0)
		dom, console := chromium(t, "--dump-dom", p.proxy.URL)
		noComplaints(t, console)
		full := section(t, dom, "<b>team/documents</b></a>", "</tr>")
		for _, want := range []string{
			documents, "shared", "ready", "127.0.0.1", `<svg class="bar full"`, `aria-label="97% used"`, "of 10 MiB",
		} {
			if !strings.Contains(full, want) {
				t.Errorf("the full volume's row lacks %q:\n%s", want, full)
			}
		}
		half := section(t, dom, "<b>team/scratch</b></a>", "</tr>")
		for _, want := range []string{scratch, `aria-label="25% used"`, "5 of 20 MiB", `<svg class="bar "`} {
			if !strings.Contains(half, want) {
				t.Errorf("the other's row lacks %q:\n%s", want, half)
			}
		}
		health := section(t, dom, `<section id="health"`, "</section>")
		if !strings.Contains(health, "Something is wrong.") || !strings.Contains(health, `<a href="/volume/`+documents+`">volume team/documents</a></strong>: 97% full`) {
			t.Errorf("health: %s", health)
		}
		// The client's own calls, exactly: it is the only one that writes.
		clients := section(t, dom, `<section id="clients"`, "</section>")
		if !strings.Contains(clients, `<td data-label="Written" class="n">14.7 MiB</td>`) {
			t.Errorf("clients: %s", clients)
		}
		procedures := section(t, dom, `<section id="procedures"`, "</section>")
		for _, want := range []string{`class="name">WRITE</th>`, `class="name">GETATTR</th>`, `class="name">CREATE</th>`, `class="name">MNT</th>`} {
			if !strings.Contains(procedures, want) {
				t.Errorf("calls: no %s in %s", want, procedures)
			}
		}
		if paths := regexp.MustCompile(`<path class="line0" d="M[0-9][^"]*L[^"]*"`).FindAllString(dom, -1); len(paths) != 4 {
			t.Errorf("%d charts have a line, want 4", len(paths))
		}
		events := section(t, dom, `<section id="events"`, "</section>")
		if !strings.Contains(events, "mount: mounted") || !strings.Contains(events, "volume: created") {
			t.Errorf("events: %s", events)
		}
	})
	t.Run("volumes come first", func(t *testing.T) {
		p.reset(0)
		b := newBrowser(t)
		for _, width := range []int{1280, 375} {
			b.look(width, 667, false)
			b.open(p.proxy.URL + "/")
			top, charts := b.run(`document.querySelector("#volumes").getBoundingClientRect().top`), b.run(`document.querySelector("#charts").getBoundingClientRect().top`)
			if a, b := number(t, top), number(t, charts); a > 667 || b < a {
				t.Errorf("%d wide: they begin at %s, and the charts at %s", width, top, charts)
			}
			looksWell(b, width)
			b.keep(fmt.Sprint("first-", width))
		}
		b.uncomplaining()
	})
	t.Run("brings itself up to date", func(t *testing.T) {
		p.reset(0)
		dom, console := chromium(t, "--dump-dom", "--virtual-time-budget=18000", p.proxy.URL)
		noComplaints(t, console)
		pages := p.answered()
		if len(pages) < 3 {
			t.Fatalf("the page was asked for %d times", len(pages))
		}
		// Not the last one for certain: the browser may end while that is on its way.
		shown := timeOf(t, dom)
		if !slices.ContainsFunc(pages[2:], func(page string) bool { return strings.Contains(page, `<time datetime="`+shown+`"`) }) {
			t.Errorf("it shows a page of %s, which is not the third or a later one", shown)
		}
		if !strings.Contains(dom, answers) {
			t.Error("it says that podnas does not answer")
		}
	})
	t.Run("says that podnas is gone", func(t *testing.T) {
		p.reset(1)
		dom, _ := chromium(t, "--dump-dom", "--virtual-time-budget=8000", p.proxy.URL)
		if !strings.Contains(dom, "podnas does not answer") {
			t.Error("it does not say that podnas does not answer")
		}
		if !strings.Contains(dom, "team/documents") {
			t.Error("what was there is not shown any more")
		}
	})
	t.Run("without scripts", func(t *testing.T) {
		p.reset(0)
		dom, _ := chromium(t, noScripts(t), "--dump-dom", p.proxy.URL)
		if !strings.Contains(dom, "team/documents") || !strings.Contains(dom, "97% full") {
			t.Error("it lacks the volumes")
		}
		p.reset(3) // what is loaded then has no refresh, and the browser ends
		chromium(t, noScripts(t), "--dump-dom", "--virtual-time-budget=60000", p.proxy.URL)
		if n := len(p.answered()); n != 3 {
			t.Errorf("the page was loaded %d times, want again and again", n)
		}
	})
	t.Run("a filter", func(t *testing.T) {
		p.reset(0)
		// The first is without scripts. Then the page has brought itself up to date.
		for _, args := range [][]string{{noScripts(t)}, {"--virtual-time-budget=12000"}} {
			dom, console := chromium(t, append(args, "--dump-dom", p.proxy.URL+"/?filter=documents")...)
			noComplaints(t, console)
			if volumes := section(t, dom, `<section id="volumes"`, "</section>"); !strings.Contains(volumes, "team/documents") || strings.Contains(volumes, "team/scratch") {
				t.Errorf("%s: %s", args, volumes)
			}
		}
	})
	t.Run("typing filters", func(t *testing.T) {
		p.reset(0)
		p.types("scratch")
		defer p.types("")
		dom, console := chromium(t, "--dump-dom", "--virtual-time-budget=12000", p.proxy.URL+"/?filter=documents")
		noComplaints(t, console)
		if volumes := section(t, dom, `<section id="volumes"`, "</section>"); strings.Contains(volumes, "team/documents") || !strings.Contains(volumes, "team/scratch") {
			t.Errorf("%s", volumes)
		}
	})
	t.Run("a volume", func(t *testing.T) {
		for _, args := range [][]string{{noScripts(t)}, {"--virtual-time-budget=12000"}} {
			dom, console := chromium(t, append(args, "--dump-dom", p.proxy.URL+"/volume/"+documents)...)
			noComplaints(t, console)
			for _, want := range []string{
				"<title>Trouble: team/documents: podnas</title>", documents, "97% full", `aria-label="97% used"`, "sudo mount -t nfs -o proto=tcp",
				"127.0.0.1:/" + documents, "volume: created", "mount: mounted", answers,
			} {
				if !strings.Contains(dom, want) {
					t.Errorf("%s: it lacks %q", args, want)
				}
			}
			if strings.Contains(dom, scratch) || strings.Contains(dom, "team/scratch") {
				t.Error("it has what is about another")
			}
		}
		dom, _ := chromium(t, "--dump-dom", "--virtual-time-budget=12000", p.proxy.URL+"/volume/none")
		if !strings.Contains(dom, "There is no volume none.") || !strings.Contains(dom, answers) {
			t.Errorf("of a volume that is not there: %s", dom)
		}
	})
	for _, look := range []struct {
		name string
		dark bool
		args []string
	}{
		{"light", false, nil},
		{"dark", true, []string{"--force-dark-mode", "--blink-settings=preferredColorScheme=0"}},
	} {
		for _, width := range []int{1280, 390} {
			for name, path := range map[string]string{"page": "/", "volume": "/volume/" + documents} {
				t.Run(fmt.Sprint("picture ", name, " ", look.name, " ", width), func(t *testing.T) {
					if look.dark == (width == 1280) {
						testdisk.NotInShort(t, "a small dark one and a large light one are looked at")
					}
					p.reset(0)
					checkPicture(t, p.picture(t, name+"-"+look.name, path, width, look.args), width, look.dark)
				})
			}
		}
	}
}

func number(t *testing.T, text string) float64 {
	t.Helper()
	n, err := strconv.ParseFloat(text, 64)
	mustDo(t, err)
	return n
}

// types has the next pages type into their filter.
func (p *podnas) types(text string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.typed = text
}

// volume waits for the volume of a claim.
func (p *podnas) volume(t *testing.T, claim string) string {
	t.Helper()
	row := regexp.MustCompile(`<b>` + claim + `</b></a><small>(pvc-[-0-9a-f]+)`)
	return row.FindStringSubmatch(p.waitFor(t, "<b>"+claim+"</b>"))[1]
}

// waitFor waits for the page to say one of several things.
func (p *podnas) waitFor(t *testing.T, wants ...string) string {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(200 * time.Millisecond) {
		page := fetch(t, p.page)
		if slices.ContainsFunc(wants, func(want string) bool { return strings.Contains(page, want) }) {
			return page
		}
		if time.Now().After(deadline) {
			_, health, _ := strings.Cut(page, `id="health"`)
			health, _, _ = strings.Cut(health, "</section>")
			t.Fatalf("the page never says any of %q. Its health:\n%s", wants, health)
		}
	}
}

func fetch(t *testing.T, url string) string {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, http.NoBody)
	mustDo(t, err)
	res, err := http.DefaultClient.Do(req)
	mustDo(t, err)
	defer res.Body.Close()
	page, err := io.ReadAll(res.Body)
	mustDo(t, err)
	return string(page)
}

// write makes a file of some size in a volume, and asks for its attributes a while.
func write(t *testing.T, client *nfstest.Client, export string, size int) {
	t.Helper()
	ctx := t.Context()
	mnt, err := client.Mount(ctx, export)
	mustDo(t, err)
	made, err := client.Create(ctx, nfs3.CreateArgs{Where: nfs3.DirOpArgs{Dir: mnt.Handle, Name: []byte("file")}})
	if err != nil || made.Status != nfs3.OK {
		t.Fatal(made.Status, err)
	}
	for at := 0; at < size; {
		n := min(size-at, 256<<10)
		res, err := client.Write(ctx, made.Object, uint64(at), nfs3.Unstable, make([]byte, n))
		if err != nil || res.Status != nfs3.OK {
			t.Fatal(res.Status, err)
		}
		at += n
	}
	if _, err := client.Commit(ctx, made.Object, 0, 0); err != nil {
		t.Fatal(err)
	}
	for range 100 {
		if _, err := client.Getattr(ctx, made.Object); err != nil {
			t.Fatal(err)
		}
	}
}

// noScripts makes a browser's profile in which pages have none.
func noScripts(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	mustDo(t, os.Mkdir(filepath.Join(dir, "Default"), 0o700))
	mustDo(t, os.WriteFile(filepath.Join(dir, "Default", "Preferences"),
		[]byte(`{"profile": {"default_content_setting_values": {"javascript": 2}}}`), 0o600))
	return "--user-data-dir=" + dir
}

func noComplaints(t *testing.T, console string) {
	t.Helper()
	if console != "" {
		t.Errorf("the browser complains:\n%s", console)
	}
}

// section is a part of a page.
func section(t *testing.T, page, begin, end string) string {
	t.Helper()
	_, after, ok := strings.Cut(page, begin)
	part, _, closed := strings.Cut(after, end)
	if !ok || !closed {
		t.Fatalf("the page has no %q:\n%s", begin, page)
	}
	return part
}

// timeOf is when a page was made.
func timeOf(t *testing.T, page string) string {
	t.Helper()
	return section(t, page, `<time datetime="`, `"`)
}

// picture takes a picture of the page.
func (p *podnas) picture(t *testing.T, name, path string, width int, args []string) image.Image {
	t.Helper()
	file := filepath.Join(cmp.Or(os.Getenv("PAGE_PICTURES"), t.TempDir()), fmt.Sprintf("%s-%d.png", name, width))
	_, console := chromium(t, append(args, "--screenshot="+file, fmt.Sprintf("--window-size=%d,3600", width), p.proxy.URL+path)...)
	noComplaints(t, console)
	f, err := os.Open(file)
	mustDo(t, err)
	defer f.Close()
	picture, err := png.Decode(f)
	mustDo(t, err)
	return picture
}

// checkPicture sees that the page is as light or as dark as was asked for, that
// something is on it, and that nothing sticks out at its right side.
func checkPicture(t *testing.T, picture image.Image, width int, dark bool) {
	t.Helper()
	bounds := picture.Bounds()
	if bounds.Dx() != width {
		t.Fatalf("the picture is %d wide, not %d", bounds.Dx(), width)
	}
	ground := picture.At(bounds.Max.X-1, 1)
	if light := color.GrayModel.Convert(ground).(color.Gray).Y; dark != (light < 128) {
		t.Errorf("the ground is %v", ground)
	}
	colors := map[color.Color]bool{}
	for y := bounds.Min.Y; y < bounds.Max.Y; y++ {
		for x := bounds.Min.X; x < bounds.Max.X; x++ {
			c := picture.At(x, y)
			colors[c] = true
			if x >= bounds.Max.X-8 && c != ground {
				t.Fatalf("something is at the right edge, at %d, %d", x, y)
			}
		}
	}
	if len(colors) < 50 {
		t.Errorf("the picture has %d colors: it is empty", len(colors))
	}
}

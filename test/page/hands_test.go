//go:build page

package page_test

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/podnas/podnas/test/conformance/nfstest"
)

// many is how many volumes a large podnas has. Two have special names.
const many = 500

// longName is as long as the name of a claim may be.
var longName = strings.Repeat("a-very-long-name-", 14) + strings.Repeat("x", 253-14*17)

func manyClaims() string {
	var b strings.Builder
	b.WriteString("apiVersion: storage.k8s.io/v1\nkind: StorageClass\nmetadata: {name: shared}\nprovisioner: podnas.io/nfs\n")
	for i := range many {
		name, namespace := "data", fmt.Sprint("team-", i)
		switch i {
		case 0:
			name = longName
		case 1:
			name = "documents"
		}
		fmt.Fprintf(&b, "---\napiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {name: %s, namespace: %s}\nspec:\n"+
			"  storageClassName: shared\n  accessModes: [ReadWriteMany]\n  resources: {requests: {storage: 1Mi}}\n", name, namespace)
	}
	return b.String()
}

// TestHands has a person use the page, with 500 volumes on it, while it brings itself up to date.
func TestHands(t *testing.T) {
	p := start(t, manyClaims())
	p.waitFor(t, "500 volumes")
	client, err := nfstest.Dial(t.Context(), p.nfs, p.nfs)
	mustDo(t, err)
	defer client.Close()
	long, documents := p.volume(t, "team-0/"+longName), p.volume(t, "team-1/documents")
	write(t, client, "/"+long, 1000<<10)
	p.waitFor(t, "98% full")
	p.waitFor(t, `<path class="line0" d="M`)
	shared := newBrowser(t, "--host-resolver-rules=MAP podnas.podnas.svc 127.0.0.1")

	t.Run("focus, selection, scroll position and details stay", func(t *testing.T) {
		p.reset(0)
		b := shared.in(t)
		b.look(1280, 800, false)
		b.open(p.proxy.URL + "/")
		b.run(`
			document.querySelector("#folded").open = true;
			const link = document.querySelector('#volumes a[href="/volume/' + %s + '"]'); // it moves below
			link.focus();
			link.known = true; // as it is this element and no copy
			getSelection().setBaseAndExtent(document.querySelector("#clients tbody th").firstChild.firstChild, 2, document.querySelector("#clients tbody").lastElementChild.lastElementChild.firstChild, 1);
			scrollTo(0, 600)`, documents)
		selected := b.run("getSelection().toString()")
		if len(selected) < 20 {
			t.Fatalf("%q is selected", selected)
		}
		b.refreshes(1)
		write(t, client, "/"+documents, 500<<10) // it becomes one of the fullest
		b.until(`document.querySelector('#volumes a[href="/volume/' + %s + '"]').closest("tr").querySelector(".percent").textContent > "4"`, documents)
		b.refreshes(1)
		b.expect("the focused link", "true", `document.activeElement.known === true`)
		b.expect("is it in sight, or still folded away", "true", `document.querySelector("#folded").open`)
		b.expect("the scroll position", "true", `Math.abs(scrollY - 600) < 200`)
		ends := func(text string) string { return text[:5] }
		if now := b.run("getSelection().toString()"); now == "" || ends(now) != ends(selected) || strings.Count(now, "\t") != strings.Count(selected, "\t") {
			t.Errorf("%q was selected, and %q is", selected, now)
		}
		b.uncomplaining()
	})

	t.Run("what is typed stays", func(t *testing.T) {
		p.reset(0)
		b := shared.in(t)
		b.open(p.proxy.URL + "/")
		b.run(`document.getElementById("filter").focus()`)
		for _, r := range "TEAM-49" {
			b.key(string(r), int(r), string(r))
		}
		b.until(`document.querySelectorAll("#volumes tbody tr").length === 11`) // team-49, team-490 and so on
		b.expect("the order", "team-49/data team-490/data team-491/data", `[...document.querySelectorAll("#volumes tbody b")].slice(0, 3).map((b) => b.textContent).join(" ")`)
		b.run(`document.getElementById("filter").setSelectionRange(1, 3)`)
		b.refreshes(2)
		b.expect("what is typed, and what of it is selected", "TEAM-49 1 3 filter", `[document.getElementById("filter").value, document.getElementById("filter").selectionStart, document.getElementById("filter").selectionEnd, document.activeElement.id].join(" ")`)
		b.expect("the address", "?filter=TEAM-49", "location.search")
		b.uncomplaining()
	})

	t.Run("the Tab key goes from top to bottom, also after a refresh", func(t *testing.T) {
		b := shared.in(t)
		b.look(1280, 800, false)
		b.open(p.proxy.URL + "/?filter=team-4")
		before, focused := -1.0, []string{}
		for n := 0; ; n++ {
			b.tab()
			if b.run("document.activeElement === document.body") == "true" {
				break
			}
			focused = append(focused, b.run(`document.activeElement.id || document.activeElement.innerText.trim()`))
			top := number(t, b.run(`document.activeElement.getBoundingClientRect().top + scrollY`))
			if top+8 < before { // what is in one line is not exactly as high
				t.Errorf("the Tab key goes up, from %g to %g: %q", before, top, focused)
			}
			before = max(before, top)
			b.expect("is the focus seen", "true", `document.activeElement.matches(":focus-visible") && getComputedStyle(document.activeElement).outlineStyle !== "none"`)
			if n == 3 {
				b.refreshes(1)
			}
			if n > 400 {
				t.Fatalf("the focus never leaves the page: %q", focused[:20])
			}
		}
		got := strings.Join(focused[:7], ", ")
		if want := "volume team-0/" + longName + ", filter, Filter, Show all volumes, team-4/data, team-40/data, team-41/data"; got != want {
			t.Errorf("first are %s, want %s", got, want)
		}
		got = strings.Join(focused[len(focused)-4:], ", ")
		if want := "Copy, Copy, Metrics for Prometheus, Readiness for kubelet"; got != want {
			t.Errorf("last are %s, want %s", got, want)
		}
		b.uncomplaining()
	})

	t.Run("health is announced when it changes, and only then", func(t *testing.T) {
		p.reset(0)
		b := shared.in(t)
		b.open(p.proxy.URL + "/")
		b.run(`
			window.announced = [];
			for (const region of document.querySelectorAll("[role=status], [role=alert]"))
				new MutationObserver(() => announced.push(region.textContent)).observe(region, { childList: true, characterData: true, subtree: true })`)
		b.refreshes(2)
		b.expect("nothing has changed", "[]", "JSON.stringify(announced)")
		p.change(func(page string) string { // as if that volume were less full
			return strings.ReplaceAll(strings.ReplaceAll(page, "Something is wrong.", "All is well."), "team-0/"+longName, "team-0/short")
		})
		b.until(`announced.length > 0 && announced[0].startsWith("All is well.")`)
		b.uncomplaining()
	})

	t.Run("commands are copied", func(t *testing.T) {
		for name, tt := range map[string]struct{ host, clipboard string }{
			"with a clipboard": {"127.0.0.1", "object"},
			"over plain http":  {"podnas.podnas.svc", "undefined"},
		} {
			t.Run(name, func(t *testing.T) {
				b := shared.in(t)
				b.open(strings.Replace(p.proxy.URL, "127.0.0.1", tt.host, 1) + "/volume/" + documents)
				b.expect("the clipboard", tt.clipboard, "typeof navigator.clipboard")
				for n := 0; b.run(`document.activeElement.dataset.copies`) != "command-mount"; n++ {
					if b.tab(); n > 20 {
						t.Fatal("the Tab key does not reach the button")
					}
				}
				b.key("Enter", 13, "\r")
				command := b.run(`document.getElementById("command-mount").textContent`)
				b.until(`document.getElementById("said").textContent === "Copied: " + %s`, command)
				b.expect("the focus", "command-mount", `document.activeElement.dataset.copies`)
				b.expect("the selection", "", `getSelection().toString()`)
				b.keep("copied-" + strings.Fields(name)[0])
				b.run(`document.body.append(Object.assign(document.createElement("textarea"), { id: "paper" })); document.getElementById("paper").focus()`)
				b.key("v", 86, "", "paste")
				b.expect("what was copied", command, `document.getElementById("paper").value`)
				b.until(`document.getElementById("said").textContent === ""`)
				b.uncomplaining()
			})
		}
	})

	t.Run("a server that is gone, or hangs, and comes back", func(t *testing.T) {
		for name, gone := range map[string]func(){
			"gone":  func() { p.mu.Lock(); p.gone = true; p.mu.Unlock() },
			"hangs": func() { p.mu.Lock(); p.hangs = true; p.mu.Unlock() },
			"another page": func() {
				p.change(func(string) string { return "<title>Sign in</title><main>Who are you?</main>" })
			},
		} {
			t.Run(name, func(t *testing.T) {
				p.reset(0)
				b := shared.in(t)
				b.open(p.proxy.URL + "/")
				b.run(`document.querySelector("#volumes tbody a").focus()`)
				shown := b.run(`document.querySelector("#page time").textContent`)
				gone()
				b.until(`document.getElementById("late").textContent.startsWith("podnas does not answer. What is below is of ")`)
				b.expect("what was there", "true", `document.querySelectorAll("#volumes tbody tr").length === 300 && document.querySelector("#page time").textContent >= %s`, shown)
				p.reset(0)
				b.until(`document.getElementById("late").textContent === "" && document.getElementById("said").textContent === "podnas answers again."`)
				b.refreshes(1)
				b.expect("the focus", "A", `document.activeElement.tagName`)
				for _, complaint := range b.takeComplaints() {
					if !strings.Contains(complaint, "502 (Bad Gateway)") {
						t.Error(complaint)
					}
				}
			})
		}
	})

	t.Run("a tab in the background asks for nothing", func(t *testing.T) {
		p.reset(0)
		b := shared.in(t)
		b.open(p.proxy.URL + "/")
		see := func(hidden bool) {
			b.run(`Object.defineProperty(document, "hidden", { value: %s, configurable: true }); document.dispatchEvent(new Event("visibilitychange"))`, hidden)
		}
		see(true)
		time.Sleep(time.Second) // what is on its way
		before := len(p.answered())
		time.Sleep(12 * time.Second)
		if n := len(p.answered()) - before; n != 0 {
			t.Errorf("it has asked %d times", n)
		}
		shown := b.run(`document.querySelector("#page time").textContent`)
		see(false)
		b.until(`document.querySelector("#page time").textContent > %s`, shown)
		b.refreshes(1)
		b.uncomplaining()
	})

	t.Run("names are text, also when they are patched in", func(t *testing.T) {
		p.reset(0)
		b := shared.in(t)
		b.open(p.proxy.URL + "/")
		const evil = "&lt;img src=x onerror=&#34;document.title=1&#34;&gt;&lt;script&gt;document.title=2&lt;/script&gt;"
		p.change(func(page string) string { return strings.ReplaceAll(page, "team-0/"+longName, "team-0/"+evil) })
		b.until(`document.querySelector("#volumes tbody b").textContent.includes("<img src=x")`)
		b.refreshes(1)
		b.expect("elements that nobody has made", "0", `document.querySelectorAll("#page img[src=x], #page script").length`)
		b.expect("the title", "Trouble: podnas", "document.title")
		b.uncomplaining()
	})

	for _, page := range []struct {
		name, path string
		width      int
		dark       bool
	}{
		{"many", "/", 1280, false},
		{"many", "/", 1280, true},
		{"many", "/", 375, false},
		{"many", "/", 375, true},
		{"long", "/volume/" + long, 1280, true},
		{"long", "/volume/" + long, 375, false},
		{"filtered", "/?filter=team-49", 375, true},
		{"unmatched", "/?filter=none", 375, false},
		{"unknown", "/volume/none", 375, false},
	} {
		name := fmt.Sprintf("%s-%d-dark=%t", page.name, page.width, page.dark)
		t.Run("looks "+name, func(t *testing.T) {
			p.reset(0)
			b := shared.in(t)
			b.look(page.width, 667, page.dark)
			b.open(p.proxy.URL + page.path)
			looksWell(b, page.width)
			b.keep(name)
			if page.path != "/volume/none" { // which the browser says on its console
				b.uncomplaining()
			}
		})
	}
}

// TestNothing has a podnas without volumes.
func TestNothing(t *testing.T) {
	p := start(t, "apiVersion: storage.k8s.io/v1\nkind: StorageClass\nmetadata: {name: shared}\nprovisioner: podnas.io/nfs\n")
	p.waitFor(t, "All is well.", `<span class="unseen"> space</span>`) // the machine's own disk may be nearly full
	b := newBrowser(t)
	for _, width := range []int{1280, 375} {
		b.look(width, 667, false)
		b.open(p.proxy.URL + "/")
		looksWell(b, width)
		b.keep(fmt.Sprint("nothing-", width))
	}
	b.refreshes(2)
	b.expect("what is said", "There is none yet.", `document.querySelector("#volumes p").textContent`)
	b.uncomplaining()
}

// looksWell checks that the page is as wide as the window, that its headings are in order, and what axe-core finds.
func looksWell(b *browser, width int) {
	b.t.Helper()
	axe, err := os.ReadFile(os.Getenv("AXE"))
	if err != nil {
		b.t.Fatal("no axe-core: run this with make page: ", err)
	}
	b.expect("the width", "true", `document.documentElement.scrollWidth <= %s && [...document.querySelectorAll("body *")].every((e) => e.getBoundingClientRect().right <= %[1]s || e.closest(".unseen"))`, width)
	b.expect("the headings", "[]", `JSON.stringify([...document.querySelectorAll("h1, h2, h3")].map((h) => Number(h.localName[1])).filter((level, i, all) => (i ? level > all[i - 1] + 1 : level !== 1)))`)
	b.expect("links without words", "0", `[...document.querySelectorAll("a")].filter((a) => !/\w{3}/.test(a.textContent)).length`)
	b.run(string(axe) + "; undefined")
	b.expect("axe-core", "[]", `axe.run().then(({ violations }) => JSON.stringify(violations.map(({ id, help, nodes }) => [id, help, nodes.slice(0, 3).map((n) => n.html.slice(0, 200) + n.failureSummary)])))`)
}

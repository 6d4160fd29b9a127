//go:build page

package page_test

import (
	"bufio"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// browser is a Chromium with one tab that does what a person does. It is driven by the DevTools protocol over a pipe: it
// reads messages from descriptor 3 and writes them to 4, each ended by a zero byte.
// https://chromedevtools.github.io/devtools-protocol/
type browser struct {
	t       *testing.T
	pipe    *os.File
	session string

	mu         sync.Mutex
	last       int
	replies    map[int]chan message
	complaints []string // of the page, on its console
}

type message struct {
	ID        int             `json:"id,omitempty"`
	SessionID string          `json:"sessionId,omitempty"`
	Method    string          `json:"method,omitempty"`
	Params    any             `json:"params,omitempty"`
	Result    json.RawMessage `json:"result,omitempty"`
	Error     *struct {
		Message string `json:"message"`
	} `json:"error,omitempty"`
}

// replyTime is how long the browser may take.
const replyTime = time.Minute

// newBrowser starts a browser, which ends with the test.
func newBrowser(t *testing.T, args ...string) *browser {
	t.Helper()
	theirIn, in, err := os.Pipe()
	mustDo(t, err)
	out, theirOut, err := os.Pipe()
	mustDo(t, err)
	b := &browser{t: t, pipe: in, replies: map[int]chan message{}}
	ctx, cancel := context.WithCancel(context.Background())
	cmd := exec.CommandContext(ctx, chromiumPath(t), append(chromiumFlags(t), append(args, "--remote-debugging-pipe")...)...)
	cmd.ExtraFiles = []*os.File{theirIn, theirOut}
	mustDo(t, cmd.Start())
	mustDo(t, theirIn.Close())
	mustDo(t, theirOut.Close())
	var reading sync.WaitGroup
	reading.Go(func() { b.read(out) })
	t.Cleanup(func() {
		in.Close() // it ends with its pipe
		timeout := time.AfterFunc(10*time.Second, cancel)
		_ = cmd.Wait()
		timeout.Stop()
		cancel()
		reading.Wait()
		out.Close()
	})
	var target struct{ TargetID, SessionID string }
	b.ask("Target.createTarget", map[string]any{"url": "about:blank"}, &target)
	b.ask("Target.attachToTarget", map[string]any{"targetId": target.TargetID, "flatten": true}, &target)
	b.session = target.SessionID
	for _, domain := range []string{"Page", "Runtime", "Log"} {
		b.ask(domain+".enable", nil, nil)
	}
	return b
}

func (b *browser) read(out *os.File) {
	lines := bufio.NewReader(out)
	for {
		text, err := lines.ReadBytes(0)
		if err != nil {
			return
		}
		var m message
		if json.Unmarshal(text[:len(text)-1], &m) != nil {
			continue
		}
		b.mu.Lock()
		switch m.Method {
		case "Runtime.exceptionThrown", "Log.entryAdded", "Runtime.consoleAPICalled":
			b.complaints = append(b.complaints, string(text[:len(text)-1]))
		case "":
			b.replies[m.ID] <- m // it has room
			delete(b.replies, m.ID)
		}
		b.mu.Unlock()
	}
}

// ask calls a method of the protocol.
func (b *browser) ask(method string, params, result any) {
	b.t.Helper()
	reply := make(chan message, 1)
	b.mu.Lock()
	b.last++
	m := message{ID: b.last, SessionID: b.session, Method: method, Params: params}
	b.replies[m.ID] = reply
	b.mu.Unlock()
	text, err := json.Marshal(m)
	mustDo(b.t, err)
	_, err = b.pipe.Write(append(text, 0))
	mustDo(b.t, err)
	select {
	case m = <-reply:
	case <-time.After(replyTime):
		b.t.Fatalf("the browser does not answer %s", method)
	}
	if m.Error != nil {
		b.t.Fatalf("%s: %s", method, m.Error.Message)
	}
	if result != nil {
		mustDo(b.t, json.Unmarshal(m.Result, result))
	}
}

// run runs a script in the page, with arguments for its %s, and returns its value, as text.
func (b *browser) run(script string, args ...any) string {
	b.t.Helper()
	if len(args) > 0 {
		var literals []any
		for _, arg := range args {
			text, err := json.Marshal(arg)
			mustDo(b.t, err)
			literals = append(literals, string(text))
		}
		script = fmt.Sprintf(script, literals...)
	}
	var got struct {
		Result           struct{ Value json.RawMessage }
		ExceptionDetails json.RawMessage
	}
	b.ask("Runtime.evaluate", map[string]any{"expression": script, "awaitPromise": true, "returnByValue": true, "userGesture": true}, &got)
	if got.ExceptionDetails != nil {
		b.t.Fatalf("%s: %s", script, got.ExceptionDetails)
	}
	var text string
	if json.Unmarshal(got.Result.Value, &text) == nil {
		return text
	}
	return string(got.Result.Value)
}

// open loads a page.
func (b *browser) open(url string) {
	b.t.Helper()
	b.ask("Page.navigate", map[string]any{"url": url}, nil)
	b.until("document.readyState === 'complete' && location.href.startsWith(%s) && document.documentElement.className === 'scripts'", url)
}

// in is the browser in the hands of another test.
func (b *browser) in(t *testing.T) *browser {
	b.t = t
	b.takeComplaints()
	return b
}

// until waits until a script's value is true.
func (b *browser) until(script string, args ...any) {
	b.t.Helper()
	for deadline := time.Now().Add(replyTime / 2); b.run(script, args...) != "true"; time.Sleep(50 * time.Millisecond) {
		if time.Now().After(deadline) {
			b.t.Fatalf("never: %s; the page is: %s", fmt.Sprintf(script, args...), b.run("document.body.innerText"))
		}
	}
}

// expect compares a script's value.
func (b *browser) expect(what, want, script string, args ...any) {
	b.t.Helper()
	if got := b.run(script, args...); got != want {
		b.t.Errorf("%s: %q, want %q", what, got, want)
	}
}

// refreshes waits until the page has brought itself up to date so many times.
func (b *browser) refreshes(times int) {
	b.t.Helper()
	for range times {
		shown := b.run("document.querySelector('#page time').dateTime")
		b.until("document.querySelector('#page time').dateTime !== %s", shown)
	}
}

// key presses a key, like Tab or Enter. The commands are those of an editor, which a browser has instead of keys.
func (b *browser) key(key string, code int, text string, commands ...string) {
	b.t.Helper()
	down := map[string]any{"type": "keyDown", "key": key, "code": key, "windowsVirtualKeyCode": code, "text": text, "commands": append([]string{}, commands...)}
	b.ask("Input.dispatchKeyEvent", down, nil)
	b.ask("Input.dispatchKeyEvent", map[string]any{"type": "keyUp", "key": key, "code": key, "windowsVirtualKeyCode": code}, nil)
}

func (b *browser) tab() { b.t.Helper(); b.key("Tab", 9, "") }

// look changes the size of the window, and between light and dark.
func (b *browser) look(width, height int, dark bool) {
	b.t.Helper()
	scheme := "light"
	if dark {
		scheme = "dark"
	}
	b.ask("Emulation.setDeviceMetricsOverride", map[string]any{"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500}, nil)
	b.ask("Emulation.setEmulatedMedia", map[string]any{"features": []map[string]string{{"name": "prefers-color-scheme", "value": scheme}}}, nil)
}

// keep keeps a picture of the page, where PAGE_PICTURES says.
func (b *browser) keep(name string) {
	b.t.Helper()
	dir := os.Getenv("PAGE_PICTURES")
	if dir == "" {
		return
	}
	var picture struct{ Data string }
	b.ask("Page.captureScreenshot", map[string]any{"captureBeyondViewport": true}, &picture)
	data, err := base64.StdEncoding.DecodeString(picture.Data)
	mustDo(b.t, err)
	mustDo(b.t, os.WriteFile(filepath.Join(dir, name+".png"), data, 0o600))
}

// uncomplaining checks that the page has had nothing to complain of since the last call.
func (b *browser) uncomplaining() {
	b.t.Helper()
	if all := b.takeComplaints(); len(all) > 0 {
		b.t.Errorf("the browser complains:\n%s", strings.Join(all, "\n"))
	}
}

func (b *browser) takeComplaints() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	all := b.complaints
	b.complaints = nil
	return all
}

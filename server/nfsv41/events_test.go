package nfsv41

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/podnas/podnas/server/nfsv41/state"
	"github.com/podnas/podnas/server/stats"
)

// Many clients that come and go do not fill the log, and hide none that loses something. All of
// them are counted.
func TestEvents(t *testing.T) {
	var out bytes.Buffer
	e := newEvents(slog.New(slog.NewTextHandler(&out, nil)))
	const many = 5000
	for range many {
		e.tell(state.Event{Kind: state.ClientCame, Owner: "node\n", Address: "10.0.0.1:700"})
	}
	if n := strings.Count(out.String(), "\n"); n < stats.LinesBurst || n > 2*stats.LinesBurst {
		t.Errorf("%d lines, want about %d", n, stats.LinesBurst)
	}
	out.Reset()
	e.tell(state.Event{Kind: state.ClientRevoked, Owner: "node2", Address: "10.0.0.2:700", Opens: 2, Locks: 3})
	for _, want := range []string{"level=WARN", "client=node2", "address=10.0.0.2:700", `"open files lost"=2`, `"locks lost"=3`} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q lacks %q", out.String(), want)
		}
	}
	out.Reset()
	for _, version := range []string{"4.1", "4.2"} {
		e.tell(state.Event{Kind: state.ClientEvicted, Owner: "Linux NFSv" + version + " node3", Address: "10.0.0.3:700"})
		if want := `client="Linux NFSv4 node3" version=` + version + ` address=10.0.0.3:700 `; !strings.Contains(out.String(), want) {
			t.Errorf("%q lacks %q", out.String(), want)
		}
	}
	e.tell(state.Event{Kind: state.GraceEnded})
	if n := e.totals(); n.Came != many || n.Revoked != 1 || n.LostOpens != 2 || n.LostLocks != 3 || n.Evicted != 2 {
		t.Errorf("counted are %+v", n)
	}
}

func TestPrintable(t *testing.T) {
	for name, want := range map[string]string{
		"Linux NFSv4.1 node1":          "Linux NFSv4.1 node1",
		"":                             "",
		"Knoten-Ä":                     "Knoten-Ä",
		"a\x1b[31m\nb":                 `a\x1b[31m\nb`,
		"\xff\xfe":                     `\xff\xfe`,
		"\u202eright to left":          `\u202eright to left`,
		strings.Repeat("x", 200):       strings.Repeat("x", printableMax) + "...",
		strings.Repeat("ä", 100):       strings.Repeat("ä", printableMax/2) + "...",
		"x" + strings.Repeat("ä", 100): "x" + strings.Repeat("ä", printableMax/2-1) + "...",
	} {
		if got := Printable(name); got != want {
			t.Errorf("%q is shown as %q, want %q", name, got, want)
		}
	}
}

// Whatever a client calls itself, it is one line of text.
func FuzzPrintable(f *testing.F) {
	f.Add("Linux NFSv4.1 node1")
	f.Add("a\x00\x1b[2J\u202e")
	f.Fuzz(func(t *testing.T, name string) {
		got := Printable(name)
		if !utf8.ValidString(got) || strings.ContainsAny(got, "\n\r\x1b\u202e\x00") || len(got) > 10*printableMax+3 {
			t.Errorf("%q is shown as %q", name, got)
		}
	})
}

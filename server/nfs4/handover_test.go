package nfs4

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// What is handed over is of use for the next process alone, and has all that clients have: also where the
// list of clients was damaged.
func TestHandover(t *testing.T) {
	for _, tt := range []struct {
		name   string
		change func(l *life, file func(string) string, older []byte)
		opens  int  // that clients go on with
		grace  bool // whether clients have to reclaim
		aside  string
	}{
		{name: "as it was", change: func(*life, func(string) string, []byte) {}, opens: 2},
		{name: "of an older run", change: func(l *life, file func(string) string, older []byte) {
			l.do(os.WriteFile(file(handoverFile), older, 0o600))
		}, grace: true},
		{name: "without the number of the run", change: func(l *life, file func(string) string, _ []byte) {
			l.do(os.Remove(filepath.Join(file(".."), runFile)))
		}, grace: true},
		{name: "with a damaged number", change: func(l *life, file func(string) string, _ []byte) {
			l.do(os.WriteFile(filepath.Join(file(".."), runFile), nil, 0o600))
		}, grace: true},
		{name: "a client is not on the list", change: func(l *life, file func(string) string, _ []byte) {
			l.do(os.Remove(file(entries(l)[0])))
		}, opens: 2},
		{name: "a client's entry is damaged", change: func(l *life, file func(string) string, _ []byte) {
			l.do(os.WriteFile(file(entries(l)[0]), []byte("{"), 0o600))
		}, opens: 2, aside: ".json.damaged-1"},
		{name: "a client's entry is another's", change: func(l *life, file func(string) string, _ []byte) {
			b, err := os.ReadFile(file(entries(l)[1]))
			l.do(err)
			l.do(os.WriteFile(file(entries(l)[0]), b, 0o600))
		}, opens: 2},
		{name: "damaged", change: func(l *life, file func(string) string, _ []byte) {
			b, err := os.ReadFile(file(handoverFile))
			l.do(err)
			l.do(os.WriteFile(file(handoverFile), []byte(strings.Replace(string(b), `"access":1`, `"access":3`, 1)), 0o600))
		}, grace: true, aside: handoverFile + ".damaged-1"},
		{name: "a folder", change: func(l *life, file func(string) string, _ []byte) {
			l.do(errors.Join(os.Remove(file(handoverFile)), os.MkdirAll(filepath.Join(file(handoverFile), "x"), 0o700)))
		}, grace: true, aside: handoverFile + ".damaged-1"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			l := newLife(t)
			file := func(name string) string { return filepath.Join(l.cfg.Roster, name) }
			s := l.start()
			l.open(s, "one")
			l.open(s, "two")
			s.Stop()
			older, err := os.ReadFile(file(handoverFile))
			l.do(err)
			l.start().Stop() // the list is the same
			tt.change(l, file, older)

			s = l.start()
			if n := s.state.Counts(); n.Opens != tt.opens || s.state.InGrace() != tt.grace {
				t.Errorf("%d open files, want %d; grace %v, want %v\n%s", n.Opens, tt.opens, s.state.InGrace(), tt.grace, l.said)
			}
			aside, _ := filepath.Glob(file("*.damaged-*"))
			if tt.aside == "" && len(aside) > 0 || tt.aside != "" && (len(aside) != 1 || !strings.HasSuffix(aside[0], tt.aside)) {
				t.Errorf("put aside: %v, want %q", aside, tt.aside)
			}
			if tt.opens > 0 && len(entries(l)) != 2 {
				t.Errorf("the list has %v", entries(l))
			}
			if _, err := os.Lstat(file(handoverFile)); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("it is there still: %v", err)
			}
			s.Stop()
		})
	}
}

// entries are the files of the list.
func entries(l *life) (names []string) {
	paths, err := filepath.Glob(filepath.Join(l.cfg.Roster, "*.json"))
	l.do(err)
	for _, path := range paths {
		names = append(names, filepath.Base(path))
	}
	return names
}

package standalone

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// What a file says is remembered once it has not been changed for a while, and
// each change is seen, also one that leaves the size and comes at once.
func TestParsed(t *testing.T) {
	name := filepath.Join(t.TempDir(), "file")
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var p parsed[string]
	parses := 0
	look := func(want string) {
		t.Helper()
		got, _, err := p.parse(name, func(data []byte) (string, error) {
			parses++
			return string(data), nil
		})
		if err != nil || got != want {
			t.Fatalf("%q, %v, want %q", got, err, want)
		}
	}
	for i := range 100 {
		text := fmt.Sprintf("%03d", i)
		write(name, text)
		look(text)
	}
	if parses != 100 {
		t.Errorf("parsed %d times for 100 changes", parses)
	}
	remembered := func(want string) {
		t.Helper()
		for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(50 * time.Millisecond) {
			before := parses
			look(want)
			if parses == before {
				return
			}
			if time.Now().After(deadline) {
				t.Fatal("parsed each time")
			}
		}
	}
	remembered("099")

	write(name, "one")
	look("one")
	remembered("one")
	write(name+".new", "two") // as editors do
	if err := os.Rename(name+".new", name); err != nil {
		t.Fatal(err)
	}
	if err := os.Chtimes(name, time.Unix(1, 0), time.Unix(1, 0)); err != nil {
		t.Fatal(err)
	}
	look("two")
	remembered("two")

	p.forget(func(string) bool { return true })
	if len(p.files) != 1 {
		t.Errorf("%d files are remembered", len(p.files))
	}
	p.forget(func(string) bool { return false })
	if len(p.files) != 0 {
		t.Errorf("%d files are remembered", len(p.files))
	}
	if err := os.Remove(name); err != nil {
		t.Fatal(err)
	}
	if _, _, err := p.parse(name, nil); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%v", err)
	}
	write(name, "broken")
	broken := errors.New("broken")
	for range 2 {
		if got, _, err := p.parse(name, func([]byte) (string, error) { return "half", broken }); got != "half" || !errors.Is(err, broken) || len(p.files) != 0 {
			t.Errorf("%q, %v, %d remembered", got, err, len(p.files))
		}
	}
}

//go:build vm

package vm_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"
)

// churn makes, renames and removes names in a directory, one at a time, and
// keeps account of what must be there: all it was told is done.
type churn struct {
	dir  string
	quit chan struct{}
	stop func() // closes quit, once
	done chan error

	mu      sync.Mutex
	there   map[string]bool // names, and whether they must be there or must not
	unknown map[string]bool // of the operation that is under way
	steps   int
}

func startChurn(t *testing.T, dir string) *churn {
	t.Helper()
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	c := &churn{
		dir: dir, quit: make(chan struct{}), done: make(chan error, 1),
		there: map[string]bool{}, unknown: map[string]bool{},
	}
	c.stop = sync.OnceFunc(func() { close(c.quit) })
	go func() { c.done <- c.run() }()
	return c
}

func (c *churn) run() error {
	const lag = 20 // how long a name is left alone
	for i := 0; ; i++ {
		for _, do := range []func() error{
			func() error { return c.add(i) },
			func() error { return c.take(i - lag) },
		} {
			select {
			case <-c.quit:
				return nil
			default:
			}
			if err := do(); err != nil {
				return err
			}
		}
	}
}

func (c *churn) add(i int) error {
	name := fmt.Sprint("n-", i)
	path := filepath.Join(c.dir, name)
	return c.step(fs.ErrExist, map[string]bool{name: true}, func() error {
		switch i % 4 {
		case 0:
			return os.WriteFile(path, nil, 0o644)
		case 1:
			return os.Mkdir(path, 0o755)
		case 2:
			return os.Symlink("somewhere", path)
		}
		return os.Link(filepath.Join(c.dir, fmt.Sprint("n-", i-3)), path)
	})
}

func (c *churn) take(i int) error {
	if i < 0 {
		return nil
	}
	name, other := fmt.Sprint("n-", i), fmt.Sprint("r-", i)
	switch i % 3 {
	case 0:
		return c.step(fs.ErrNotExist, map[string]bool{name: false, other: true}, func() error {
			return os.Rename(filepath.Join(c.dir, name), filepath.Join(c.dir, other))
		})
	case 1:
		return c.step(fs.ErrNotExist, map[string]bool{name: false}, func() error {
			return os.Remove(filepath.Join(c.dir, name))
		})
	}
	return nil
}

// step does one operation. The error again is what comes of it when a server did
// it, ended before it answered, and the client asks the next one: NFSv3 has no
// memory of calls that outlives a server.
func (c *churn) step(again error, names map[string]bool, do func() error) error {
	c.mu.Lock()
	for name := range names {
		c.unknown[name] = true
	}
	c.mu.Unlock()
	if err := do(); err != nil && !errors.Is(err, again) {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for name, there := range names {
		c.there[name] = there
	}
	clear(c.unknown)
	c.steps++
	return nil
}

// grows waits until n more operations are done.
func (c *churn) grows(t *testing.T, n int) {
	t.Helper()
	steps := func() int {
		c.mu.Lock()
		defer c.mu.Unlock()
		return c.steps
	}
	n += steps()
	eventually(t, "names are made in "+c.dir, func() bool {
		select {
		case err := <-c.done:
			t.Fatalf("no more names are made in %s: %v", c.dir, err)
		default:
		}
		return steps() >= n
	})
}

// end ends it and returns its error. It is stopped already where the operation
// that is under way shall be the last.
func (c *churn) end(t *testing.T) error {
	t.Helper()
	c.stop()
	select {
	case err := <-c.done:
		return err
	case <-time.After(60 * time.Second):
		t.Fatal("names are still being made in " + c.dir)
		return nil
	}
}

// expect tells what must be there now; nothing of what is under way.
func (c *churn) expect() map[string]bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	want := map[string]bool{}
	for name, there := range c.there {
		if !c.unknown[name] {
			want[name] = there
		}
	}
	return want
}

// check compares a directory with what expect said.
func check(t *testing.T, dir string, want map[string]bool) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Error(err)
		return
	}
	got := map[string]bool{}
	for _, e := range entries {
		got[e.Name()] = true
	}
	for name, there := range want {
		if got[name] != there {
			t.Errorf("%s/%s is there: %v, want %v", dir, name, got[name], there)
		}
	}
}

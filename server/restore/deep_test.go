package restore_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/podnas/podnas/test/leaks"
	"github.com/podnas/podnas/test/testdisk"
)

// nest makes directories in each other.
func nest(t *testing.T, at string, levels int, name string) {
	t.Helper()
	fd, err := unix.Open(at, unix.O_RDONLY|unix.O_DIRECTORY, 0)
	must(t, err)
	for range levels {
		must(t, unix.Mkdirat(fd, name, 0o755))
		next, err := unix.Openat(fd, name, unix.O_RDONLY|unix.O_DIRECTORY, 0)
		must(t, errors.Join(err, unix.Close(fd)))
		fd = next
	}
	must(t, unix.Close(fd))
}

// heapWatch is a context that looks at the heap now and then.
type heapWatch struct {
	context.Context
	calls, most int
}

func (c *heapWatch) Err() error {
	if c.calls++; c.calls%50 == 0 {
		c.most = max(c.most, leaks.LiveHeap())
	}
	return c.Context.Err()
}

// Directories that are nested deep take memory by their number, not by its square: a client makes them, and podnas has a limit.
func TestRestoreDeep(t *testing.T) {
	const levels, most = 750, 4096 // bytes for each
	v := newVolume(t, testdisk.OneXFS(t))
	nest(t, v.dir, levels, strings.Repeat("d", 250))
	v.walked()
	v.take(t, "one")
	v.walked()
	before := leaks.LiveHeap()
	watch := &heapWatch{Context: t.Context()}
	must(t, v.restore(t, watch, "one"))
	if took := watch.most - before; watch.calls < levels || took > levels*most {
		t.Errorf("%d bytes for %d directories in each other, want at most %d", took, levels, levels*most)
	} else {
		t.Logf("%d bytes for each of %d directories in each other", took/levels, levels)
	}
}

// An error says in which directory it was, and a log has room for it.
func TestPathInError(t *testing.T) {
	const levels = 30
	v := newVolume(t, testdisk.OneXFS(t))
	nest(t, v.dir, levels, "a")
	v.walked()
	v.take(t, "one")
	v.walked()
	ended := errors.New("ended")
	// The volume is looked through before, with a call for each directory.
	for calls, want := range map[int]string{
		0:  `/: ended`,
		4:  `/a/a: ended`,
		50: `...` + strings.Repeat("/a", 20) + `: ended`,
	} {
		err := v.restore(t, &endsAfter{Context: t.Context(), left: levels + calls, err: ended}, "one")
		if !errors.Is(err, ended) || err.Error() != want {
			t.Errorf("ended at call %d: %v, want %s", calls, err, want)
		}
	}
}

//go:build vm

package large_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/podnas/podnas/nfs/nfs3"
)

// page reads a page of a directory: its names, where to go on, and whether it is
// the last.
type page func(t *testing.T, c caller, d nfs3.FH, from place) (names []string, next place, last bool)

type place struct {
	cookie uint64
	verf   [nfs3.CookieVerfSize]byte
}

func readdir(t *testing.T, c caller, d nfs3.FH, from place) (names []string, next place, last bool) {
	t.Helper()
	res, err := c.Readdir(t.Context(), nfs3.ReaddirArgs{Dir: d, Cookie: from.cookie, CookieVerf: from.verf, Count: 4 << 10})
	if err != nil || res.Status != nfs3.OK {
		t.Fatal(res.Status, err)
	}
	next = place{from.cookie, res.CookieVerf}
	for _, e := range res.Entries {
		names, next.cookie = append(names, string(e.Name)), e.Cookie
	}
	return names, next, res.EOF
}

func readdirplus(t *testing.T, c caller, d nfs3.FH, from place) (names []string, next place, last bool) {
	t.Helper()
	res, err := c.Readdirplus(t.Context(), nfs3.ReaddirplusArgs{
		Dir: d, Cookie: from.cookie, CookieVerf: from.verf, DirCount: 16 << 10, MaxCount: 16 << 10,
	})
	if err != nil || res.Status != nfs3.OK {
		t.Fatal(res.Status, err)
	}
	next = place{from.cookie, res.CookieVerf}
	for _, e := range res.Entries {
		names, next.cookie = append(names, string(e.Name)), e.Cookie
	}
	return names, next, res.EOF
}

// listWhile lists the directory while names come, change and go in it: those that
// stay are seen, and once each.
func listWhile(t *testing.T, callers []caller, d nfs3.FH, read page) {
	quit, changed := make(chan struct{}), make(chan error, 1)
	changes := 0
	go func() {
		changed <- func() error {
			for ; ; changes++ {
				select {
				case <-quit:
					return nil
				default:
				}
				if err := change(t, callers[1], d, changes); err != nil {
					return err
				}
			}
		}()
	}()
	seen := make(map[string]int, files)
	begin, pages := time.Now(), 0
	for at, last := (place{}), false; !last; pages++ {
		var names []string
		if names, at, last = read(t, callers[0], d, at); len(names) == 0 && !last {
			t.Fatalf("page %d is empty and not the last", pages)
		}
		for _, name := range names {
			seen[name]++
		}
	}
	took := time.Since(begin)
	close(quit)
	if err := <-changed; err != nil {
		t.Error(err)
	}
	wrong := 0
	for i := range files {
		if n := seen[name(i)]; n != 1 {
			if wrong++; wrong < 10 {
				t.Errorf("%s is listed %d times", name(i), n)
			}
		}
	}
	if wrong > 0 {
		t.Errorf("%d of %d entries that stay are not listed once", wrong, files)
	}
	if changes < 10 {
		t.Errorf("the directory was changed only %d times while it was listed", changes)
	}
	t.Logf("%d entries in %d pages and %.1f s, with %d changes", files, pages, took.Seconds(), changes)
}

// change makes a name, renames one of those before, and removes an older one.
func change(t *testing.T, c caller, d nfs3.FH, i int) error {
	comes := func(i int) string { return fmt.Sprint("comes-", i%1000) }
	goes := func(i int) string { return fmt.Sprint("goes-", i%1000) }
	made, err := c.Create(t.Context(), nfs3.CreateArgs{Where: nfs3.DirOpArgs{Dir: d, Name: []byte(comes(i))}})
	if err != nil || made.Status != nfs3.OK {
		return fmt.Errorf("CREATE %s: %v, %w", comes(i), made.Status, err)
	}
	if i >= 10 {
		renamed, err := c.Rename(t.Context(), d, comes(i-10), d, goes(i-10))
		if err != nil || renamed.Status != nfs3.OK {
			return fmt.Errorf("RENAME %s: %v, %w", comes(i-10), renamed.Status, err)
		}
	}
	if i >= 20 {
		removed, err := c.Remove(t.Context(), d, goes(i-20))
		if err != nil || removed.Status != nfs3.OK {
			return fmt.Errorf("REMOVE %s: %v, %w", goes(i-20), removed.Status, err)
		}
	}
	return nil
}

package statedir

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/podnas/podnas/test/testdisk"
)

var discard = slog.New(slog.DiscardHandler)

func mustDo(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// What podnas writes is written on a disk that clients fill without a pause.
func TestReserveOnFullDisk(t *testing.T) {
	for _, what := range []string{"blocks", "inodes"} {
		t.Run(what, func(t *testing.T) {
			testdisk.Small(t, func(t *testing.T, disk string) {
				r, err := OpenReserve(filepath.Join(disk, "reserve"), discard)
				mustDo(t, err)
				defer r.Close()
				if !r.refill(t.Context()) {
					t.Fatal("the reserve can't be made")
				}
				d, err := Open(filepath.Join(disk, "folder"), r, discard)
				mustDo(t, err)
				defer d.Close()
				mustDo(t, d.Write("record", []byte("old")))
				mustDo(t, os.Mkdir(filepath.Join(disk, "clients"), 0o755))
				testdisk.Fill(t, filepath.Join(disk, "clients"), what == "inodes")

				began := time.Now()
				for n := range 100 { // these cost nothing
					mustDo(t, d.Write("record", fmt.Append(nil, n, strings.Repeat("x", 10*n))))
				}
				if used := missing(r); used > 0 {
					t.Errorf("replacing a file used %d files of the reserve", used)
				}
				for n := range 20 {
					mustDo(t, d.Write(fmt.Sprint("client-", n), []byte("new")))
				}
				mustDo(t, d.Write("handover", make([]byte, 100<<10)))
				used := missing(r)
				if used > 21+10 { // a name may need a block, too, which may be somebody else's first
					t.Errorf("21 new files used %d of the reserve", used)
				}
				// A folder's names need blocks.
				for n := range 20 {
					mustDo(t, r.Do(func() error {
						return unix.Renameat(d.Fd(), fmt.Sprint("client-", n), d.Fd(), fmt.Sprint(strings.Repeat("long", 50), n))
					}))
				}
				mustDo(t, r.Do(func() error { // which takes an inode, for which it runs against those who fill the disk
					l, err := net.Listen("unix", filepath.Join(disk, "socket"))
					if err == nil {
						l.(*net.UnixListener).SetUnlinkOnClose(false)
						err = l.Close()
					}
					return err
				}))
				t.Logf("%v; %d of %d files of the reserve used", time.Since(began), missing(r), len(r.files))
				if got, err := d.Read("record", 1<<20); err != nil || !bytes.Equal(got, fmt.Append(nil, 99, strings.Repeat("x", 990))) {
					t.Errorf("%q, %v", got, err)
				}
			})
		})
	}
}

func missing(r *Reserve) (n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range r.files {
		if !s.here {
			n++
		}
	}
	return n
}

// The reserve is made again when there is room, and a file that somebody else has under another name is none of it.
func TestReserveIsMadeAgain(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "reserve")
	r, err := OpenReserve(dir, discard)
	mustDo(t, err)
	defer r.Close()
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { r.Run(ctx) })
	defer running.Wait()
	defer stop()
	whole := func() {
		t.Helper()
		for deadline := time.Now().Add(10 * time.Second); missing(r) > 0; time.Sleep(time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("%d files are missing", missing(r))
			}
		}
	}
	whole()
	full := 3
	mustDo(t, r.Do(func() error {
		if full--; full > 0 {
			return unix.ENOSPC
		}
		return nil
	}))
	whole()
	other := filepath.Join(t.TempDir(), "other")
	mustDo(t, os.Link(filepath.Join(dir, "small-00"), other))
	mustDo(t, os.Remove(filepath.Join(dir, "small-01")))
	mustDo(t, os.Mkdir(filepath.Join(dir, "small-01"), 0o700))
	r.mu.Lock()
	r.files[0].here, r.files[1].here = r.whole(&r.files[0]), r.whole(&r.files[1])
	r.mu.Unlock()
	if missing(r) != 2 {
		t.Errorf("%d files are not whole, want 2", missing(r))
	}
	r.used <- struct{}{}
	whole()
	if info, err := os.Stat(filepath.Join(dir, "small-00")); err != nil || os.SameFile(info, must(os.Stat(other))) {
		t.Errorf("another's file is in the reserve: %v", err)
	}
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// Without a reserve errors are as they are.
func TestNoReserve(t *testing.T) {
	var r *Reserve
	tries := 0
	if err := r.Do(func() error { tries++; return unix.ENOSPC }); !errors.Is(err, unix.ENOSPC) || tries != 1 {
		t.Errorf("%v after %d tries", err, tries)
	}
}

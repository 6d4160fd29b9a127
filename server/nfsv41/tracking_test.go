package nfsv41_test

import (
	"cmp"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/podnas/podnas/server/nfsv41"
	"github.com/podnas/podnas/server/nfsv41/state"
)

var discard = slog.New(slog.DiscardHandler)

// The next server knows who had state, whatever the owner's bytes are, and nothing half written.
func TestTracking(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "clients")
	r, had, err := nfsv41.OpenTracking(dir, nil, discard)
	if err != nil || len(had) > 0 {
		t.Fatalf("%v, %v: want nobody", had, err)
	}
	entries := []state.TrackedClient{{ClientID: 1, Owner: "node", Address: "10.0.0.1", Verifier: [8]byte{1, 7: 255}, Lease: 15 * time.Second}, {ClientID: 1<<64 - 1, Owner: "\x00\xff/../", Lease: 1}, {ClientID: 7, Owner: "", Lease: 1}}
	for _, e := range append(entries, entries[0]) {
		if err := r.Add(e); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 {
		if err := r.Remove(entries[2]); err != nil {
			t.Fatal(err)
		}
	}
	half := filepath.Join(dir, "new-1")
	if err := os.WriteFile(half, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, had, err = nfsv41.OpenTracking(dir, nil, discard)
	slices.SortFunc(had, func(a, b state.TrackedClient) int { return cmp.Compare(a.ClientID, b.ClientID) })
	if err != nil || !reflect.DeepEqual(had, entries[:2]) {
		t.Errorf("%v, %v, want %v", had, err, entries[:2])
	}
	if _, err := os.Stat(half); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("what is half written is kept: %v", err)
	}
}

// On a full disk who was on the list before a restart gets on it again, and a newcomer does not.
func TestTrackingOnFullDisk(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "[clients") // no pattern of file names
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=64k"); err != nil {
		t.Skipf("needs a disk that can be filled: %v", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	r, _, err := nfsv41.OpenTracking(dir, nil, discard)
	if err != nil {
		t.Fatal(err)
	}
	before, again := state.TrackedClient{ClientID: 1, Owner: "node", Lease: time.Minute}, state.TrackedClient{ClientID: 2, Owner: "node", Address: "10.0.0.1", Lease: time.Second}
	elsewhere := state.TrackedClient{ClientID: 4, Owner: "moved", Address: "10.0.0.1", Lease: 30 * time.Second}
	if err := errors.Join(r.Add(before), r.Add(elsewhere)); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "full"), make([]byte, 1<<20), 0o600); !errors.Is(err, syscall.ENOSPC) {
		t.Fatalf("the disk is not full: %v", err)
	}
	if err := r.Add(state.TrackedClient{ClientID: 3, Owner: "newcomer", Lease: time.Second}); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("a newcomer: %v", err)
	}
	for _, e := range []state.TrackedClient{
		{ClientID: 5, Owner: "moved", Address: "10.0.0.2", Lease: 30 * time.Second},
		{ClientID: 6, Owner: "moved", Address: "10.0.0.1", Lease: 31 * time.Second},
	} {
		if err := r.Add(e); !errors.Is(err, syscall.ENOSPC) {
			t.Errorf("%v has an entry that says less: %v", e, err)
		}
	}
	if err := errors.Join(r.Add(again), r.Add(again), r.Remove(before, elsewhere)); err != nil {
		t.Errorf("again: %v", err)
	}
	again.Address, again.Lease = "", time.Minute // as before
	if _, had, err := nfsv41.OpenTracking(dir, nil, discard); err != nil || !reflect.DeepEqual(had, []state.TrackedClient{again}) {
		t.Errorf("%v, %v, want %v", had, err, again)
	}
}

// The first OPENs of a client come at the same time, and each adds it.
func TestTrackingAtOnce(t *testing.T) {
	dir := t.TempDir()
	r, _, err := nfsv41.OpenTracking(dir, nil, discard)
	if err != nil {
		t.Fatal(err)
	}
	e := state.TrackedClient{ClientID: 1, Owner: strings.Repeat("node", 100), Lease: time.Second}
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 20 {
				if err := r.Add(e); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	if _, had, err := nfsv41.OpenTracking(dir, nil, discard); err != nil || !reflect.DeepEqual(had, []state.TrackedClient{e}) {
		t.Errorf("%v, %v, want %v", had, err, e)
	}
}

// Builds that had one lease noted only the owner. Its client may reclaim all the same.
func TestTrackingOfAnEarlierBuild(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "0000000000000001.json"), []byte(`{"owner":"bm9kZQ=="}`), 0o600); err != nil {
		t.Fatal(err)
	}
	want := []state.TrackedClient{{ClientID: 1, Owner: "node", Lease: 30 * time.Second}}
	if _, had, err := nfsv41.OpenTracking(dir, nil, discard); err != nil || !reflect.DeepEqual(had, want) {
		t.Errorf("%+v, %v, want %+v", had, err, want)
	}
}

// A file that is damaged is put aside, and its client has nothing to reclaim. All others have.
func TestDamagedTracking(t *testing.T) {
	const good, bad = "0000000000000001.json", "0000000000000002.json"
	outside := filepath.Join(t.TempDir(), "outside")
	if err := os.WriteFile(outside, []byte(`{"owner":"bm9kZQ==","lease":1}`), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, damage := range map[string]func(path string) error{
		"half":               func(path string) error { return os.WriteFile(path, []byte(`{"owner":`), 0o600) },
		"empty":              func(path string) error { return os.WriteFile(path, nil, 0o600) },
		"a lease below zero": func(path string) error { return os.WriteFile(path, []byte(`{"owner":"bm9kZQ==","lease":-1}`), 0o600) },
		"zeros":              func(path string) error { return os.WriteFile(path, make([]byte, 30), 0o600) },
		"too large":          func(path string) error { return os.WriteFile(path, make([]byte, 1<<20), 0o600) },
		"folder":             func(path string) error { return os.MkdirAll(filepath.Join(path, "with", "something"), 0o700) },
		"fifo":               func(path string) error { return syscall.Mkfifo(path, 0o600) },
		"link":               func(path string) error { return os.Symlink(outside, path) },
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			if err := os.WriteFile(filepath.Join(dir, good), []byte(`{"owner":"bm9kZQ==","lease":1}`), 0o600); err != nil {
				t.Fatal(err)
			}
			if err := damage(filepath.Join(dir, bad)); err != nil {
				t.Fatal(err)
			}
			for range 2 {
				_, had, err := nfsv41.OpenTracking(dir, nil, discard)
				if err != nil || !reflect.DeepEqual(had, []state.TrackedClient{{ClientID: 1, Owner: "node", Lease: 1}}) {
					t.Fatalf("%v, %v", had, err)
				}
			}
			if _, err := os.Lstat(filepath.Join(dir, bad+".damaged-1")); err != nil {
				t.Error(err)
			}
			if _, err := os.Lstat(filepath.Join(dir, bad)); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("it is there: %v", err)
			}
		})
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "nobody.json"), []byte(`{}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, had, err := nfsv41.OpenTracking(dir, nil, discard); err != nil || len(had) > 0 {
		t.Errorf("a file that is no client's: %v, %v", had, err)
	}
}

// A folder of the client tracking that is a link is put aside: nothing is removed where it leads.
func TestTrackingLink(t *testing.T) {
	outside, dir := t.TempDir(), filepath.Join(t.TempDir(), "clients")
	if err := errors.Join(os.WriteFile(filepath.Join(outside, "file"), nil, 0o600), os.Symlink(outside, dir)); err != nil {
		t.Fatal(err)
	}
	if _, had, err := nfsv41.OpenTracking(dir, nil, discard); err != nil || len(had) > 0 {
		t.Errorf("%v, %v", had, err)
	}
	if _, err := os.Stat(filepath.Join(outside, "file")); err != nil {
		t.Error(err)
	}
}

// The client tracking is written by root, also where a call is done as its caller.
func TestTrackingAsCaller(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root, to act as another")
	}
	r, _, err := nfsv41.OpenTracking(filepath.Join(t.TempDir(), "clients"), nil, discard)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // it ends with the goroutine
		if err := syscall.Setfsuid(1000); err != nil {
			done <- err
			return
		}
		e := state.TrackedClient{ClientID: 1, Owner: "node", Lease: time.Second}
		done <- errors.Join(r.Add(e), r.Remove(e))
	}()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

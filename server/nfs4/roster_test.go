package nfs4

import (
	"cmp"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/podnas/podnas/server/nfs4/state"
)

// The next server knows who had state, whatever the owner's bytes are, and nothing half written.
func TestRoster(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "clients")
	r, had, err := openRoster(dir)
	if err != nil || len(had) > 0 {
		t.Fatalf("%v, %v: want nobody", had, err)
	}
	entries := []state.RosterEntry{{ClientID: 1, Owner: "node"}, {ClientID: 1<<64 - 1, Owner: "\x00\xff/../"}, {ClientID: 7, Owner: ""}}
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
	_, had, err = openRoster(dir)
	slices.SortFunc(had, func(a, b state.RosterEntry) int { return cmp.Compare(a.ClientID, b.ClientID) })
	if err != nil || !reflect.DeepEqual(had, entries[:2]) {
		t.Errorf("%v, %v, want %v", had, err, entries[:2])
	}
	if _, err := os.Stat(half); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("what is half written is kept: %v", err)
	}
}

// On a full disk who was on the list before a restart gets on it again, and a newcomer does not.
func TestRosterOnFullDisk(t *testing.T) {
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
	r, _, err := openRoster(dir)
	if err != nil {
		t.Fatal(err)
	}
	before, again := state.RosterEntry{ClientID: 1, Owner: "node"}, state.RosterEntry{ClientID: 2, Owner: "node"}
	if err := r.Add(before); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "full"), make([]byte, 1<<20), 0o600); !errors.Is(err, syscall.ENOSPC) {
		t.Fatalf("the disk is not full: %v", err)
	}
	if err := r.Add(state.RosterEntry{ClientID: 3, Owner: "newcomer"}); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("a newcomer: %v", err)
	}
	if err := errors.Join(r.Add(again), r.Add(again), r.Remove(before)); err != nil {
		t.Errorf("again: %v", err)
	}
	if _, had, err := openRoster(dir); err != nil || !reflect.DeepEqual(had, []state.RosterEntry{again}) {
		t.Errorf("%v, %v, want %v", had, err, again)
	}
}

// The first OPENs of a client come at the same time, and each adds it.
func TestRosterAtOnce(t *testing.T) {
	dir := t.TempDir()
	r, _, err := openRoster(dir)
	if err != nil {
		t.Fatal(err)
	}
	e := state.RosterEntry{ClientID: 1, Owner: strings.Repeat("node", 100)}
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
	if _, had, err := openRoster(dir); err != nil || !reflect.DeepEqual(had, []state.RosterEntry{e}) {
		t.Errorf("%v, %v, want %v", had, err, e)
	}
}

// What is damaged is named, with what to do: nobody's locks are given away in silence.
func TestDamagedRoster(t *testing.T) {
	for name, content := range map[string]string{"0000000000000001.json": `{"owner":`, "nobody.json": `{}`} {
		dir := t.TempDir()
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, _, err := openRoster(dir); err == nil || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), "remove it") {
			t.Errorf("%s: %v, want an error that names it", name, err)
		}
	}
}

// The roster is written by root, also where a call is done as its caller.
func TestRosterAsCaller(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root, to act as another")
	}
	r, _, err := openRoster(filepath.Join(t.TempDir(), "clients"))
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
		e := state.RosterEntry{ClientID: 1, Owner: "node"}
		done <- errors.Join(r.Add(e), r.Remove(e))
	}()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

package durable

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/podnas/podnas/server/disk"
	"github.com/podnas/podnas/server/stats"
	"github.com/podnas/podnas/test/leaks"
)

func TestMain(m *testing.M) { leaks.Main(m) }

type toldFunc func(error)

func (f toldFunc) Synced(err error) { f(err) }

// begun is a volume whose files are synced.
type begun struct {
	*Syncer
	t      *testing.T
	dir    string
	volume Volume
	fs     disk.FS
	counts stats.Syncs
}

func begin(t *testing.T) *begun {
	b := &begun{Syncer: New(slog.New(slog.DiscardHandler)), t: t, dir: t.TempDir()}
	b.volume.Init(7, "/v", &b.fs, &b.counts)
	return b
}

// file opens a new file, or a directory.
func (b *begun) file(name string, kind Kind) *File {
	b.t.Helper()
	path := filepath.Join(b.dir, name)
	if kind == Names {
		mustBeNil(b.t, os.Mkdir(path, 0o755))
	} else {
		mustBeNil(b.t, os.WriteFile(path, nil, 0o644))
	}
	opened, err := os.Open(path)
	mustBeNil(b.t, err)
	b.t.Cleanup(func() { _ = opened.Close() })
	return b.of(int(opened.Fd()), kind, new(State))
}

func (b *begun) of(fd int, kind Kind, state *State) *File {
	f := new(File)
	f.Init(&b.volume, fd, kind, state, nil)
	return f
}

// then begins a sync that tells w.
func (b *begun) then(f *File, dataOnly bool, w toldFunc) {
	b.sync(waiting{f, f.Sample(), w, nil}, dataOnly)
}

// syncing returns a function by which a call waits for the sync of a file. When it is told, it puts something into told, and
// holds its round until goOn is closed. Only the sync of bad may fail, and must.
func (b *begun) syncing(bad *File, told, goOn chan struct{}) (wait func(*File)) {
	return func(file *File) {
		b.then(file, false, func(err error) {
			if (err != nil) != (file == bad) {
				b.t.Errorf("fd %d: %v", file.fd, err)
			}
			told <- struct{}{}
			<-goOn
		})
	}
}

func (b *begun) syncs() uint64 { return b.counts.Durations.Snapshot().Count }

// Calls that come while a file is synced share its next sync, and each is told once.
func TestSyncsAreShared(t *testing.T) {
	b := begin(t)
	f := b.file("file", Write)

	inFirst, goOn := make(chan struct{}), make(chan struct{})
	b.then(f, false, toldFunc(func(err error) {
		mustBeNil(t, err)
		close(inFirst)
		<-goOn
	}))
	<-inFirst
	var told sync.WaitGroup
	for i := range 20 {
		told.Add(1)
		w := toldFunc(func(err error) {
			mustBeNil(t, err)
			told.Done()
		})
		if i%2 == 0 {
			b.then(f, true, w)
		} else {
			b.then(f, false, w)
		}
	}
	f.state.syncs.mu.Lock()
	if waiting, data := len(f.state.syncs.waiting), f.state.syncs.data; waiting != 20 || data {
		t.Errorf("%d wait, of the data alone: %v; want 20 that wait for all", waiting, data)
	}
	f.state.syncs.mu.Unlock()
	close(goOn)
	told.Wait()
	if n := b.syncs(); n != 2 {
		t.Errorf("%d syncs, want one of the first and one of all others", n)
	}
}

// On disks that are known for it, directories are synced together: each once in a round, and
// each call is told what became of its own. Rounds begin beside each other when as many
// calls wait as are in rounds.
func TestDirectoriesAreSyncedTogether(t *testing.T) {
	b := begin(t)
	b.fs.Settled = true
	one, other := b.file("a", Names), b.file("b", Names)
	bad := b.of(-1, Names, new(State))
	state := func() [3]int {
		names := &b.volume.dirs
		names.mu.Lock()
		defer names.mu.Unlock()
		return [3]int{len(names.waiting), names.rounds, names.inRound}
	}
	goOn := make(chan struct{})
	hold := func(f *File) { // a round of one call that goes on
		in := make(chan struct{})
		b.then(f, false, toldFunc(func(err error) {
			mustBeNil(t, err)
			close(in)
			<-goOn
		}))
		<-in
	}
	hold(one)
	if ok, err := b.Here(other, other.Sample(), false); ok || err != nil {
		t.Errorf("a round goes on: %v, %v", ok, err)
	}
	hold(other)
	before := b.syncs()
	told := make(chan struct{}, 5)
	wait := b.syncing(bad, told, goOn)
	wait(one)
	if got := state(); got != [3]int{1, 2, 2} {
		t.Errorf("%v wait, rounds, and in rounds; want one that waits beside two rounds of one", got)
	}
	wait(other) // as many as in rounds
	<-told
	if got := state(); got != [3]int{0, 3, 4} {
		t.Errorf("%v wait, rounds, and in rounds; want a third round, of two", got)
	}
	for _, file := range []*File{one, bad, one} {
		wait(file)
	}
	if n := b.syncs() - before; n != 2 {
		t.Errorf("%d syncs of two directories", n)
	}
	close(goOn)
	for range 4 {
		<-told
	}
	for state() != [3]int{} {
		time.Sleep(time.Millisecond)
	}
	if n := b.syncs() - before; n != 4 {
		t.Errorf("%d syncs, want two more: two calls wait for one of them", n)
	}
}

// Where the disk has a journal, files with little to write are synced together, one round after the other as long as
// nothing is left to wait for after the first: each once in a round, and each call is told what became of its own.
func TestFilesAreSyncedTogether(t *testing.T) {
	b := begin(t)
	b.fs.Journal = true
	one, other := b.file("a", Write), b.file("b", Write)
	bad := b.of(-1, Write, new(State))
	goOn, told := make(chan struct{}), make(chan struct{}, 5)
	wait := b.syncing(bad, told, goOn)
	before := b.syncs()
	wait(one) // a round that goes on
	<-told
	for _, file := range []*File{one, bad, other, one} {
		wait(file)
	}
	together := &b.volume.files
	together.mu.Lock()
	if together.rounds != 1 || len(together.waiting) != 4 {
		t.Errorf("%d rounds, and %d wait, want one that 4 wait for", together.rounds, len(together.waiting))
	}
	together.mu.Unlock()
	if ok, err := b.Here(other, other.Sample(), true); !ok || err != nil {
		t.Errorf("a sync of a file alone: %v, %v", ok, err)
	}
	other.Changed(littleBytes)
	much := make(chan error, 1)
	b.then(other, true, toldFunc(func(err error) { much <- err }))
	mustBeNil(t, <-much) // with much to write it is not synced with others
	if n := b.syncs() - before; n != 3 {
		t.Errorf("%d syncs, want 3", n)
	}
	close(goOn)
	for range 4 {
		<-told
	}
	if n := b.syncs() - before; n != 6 {
		t.Errorf("%d syncs, want one more for each of 3 files", n)
	}
}

// Rounds begin beside each other after one in which a file had to wait after the first, until none has.
func TestSlowDisk(t *testing.T) {
	b := begin(t)
	b.fs.Journal = true
	var files []*File
	for name := range 4 {
		files = append(files, b.file(fmt.Sprint(name), Write))
	}
	together := &b.volume.files
	state := func() (rounds int, aside bool) {
		together.mu.Lock()
		defer together.mu.Unlock()
		return together.rounds, together.aside
	}
	before := b.syncs()
	told, goOn := make(chan struct{}, 5), make(chan struct{})
	wait := b.syncing(nil, told, goOn)
	wait(files[0]) // a round that goes on, or the others are not one round
	<-told
	for _, file := range files {
		wait(file)
	}
	slow := files[2].state
	slow.syncing.Lock() // as if its sync took long; the last, which has changed last, is synced before
	close(goOn)
	for b.syncs() < before+2 {
		time.Sleep(slowSync)
	}
	time.Sleep(2 * slowSync)
	slow.syncing.Unlock()
	for range files {
		<-told
	}
	if n := b.syncs() - before; n != 5 {
		t.Errorf("%d syncs, want one, and one of each of 4 files", n)
	}
	for rounds, aside := state(); rounds > 0 || !aside; rounds, aside = state() {
		if rounds == 0 {
			t.Fatal("a file had to wait after the first, and rounds wait for each other")
		}
		time.Sleep(time.Millisecond)
	}

	together.mu.Lock()
	together.rounds, together.inRound = 1, 3 // so that two calls begin none
	together.mu.Unlock()
	wait(files[0])
	wait(files[0])
	if !together.more() {
		t.Fatal("nobody waits")
	}
	b.rounds(together)
	if _, aside := state(); aside {
		t.Error("no file had to wait after the first, and rounds do not wait for each other")
	}
}

// Here syncs unless another goroutine does, and not for other calls.
func TestHere(t *testing.T) {
	b := begin(t)
	f := b.file("file", Write)

	for n, dataOnly := range []bool{false, true} {
		if ok, err := b.Here(f, f.Sample(), dataOnly); !ok || err != nil || b.syncs() != uint64(n)+1 {
			t.Errorf("nobody syncs the file: %v, %v, after %d syncs", ok, err, b.syncs())
		}
	}
	before := b.syncs()
	inSync, goOn := make(chan struct{}), make(chan struct{})
	b.then(f, false, toldFunc(func(err error) {
		mustBeNil(t, err)
		close(inSync)
		<-goOn
	}))
	<-inSync
	if ok, err := b.Here(f, f.Sample(), false); ok || err != nil || b.syncs() != before+1 {
		t.Errorf("another syncs the file: %v, %v, after %d syncs", ok, err, b.syncs()-before)
	}
	close(goOn)

	// A call that arrives while it is synced here gets another sync.
	file := b.of(f.fd, Other, new(State))
	if !file.state.syncs.begin() {
		t.Fatal("a file that nobody has is synced")
	}
	told := make(chan error, 1)
	b.sync(waiting{file, 0, toldFunc(func(err error) { told <- err }), nil}, false)
	if !file.state.syncs.more() {
		t.Fatal("nobody waits")
	}
	b.rounds(&file.state.syncs)
	mustBeNil(t, <-told)
	if !file.state.syncs.begin() {
		t.Error("the file is still synced")
	}
}

// All who wait for a sync are told that it failed.
func TestSyncFails(t *testing.T) {
	b := begin(t)
	gone, failed := b.of(-1, Other, new(State)), make(chan error, 3)
	for range 3 {
		b.sync(waiting{gone, 0, toldFunc(func(err error) { failed <- err }), nil}, false)
	}
	for range 3 {
		if err := <-failed; !errors.Is(err, unix.ENOENT) {
			t.Errorf("told %v, want %v", err, unix.ENOENT)
		}
	}
	if b.counts.Failed.Load() == 0 {
		t.Error("no failed sync was counted")
	}
}

func mustBeNil(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Error(err)
	}
}

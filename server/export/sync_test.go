package export

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/podnas/podnas/server/actas"
	"github.com/podnas/podnas/server/disk"
)

type waiterFunc func(error)

func (f waiterFunc) synced(err error) { f(err) }

// syncThen begins a sync that tells w.
func syncThen(f *File, dataOnly bool, w waiterFunc) {
	f.opener.sync(waiting{f.openFile(), f.since, w, nil}, dataOnly)
}

// syncing returns a function by which a call waits for the sync of a file. When it is told, it puts something into told, and
// holds its round until goOn is closed. Only the sync of bad may fail, and must.
func syncing(t *testing.T, o *Opener, bad *openFile, told, goOn chan struct{}) (wait func(*openFile)) {
	return func(file *openFile) {
		o.sync(waiting{file, file.state.errs.sample(), waiterFunc(func(err error) {
			if (err != nil) != (file == bad) {
				t.Errorf("fd %d: %v", file.fd, err)
			}
			told <- struct{}{}
			<-goOn
		}), nil}, false)
	}
}

// Calls that come while a file is synced share its next sync, and each is told once.
func TestSyncsAreShared(t *testing.T) {
	o, root, dir := openerAt(t)
	mustDo(t, os.WriteFile(filepath.Join(dir, "file"), nil, 0o644))
	f, err := o.Open(netip.Addr{}, handleOf(t, o, root, "file"), UseWrite)
	mustDo(t, err)
	defer f.Close()
	f.Volume.disk.Journal = false // else it is synced with other files

	inFirst, goOn := make(chan struct{}), make(chan struct{})
	syncThen(f, false, waiterFunc(func(err error) {
		mustBeNil(t, err)
		close(inFirst)
		<-goOn
	}))
	<-inFirst
	var told sync.WaitGroup
	for i := range 20 {
		told.Add(1)
		w := waiterFunc(func(err error) {
			mustBeNil(t, err)
			told.Done()
		})
		if i%2 == 0 {
			syncThen(f, true, w)
		} else {
			syncThen(f, false, w)
		}
	}
	f.kept.state.syncs.mu.Lock()
	if waiting, data := len(f.kept.state.syncs.waiting), f.kept.state.syncs.data; waiting != 20 || data {
		t.Errorf("%d wait, of the data alone: %v; want 20 that wait for all", waiting, data)
	}
	f.kept.state.syncs.mu.Unlock()
	close(goOn)
	told.Wait()
	if n := f.Volume.syncs.Durations.Snapshot().Count; n != 2 {
		t.Errorf("%d syncs, want one of the first and one of all others", n)
	}
}

// On disks that are known for it, directories are synced together: each once in a round, and
// each call is told what became of its own. Rounds begin beside each other when as many
// calls wait as are in rounds.
func TestDirectoriesAreSyncedTogether(t *testing.T) {
	o, root, dir := openerAt(t)
	open := func(name string) *File {
		mustDo(t, os.Mkdir(filepath.Join(dir, name), 0o755))
		f, err := o.Open(netip.Addr{}, handleOf(t, o, root, name), UseNames)
		mustDo(t, err)
		t.Cleanup(f.Close)
		f.Volume.disk.Settled = true
		return f
	}
	a, b := open("a"), open("b")
	bad := &openFile{key: a.openFile().key, use: UseNames, fd: -1, state: &syncState{}}
	state := func() [3]int {
		names := &a.Volume.dirSyncs
		names.mu.Lock()
		defer names.mu.Unlock()
		return [3]int{len(names.waiting), names.rounds, names.inRound}
	}
	goOn := make(chan struct{})
	hold := func(f *File) { // a round of one call that goes on
		in := make(chan struct{})
		syncThen(f, false, waiterFunc(func(err error) {
			mustBeNil(t, err)
			close(in)
			<-goOn
		}))
		<-in
	}
	hold(a)
	if ok, err := b.SyncHere(false); ok || err != nil {
		t.Errorf("a round goes on: %v, %v", ok, err)
	}
	hold(b)
	syncs := func() uint64 { return a.Volume.syncs.Durations.Snapshot().Count }
	before := syncs()
	told := make(chan struct{}, 5)
	wait := syncing(t, o, bad, told, goOn)
	wait(a.openFile())
	if got := state(); got != [3]int{1, 2, 2} {
		t.Errorf("%v wait, rounds, and in rounds; want one that waits beside two rounds of one", got)
	}
	wait(b.openFile()) // as many as in rounds
	<-told
	if got := state(); got != [3]int{0, 3, 4} {
		t.Errorf("%v wait, rounds, and in rounds; want a third round, of two", got)
	}
	for _, file := range []*openFile{a.openFile(), bad, a.openFile()} {
		wait(file)
	}
	if n := syncs() - before; n != 2 {
		t.Errorf("%d syncs of two directories", n)
	}
	close(goOn)
	for range 4 {
		<-told
	}
	for state() != [3]int{} {
		time.Sleep(time.Millisecond)
	}
	if n := syncs() - before; n != 4 {
		t.Errorf("%d syncs, want two more: two calls wait for one of them", n)
	}
}

// Where the disk has a journal, files with little to write are synced together, one round after the other as long as
// nothing is left to wait for after the first: each once in a round, and each call is told what became of its own.
func TestFilesAreSyncedTogether(t *testing.T) {
	o, root, dir := openerAt(t)
	open := func(name string) *File {
		mustDo(t, os.WriteFile(filepath.Join(dir, name), nil, 0o644))
		f, err := o.Open(netip.Addr{}, handleOf(t, o, root, name), UseWrite)
		mustDo(t, err)
		t.Cleanup(f.Close)
		f.Volume.disk.Journal = true
		return f
	}
	a, b := open("a"), open("b")
	bad := &openFile{key: a.kept.key, use: UseWrite, fd: -1, state: &syncState{}}
	goOn, told := make(chan struct{}), make(chan struct{}, 5)
	wait := syncing(t, o, bad, told, goOn)
	syncs := func() uint64 { return a.Volume.syncs.Durations.Snapshot().Count }
	before := syncs()
	wait(a.kept) // a round that goes on
	<-told
	for _, file := range []*openFile{a.kept, bad, b.kept, a.kept} {
		wait(file)
	}
	together := &a.Volume.fileSyncs
	together.mu.Lock()
	if together.rounds != 1 || len(together.waiting) != 4 {
		t.Errorf("%d rounds, and %d wait, want one that 4 wait for", together.rounds, len(together.waiting))
	}
	together.mu.Unlock()
	if ok, err := b.SyncHere(true); !ok || err != nil {
		t.Errorf("a sync of a file alone: %v, %v", ok, err)
	}
	_, _, err := b.WriteAt(make([]byte, littleBytes), 0)
	mustDo(t, err)
	much := make(chan error, 1)
	syncThen(b, true, waiterFunc(func(err error) { much <- err }))
	mustDo(t, <-much) // with much to write it is not synced with others
	if n := syncs() - before; n != 3 {
		t.Errorf("%d syncs, want 3", n)
	}
	close(goOn)
	for range 4 {
		<-told
	}
	if n := syncs() - before; n != 6 {
		t.Errorf("%d syncs, want one more for each of 3 files", n)
	}
}

// Rounds begin beside each other after one in which a file had to wait after the first, until none has.
func TestSlowDisk(t *testing.T) {
	o, root, dir := openerAt(t)
	var files []*openFile
	for name := range 4 {
		mustDo(t, os.WriteFile(filepath.Join(dir, fmt.Sprint(name)), nil, 0o644))
		f, err := o.Open(netip.Addr{}, handleOf(t, o, root, fmt.Sprint(name)), UseWrite)
		mustDo(t, err)
		t.Cleanup(f.Close)
		f.Volume.disk.Journal = true
		files = append(files, f.kept)
	}
	together := &files[0].key.volume.fileSyncs
	state := func() (rounds int, aside bool) {
		together.mu.Lock()
		defer together.mu.Unlock()
		return together.rounds, together.aside
	}
	syncs := func() uint64 { return files[0].key.volume.syncs.Durations.Snapshot().Count }
	before := syncs()
	told, goOn := make(chan struct{}, 5), make(chan struct{})
	wait := syncing(t, o, nil, told, goOn)
	wait(files[0]) // a round that goes on, or the others are not one round
	<-told
	for _, file := range files {
		wait(file)
	}
	files[2].state.syncing.Lock() // as if its sync took long; the last, which has changed last, is synced before
	close(goOn)
	for syncs() < before+2 {
		time.Sleep(slowSync)
	}
	time.Sleep(2 * slowSync)
	files[2].state.syncing.Unlock()
	for range files {
		<-told
	}
	if n := syncs() - before; n != 5 {
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
	o.syncRounds(together)
	if _, aside := state(); aside {
		t.Error("no file had to wait after the first, and rounds do not wait for each other")
	}
}

// SyncHere syncs unless another goroutine does, and not for other calls.
func TestSyncHere(t *testing.T) {
	o, root, dir := openerAt(t)
	mustDo(t, os.WriteFile(filepath.Join(dir, "file"), nil, 0o644))
	f, err := o.Open(netip.Addr{}, handleOf(t, o, root, "file"), UseWrite)
	mustDo(t, err)
	defer f.Close()
	f.Volume.disk.Journal = false // else it is synced with other files
	syncs := func() uint64 { return f.Volume.syncs.Durations.Snapshot().Count }

	for n, dataOnly := range []bool{false, true} {
		if ok, err := f.SyncHere(dataOnly); !ok || err != nil || syncs() != uint64(n)+1 {
			t.Errorf("nobody syncs the file: %v, %v, after %d syncs", ok, err, syncs())
		}
	}
	before := syncs()
	inSync, goOn := make(chan struct{}), make(chan struct{})
	syncThen(f, false, waiterFunc(func(err error) {
		mustBeNil(t, err)
		close(inSync)
		<-goOn
	}))
	<-inSync
	if ok, err := f.SyncHere(false); ok || err != nil || syncs() != before+1 {
		t.Errorf("another syncs the file: %v, %v, after %d syncs", ok, err, syncs()-before)
	}
	close(goOn)

	// A call that arrives while it is synced here gets another sync.
	file := &openFile{key: f.kept.key, fd: f.kept.fd, state: &syncState{}}
	if !file.state.syncs.begin() {
		t.Fatal("a file that nobody has is synced")
	}
	told := make(chan error, 1)
	o.sync(waiting{file, 0, waiterFunc(func(err error) { told <- err }), nil}, false)
	if !file.state.syncs.more() {
		t.Fatal("nobody waits")
	}
	o.syncRounds(&file.state.syncs)
	mustDo(t, <-told)
	if !file.state.syncs.begin() {
		t.Error("the file is still synced")
	}
}

// Every file and directory can be synced, however it was opened, and for who has no
// rights to it; what has only a name, at once.
func TestBeginSync(t *testing.T) {
	o, root, dir := openerAt(t)
	mustDo(t, os.WriteFile(filepath.Join(dir, "file"), nil, 0))
	mustDo(t, os.Mkdir(filepath.Join(dir, "dir"), 0))
	mustDo(t, os.Symlink("/nowhere", filepath.Join(dir, "link")))
	mustDo(t, unix.Mkfifo(filepath.Join(dir, "fifo"), 0))
	for name, syncs := range map[string]uint64{"file": 1, "dir": 1, "link": 0, "fifo": 0} {
		f, err := o.Open(netip.Addr{}, handleOf(t, o, root, name), UseAttr)
		mustDo(t, err)
		before := f.Volume.syncs.Durations.Snapshot().Count
		syncing := f.BeginSync(false, nil)
		mustDo(t, syncing.Wait())
		if n := f.Volume.syncs.Durations.Snapshot().Count - before; n != syncs {
			t.Errorf("%s: %d syncs, want %d", name, n, syncs)
		}
		f.Close()
	}
}

// What is made is on the disk with its directory, or has to be synced by itself too.
func TestComesWithName(t *testing.T) {
	o, root, _ := openerAt(t)
	dir, err := o.Open(netip.Addr{}, root, UseNames)
	mustDo(t, err)
	defer dir.Close()
	file := func(name string) (*File, error) { return dir.Create(actas.AsProcess(), name, 0o644) }
	for name, test := range map[string]struct {
		journal bool
		make    func(name string) (*File, error)
		change  func(*File) error
		syncs   int // of the file and its directory
	}{
		"a file":             {true, file, nil, 1},
		"without a journal":  {false, file, nil, 2},
		"a directory":        {true, func(name string) (*File, error) { return dir.Mkdir(actas.AsProcess(), name, 0o755) }, nil, 1},
		"a symbolic link":    {false, func(name string) (*File, error) { return dir.Symlink(actas.AsProcess(), "to", name) }, nil, 1},
		"with another mode":  {true, file, func(f *File) error { return f.Chmod(actas.AsProcess(), 0o600) }, 2},
		"with other times":   {true, file, func(f *File) error { return f.Chtimes(actas.AsProcess(), SetTime{Set: true}, SetTime{}) }, 2},
		"with another owner": {true, file, func(f *File) error { return f.Chown(actas.AsProcess(), 1, 1) }, 2},
		"with an attribute":  {true, file, func(f *File) error { return unix.Setxattr(f.proc(), "user.a", nil, 0) }, 2},
		"that was there": {true, func(name string) (*File, error) {
			f, err := dir.Create(actas.AsProcess(), name, 0o644)
			mustDo(t, err)
			f.Close()
			return dir.Lookup([]byte(name))
		}, nil, 2},
	} {
		t.Run(name, func(t *testing.T) {
			dir.Volume.disk.Journal = test.journal
			f, err := test.make(name)
			mustDo(t, err)
			if test.change != nil {
				mustDo(t, test.change(f))
			}
			if f.ComesWithName() != (test.syncs == 1) {
				t.Errorf("%v, want %d syncs", f.ComesWithName(), test.syncs)
			}
			f.Close()
		})
	}
}

// What is not known of a file system is not taken for granted.
func TestDiskOf(t *testing.T) {
	f, err := os.Open("/proc")
	mustDo(t, err)
	defer f.Close()
	got := disk.Of(f)
	got.NoAtime, got.RelAtime = false, false // as it is mounted here
	if got != (disk.FS{}) {
		t.Errorf("/proc: %+v", got)
	}
}

// All who wait for a sync are told that it failed.
func TestSyncFails(t *testing.T) {
	o, root, _ := openerAt(t)
	f, err := o.Open(netip.Addr{}, root, UseAttr)
	mustDo(t, err)
	defer f.Close()
	gone, failed := &openFile{key: fileKey{volume: f.Volume}, fd: -1, state: &syncState{}}, make(chan error, 3)
	for range 3 {
		o.sync(waiting{gone, 0, waiterFunc(func(err error) { failed <- err }), nil}, false)
	}
	for range 3 {
		if err := <-failed; !errors.Is(err, unix.ENOENT) {
			t.Errorf("told %v, want %v", err, unix.ENOENT)
		}
	}
	if f.Volume.syncs.Failed.Load() == 0 {
		t.Error("no failed sync was counted")
	}
}

func mustBeNil(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Error(err)
	}
}

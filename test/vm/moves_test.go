//go:build vm

package vm_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// moments are when something went well, again and again.
type moments struct {
	mu  sync.Mutex
	all []time.Time // +checklocks:mu
	err error       // +checklocks:mu
}

// repeat calls do without end, each time when the one before has returned, until the test is over or an error comes.
func repeat(t *testing.T, pause time.Duration, do func(n int) error) *moments {
	m := &moments{}
	quit := make(chan struct{})
	go func() { // a call that hangs ends with its guest
		for n := 0; ; n++ {
			err := do(n)
			m.mu.Lock()
			if err != nil {
				m.err = err
			} else {
				m.all = append(m.all, time.Now())
			}
			m.mu.Unlock()
			if err != nil {
				return
			}
			select {
			case <-quit:
				return
			case <-time.After(pause):
			}
		}
	}()
	t.Cleanup(func() { close(quit) })
	return m
}

// count is how often it went well.
func (m *moments) count() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.all)
}

// last is when it last went well.
func (m *moments) last() time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.all[len(m.all)-1]
}

// after returns when it first went well after a time, for which it waits.
func (m *moments) after(t *testing.T, what string, since time.Time) time.Time {
	t.Helper()
	var first time.Time
	eventually(t, what, func() bool {
		m.mu.Lock()
		defer m.mu.Unlock()
		if m.err != nil {
			t.Fatalf("%s: %v", what, m.err)
		}
		for i := len(m.all) - 1; i >= 0 && m.all[i].After(since); i-- {
			first = m.all[i]
		}
		return !first.IsZero()
	})
	return first
}

// pause returns the longest time between two moments since a time.
func (m *moments) pause(since time.Time) time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	var longest time.Duration
	for i := 1; i < len(m.all); i++ {
		if m.all[i].After(since) {
			longest = max(longest, m.all[i].Sub(m.all[i-1]))
		}
	}
	return longest
}

// bothVersions are the versions of the volumes, each with a folder of the clients.
var bothVersions = []string{"3", "4.2"}

const movedRecordSize = 16

func movedRecord(n int) []byte { return fmt.Appendf(nil, "%0*d\n", movedRecordSize-1, n) }

// moveLoad is what the client does all the time.
type moveLoad struct {
	client, other *guest
	pvs           map[string]persistentVolume
	answered      *moments            // a new connection
	written       map[string]*moments // a record that fsync has returned for, by version
	logs          map[string]file
	locked        *moments // a lock that nobody has, taken and given back
	held          file     // bytes 0 to 99 of it are locked for good
	kept          map[string]file
}

func startLoad(t *testing.T, client, other *guest, pvs map[string]persistentVolume) *moveLoad {
	t.Helper()
	l := &moveLoad{client: client, other: other, written: map[string]*moments{}, logs: map[string]file{}, kept: map[string]file{}}
	for _, version := range bothVersions {
		f := mustOpenBy(t, client, version+"/log")
		l.logs[version] = f
		l.written[version] = repeat(t, 20*time.Millisecond, func(n int) error {
			if _, err := f.WriteAt(movedRecord(n), int64(n)*movedRecordSize); err != nil {
				return err
			}
			return f.Sync()
		})
		kept := mustOpenBy(t, client, version+"/kept")
		wants(t, "write", errOf(kept.Write([]byte("kept open"))), nil)
		wants(t, "sync", kept.Sync(), nil)
		l.kept[version] = kept
	}
	l.held = mustOpenBy(t, client, "4.2/held")
	wants(t, "lock", lock(l.held, unix.F_WRLCK, 0, 100), nil)
	tried := mustOpenBy(t, client, "4.2/tried")
	l.locked = repeat(t, 100*time.Millisecond, func(int) error {
		if err := lock(tried, unix.F_WRLCK, 0, 1); err != nil {
			return err
		}
		return lock(tried, unix.F_UNLCK, 0, 1)
	})
	l.answered = repeat(t, 50*time.Millisecond, func(int) error {
		for {
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
			err := answers(ctx, pvs["3"])
			cancel()
			if err == nil || t.Context().Err() != nil {
				return t.Context().Err()
			}
			time.Sleep(50 * time.Millisecond)
		}
	})
	l.pvs = pvs
	return l
}

// check checks, after what has happened since a time, that all goes on: no record is lost that was acknowledged, what is
// locked is locked, and files that are open are what they were.
func (l *moveLoad) check(t *testing.T, since time.Time) {
	t.Helper()
	for _, version := range bothVersions {
		l.written[version].after(t, "a record is written with version "+version, since)
		acked := l.written[version].count()
		for _, g := range []*guest{l.client, l.other} {
			wants(t, "drop caches", g.dropCaches(), nil)
			got, err := g.read(version + "/log")
			if err != nil {
				t.Fatal(err)
			}
			for n := range acked {
				if end := (n + 1) * movedRecordSize; len(got) < end || !bytes.Equal(got[end-movedRecordSize:end], movedRecord(n)) {
					t.Fatalf("%s, version %s: record %d of %d acknowledged is lost", g.name, version, n, acked)
				}
			}
		}
		t.Logf("version %s: all %d acknowledged records are there", version, acked)
		b := make([]byte, 9)
		if _, err := l.kept[version].ReadAt(b, 0); err != nil || string(b) != "kept open" {
			t.Errorf("version %s: a file that is open has %q, %v", version, b, err)
		}
		if _, err := l.kept[version].WriteAt([]byte("kept"), 0); err != nil {
			t.Errorf("version %s: a file that is open: %v", version, err)
		}
		wants(t, "sync of a file that is open", l.kept[version].Sync(), nil)
	}
	l.locked.after(t, "a lock is taken", since)
	theirs := openBy(t, l.other, "4.2/held", os.O_RDWR)
	wants(t, "what the client has locked, by another", lock(theirs, unix.F_WRLCK, 50, 1), syscall.EAGAIN)
	wants(t, "what is beside it", lock(theirs, unix.F_WRLCK, 100, 1), nil)
	wants(t, "unlock", lock(theirs, unix.F_UNLCK, 100, 1), nil)
	wants(t, "its own lock again", lock(l.held, unix.F_WRLCK, 0, 100), nil)
}

// tell logs when all went on, counted from the times that are named.
func (l *moveLoad) tell(t *testing.T, since time.Time, from map[string]time.Time) {
	t.Helper()
	what := map[string]time.Time{
		"first answer on a new connection": l.answered.after(t, "an answer", since),
		"first write of version 3":         l.written["3"].after(t, "a write of version 3", since),
		"first write of version 4.2":       l.written["4.2"].after(t, "a write of version 4.2", since),
		"first lock":                       l.locked.after(t, "a lock", since),
	}
	for name, at := range what {
		var times []string
		for event, began := range from {
			times = append(times, fmt.Sprintf("%.1f s from %s", at.Sub(began).Seconds(), event))
		}
		t.Logf("%s: %s", name, strings.Join(times, ", "))
	}
}

// takeOver starts podnas on a node that was without.
func takeOver(t *testing.T, v *movableNode) (began, attached, mounted time.Time) {
	t.Helper()
	began = time.Now()
	v.disk.attach(v)
	attached = time.Now()
	v.mountDisk()
	mounted = time.Now()
	v.serve()
	leads(t, v)
	return began, attached, mounted
}

// moved ends podnas on one node and starts it on the other, as a drain does, after which the first node boots anew. It must:
// its kernel remembers the connections that podnas has closed for a minute, and where a client that has moved on uses
// such a port again, that kernel acknowledges what it does not take. A pod has a network of its own, which remembers nothing.
func moved(t *testing.T, load *moveLoad, from, to *movableNode) {
	told := time.Now()
	from.end()
	ended := time.Now()
	from.unmount()
	leads(t, nil)
	began, attached, mounted := takeOver(t, to)
	to.waitReady()
	t.Logf("ended after %v, the next begins after %v: attached after %v more, mounted after %v, ready after %v",
		ended.Sub(told), began.Sub(told), attached.Sub(began), mounted.Sub(began), time.Since(began))
	load.tell(t, mounted, map[string]time.Time{"the order to end": told, "the next one's begin": began})
	load.check(t, mounted)
	for _, version := range bothVersions {
		t.Logf("longest pause between two records of version %s: %v", version, load.written[version].pause(told))
	}
	from.kill()
	from.bootAgain()
}

// killed kills the node that has podnas, and has the other begin some time later.
func killed(t *testing.T, load *moveLoad, from, to *movableNode, later time.Duration) {
	died := from.kill9()
	time.Sleep(later)
	began, attached, mounted := takeOver(t, to)
	to.waitReady()
	t.Logf("attached %v after the begin, mounted after %v, ready after %v", attached.Sub(began), mounted.Sub(began), time.Since(began))
	load.tell(t, mounted, map[string]time.Time{"the death": died, "the next one's begin": began})
	load.check(t, mounted)
	from.bootAgain()
}

// startMoving starts podnas on a node with a fresh disk, with a client that uses it.
func startMoving(t *testing.T, first *movableNode, client, other *guest) *moveLoad {
	t.Helper()
	first.disk.attach(first)
	first.mustSh("mkfs.xfs -q $(readlink /run/disk)")
	first.mountDisk()
	first.serve()
	first.waitReady()
	leads(t, first)
	return startClients(t, first, client, other)
}

// startClients makes volumes, by a node where podnas runs, and starts what uses them.
func startClients(t *testing.T, first *movableNode, client, other *guest) *moveLoad {
	t.Helper()
	pvs := map[string]persistentVolume{}
	for _, version := range bothVersions {
		pv := first.claimOn("v"+strings.ReplaceAll(version, ".", ""), version)
		client.mountAt(pv, version)
		other.mountAt(pv, version)
		pvs[version] = pv
	}
	load := startLoad(t, client, other, pvs)
	for _, version := range bothVersions {
		eventually(t, "records are written", func() bool { return load.written[version].count() > 20 })
	}
	return load
}

// step runs a part of a test of which the next begins where this one ends.
func step(t *testing.T, name string, run func(t *testing.T)) {
	t.Helper()
	if !t.Run(name, run) {
		t.FailNow()
	}
}

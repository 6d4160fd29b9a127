//go:build vm

package vm_test

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"
)

// TestTwoNodes does with one volume what programs on two nodes do that rely on each other's
// locks, names and open files.
func TestTwoNodes(t *testing.T) {
	a, pv, nodes := twoNodes(t)
	for _, part := range ofTwoMachines {
		t.Run(part.name, func(t *testing.T) { part.run(t, a.dir(pv), [2]machine{nodes[0], nodes[1]}) })
	}
	t.Run("NotRegular", func(t *testing.T) { notRegular(t, a.dir(pv), nodes) })
	t.Run("Signals", func(t *testing.T) { signals(t, nodes) })
	t.Run("Chmod", func(t *testing.T) { openBeforeChmod(t, a.dir(pv), nodes) })
	t.Run("Append", func(t *testing.T) { appenders(t, a.dir(pv), [2]machine{nodes[0], nodes[1]}, 30*time.Second) })
}

// ofTwoMachines are parts of TestTwoNodes, and of TestTwoGuests.
var ofTwoMachines = []struct {
	name string
	run  func(t *testing.T, disk string, nodes [2]machine)
}{
	{"Ranges", lockRanges},
	{"Flock", flocks},
	{"Wait", lockWaits},
	{"Deadlock", deadlock},
	{"Exclusive", exclusiveRace},
	{"Rename", renameRace},
	{"Replace", replaceRace},
	{"Removed", removedOpen},
	{"SQLite", sqliteOfTwo},
}

// wants checks what came of a lock: nil, or that another has it.
func wants(t *testing.T, what string, got, want error) {
	t.Helper()
	if !errors.Is(got, want) {
		t.Errorf("%s: %v, want %v", what, got, want)
	}
}

func lockRanges(t *testing.T, _ string, nodes [2]machine) {
	f := [2]file{openBy(t, nodes[0], "ranges", os.O_RDWR|os.O_CREATE), openBy(t, nodes[1], "ranges", os.O_RDWR)}
	const far = 1<<63 - 200
	for i, step := range []struct {
		node          int
		kind          int16
		start, length int64
		want          error
	}{
		{0, unix.F_WRLCK, 0, 0, nil}, // all of it
		{1, unix.F_RDLCK, 1 << 40, 1, syscall.EAGAIN},
		{0, unix.F_UNLCK, 100, 50, nil}, // a hole
		{1, unix.F_WRLCK, 100, 50, nil},
		{1, unix.F_WRLCK, 100, 51, syscall.EAGAIN},
		{1, unix.F_WRLCK, 99, 51, syscall.EAGAIN},
		{0, unix.F_UNLCK, 0, 0, nil},
		{1, unix.F_UNLCK, 0, 0, nil},
		{0, unix.F_RDLCK, 0, 10, nil}, // both read
		{1, unix.F_RDLCK, 5, 10, nil},
		{0, unix.F_WRLCK, 0, 10, syscall.EAGAIN}, // the upgrade
		{0, unix.F_WRLCK, 0, 5, nil},
		{1, unix.F_UNLCK, 5, 10, nil},
		{0, unix.F_WRLCK, 0, 10, nil},
		{1, unix.F_RDLCK, 9, 1, syscall.EAGAIN},
		{0, unix.F_RDLCK, 0, 10, nil}, // the downgrade
		{1, unix.F_RDLCK, 9, 1, nil},
		{0, unix.F_WRLCK, far, 100, nil},
		{1, unix.F_WRLCK, far + 99, 1, syscall.EAGAIN},
		{1, unix.F_WRLCK, far + 100, 0, nil},
	} {
		what := fmt.Sprintf("step %d, node %d, kind %d, %d+%d", i, step.node, step.kind, step.start, step.length)
		wants(t, what, lock(f[step.node], step.kind, step.start, step.length), step.want)
	}
	who := unix.Flock_t{Type: unix.F_WRLCK, Start: far, Len: 1}
	if err := f[1].fcntl(unix.F_GETLK, &who); err != nil || who.Type != unix.F_WRLCK || who.Start != far || who.Len != 100 {
		t.Errorf("F_GETLK: %+v, %v", who, err)
	}
	f[0].Close() // which unlocks
	wants(t, "after the close", lock(f[1], unix.F_WRLCK, 0, 0), nil)
}

func flocks(t *testing.T, _ string, nodes [2]machine) {
	f := [2]file{openBy(t, nodes[0], "flock", os.O_RDWR|os.O_CREATE), openBy(t, nodes[1], "flock", os.O_RDWR)}
	for i, step := range []struct {
		node, how int
		want      error
	}{
		{0, unix.LOCK_EX, nil},
		{1, unix.LOCK_EX, syscall.EAGAIN},
		{1, unix.LOCK_SH, syscall.EAGAIN},
		{0, unix.LOCK_SH, nil},
		{1, unix.LOCK_SH, nil},
		{0, unix.LOCK_UN, nil},
		{1, unix.LOCK_EX, nil},
		{0, unix.LOCK_SH, syscall.EAGAIN},
	} {
		wants(t, fmt.Sprintf("step %d: node %d flock %d", i, step.node, step.how), f[step.node].flock(step.how|unix.LOCK_NB), step.want)
	}
}

// lockWaits: who waits for a lock gets it when it is unlocked.
func lockWaits(t *testing.T, _ string, nodes [2]machine) {
	f := [2]file{openBy(t, nodes[0], "wait", os.O_RDWR|os.O_CREATE), openBy(t, nodes[1], "wait", os.O_RDWR)}
	wants(t, "lock", lock(f[0], unix.F_WRLCK, 0, 0), nil)
	waits := make(chan error, 1)
	go func() { waits <- lockWait(f[1], unix.F_WRLCK, 0, 0) }()
	select {
	case err := <-waits:
		t.Fatalf("it was not waited for a lock that another has: %v", err)
	case <-time.After(2500 * time.Millisecond):
	}
	wants(t, "unlock", lock(f[0], unix.F_UNLCK, 0, 0), nil)
	within(t, time.Minute, "a lock that is free", func() error { return <-waits })
	wants(t, "then", lock(f[0], unix.F_WRLCK, 0, 0), syscall.EAGAIN)
	wants(t, "unlock", lock(f[1], unix.F_UNLCK, 0, 0), nil)

	// A client that polls does so once a second at most.
	const turns = 50
	within(t, turns/2*time.Second, fmt.Sprint(turns, " times each in turns"), func() error {
		var both errgroup.Group
		for i := range f {
			both.Go(func() error {
				for range turns {
					if err := lockWait(f[i], unix.F_WRLCK, 0, 0); err != nil {
						return err
					}
					time.Sleep(time.Millisecond) // so that the other waits
					if err := lock(f[i], unix.F_UNLCK, 0, 0); err != nil {
						return err
					}
				}
				return nil
			})
		}
		return both.Wait()
	})
}

// deadlock: each has what the other waits for. One is told, and the other goes on when that
// one lets go; or both give up, and then both go on.
func deadlock(t *testing.T, _ string, nodes [2]machine) {
	f := [2]file{openBy(t, nodes[0], "circle", os.O_RDWR|os.O_CREATE), openBy(t, nodes[1], "circle", os.O_RDWR)}
	for i := range f {
		wants(t, "lock", lock(f[i], unix.F_WRLCK, int64(i), 1), nil)
	}
	waits := make(chan error, 1)
	go func() { waits <- lockWait(f[0], unix.F_WRLCK, 1, 1) }()
	time.Sleep(3 * time.Second) // longer than one who has given up is taken to wait
	within(t, time.Minute, "a circle", func() error {
		told := make(chan error, 1)
		go func() { told <- lockWait(f[1], unix.F_WRLCK, 0, 1) }()
		var err error
		i := 1
		select {
		case err = <-told:
		case err = <-waits:
			i, waits = 0, told
		}
		wants(t, "who is told", err, syscall.EDEADLK)
		wants(t, "lets go", lock(f[i], unix.F_UNLCK, int64(i), 1), nil)
		return <-waits
	})
	var both sync.WaitGroup
	for i, names := range [][2]string{{"one", "two"}, {"two", "one"}} {
		both.Go(func() {
			within(t, time.Minute, "a deadlock", func() error {
				// flock ends its wait by a signal, as whoever loses patience does.
				_, _ = nodes[i].run("", "flock", names[0], "sh", "-c", `sleep 1; exec flock -w 3 "$0" true`, names[1])
				return nil
			})
		})
	}
	both.Wait()
	for _, name := range []string{"one", "two"} {
		f := openBy(t, nodes[0], name, os.O_RDWR|os.O_CREATE)
		wants(t, "after the deadlock", f.flock(unix.LOCK_EX|unix.LOCK_NB), nil)
	}
}

// exclusiveRace: of two that make a file with O_EXCL, one has made it.
func exclusiveRace(t *testing.T, _ string, nodes [2]machine) {
	const names = 60
	var made [2][names]error
	var both sync.WaitGroup
	for i, v := range nodes {
		both.Go(func() {
			for n := range names {
				f, err := v.openFile(fmt.Sprint("race-", n), os.O_CREATE|os.O_EXCL|os.O_WRONLY)
				if err == nil {
					err = f.Close()
				}
				made[i][n] = err
			}
		})
	}
	both.Wait()
	won := 0
	for n := range names {
		x, y := made[0][n], made[1][n]
		if (x == nil) == (y == nil) || !errors.Is(errors.Join(x, y), fs.ErrExist) {
			t.Errorf("name %d: %v and %v", n, x, y)
		}
		if x == nil {
			won++
		}
	}
	t.Logf("node 0 has made %d of %d", won, names)
}

// removedOpen: a file that is open stays what it is when this or the other node removes it, and
// has no other name meanwhile.
func removedOpen(t *testing.T, disk string, nodes [2]machine) {
	for i, remover := range nodes {
		name := fmt.Sprint("removed-", i)
		f := openBy(t, nodes[0], name, os.O_RDWR|os.O_CREATE)
		want := data(byte(i), 200_000)
		if _, err := f.Write(want); err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(f.Sync(), remover.remove(name)); err != nil {
			t.Fatal(err)
		}
		left, err := filepath.Glob(filepath.Join(disk, "*"))
		if hidden, _ := filepath.Glob(filepath.Join(disk, ".nfs*")); err != nil || len(hidden) > 0 || strings.Contains(fmt.Sprint(left), name) {
			t.Errorf("removed by node %d: the disk has %q and %q", i, left, hidden)
		}
		wants(t, "drop caches", nodes[0].dropCaches(), nil)
		got := make([]byte, len(want))
		if _, err := f.ReadAt(got, 0); err != nil || !bytes.Equal(got, want) {
			t.Errorf("removed by node %d: it is not read as it was: %v", i, err)
		}
		_, err = f.WriteAt([]byte("more"), int64(len(want)))
		if err := errors.Join(err, f.Sync(), f.Truncate(100), f.Chmod(0o600)); err != nil {
			t.Errorf("removed by node %d: %v", i, err)
		}
		if size, err := f.size(); err != nil || size != 100 {
			t.Errorf("removed by node %d: %d bytes, %v", i, size, err)
		}
		if err := f.Close(); err != nil {
			t.Errorf("removed by node %d: %v", i, err)
		}
	}
}

// openBeforeChmod: the node that has a file open goes on with it after a chmod by which neither
// node may open it.
func openBeforeChmod(t *testing.T, disk string, nodes [2]*node) {
	for _, v := range nodes {
		letThrough(t, v.mnt)
	}
	mustWrite(t, filepath.Join(disk, "chmod"), nil)
	if err := os.Chown(filepath.Join(disk, "chmod"), strangerUID, strangerUID); err != nil { // an owner may go on
		t.Fatal(err)
	}
	user := identity{uid: strangerUID, gid: strangerUID}
	root, other := actAs(t, identity{}), actAs(t, user)
	err := actAs(t, user)(func() error {
		return useAfterChmod(filepath.Join(nodes[0].mnt, "chmod"), func() error {
			if err := root(func() error { return os.Chmod(filepath.Join(nodes[1].mnt, "chmod"), 0) }); err != nil {
				return err
			}
			return other(func() error {
				if _, err := os.Open(filepath.Join(nodes[1].mnt, "chmod")); !errors.Is(err, syscall.EACCES) {
					return fmt.Errorf("the other node's open: %w, want EACCES", err)
				}
				return nil
			})
		})
	})
	if err != nil {
		t.Error(err)
	}
	holds(t, filepath.Join(disk, "chmod"), []byte("written"))
}

func sqliteOfTwo(t *testing.T, _ string, nodes [2]machine) {
	const transactions, rows = 15, 3
	sqliteBy(t, nodes[0], "db", "PRAGMA journal_mode=delete; CREATE TABLE t (node, n, data);")
	var both sync.WaitGroup
	for i, v := range nodes {
		both.Go(func() {
			var b strings.Builder
			for n := range transactions {
				b.WriteString("BEGIN IMMEDIATE;\n")
				for range rows {
					fmt.Fprintf(&b, "INSERT INTO t VALUES (%d, %d, randomblob(500));\n", i, n)
				}
				b.WriteString("COMMIT;\n")
			}
			sqliteBy(t, v, "db", b.String())
		})
	}
	both.Wait()
	for _, v := range nodes {
		got := sqliteBy(t, v, "db", "PRAGMA integrity_check; SELECT count(*), count(DISTINCT node || '-' || n) FROM t;")
		if want := fmt.Sprintf("ok\n%d|%d", 2*transactions*rows, 2*transactions); got != want {
			t.Errorf("the database says %q, want %q", got, want)
		}
	}
}

// appenders append lines to one file, each under its lock, from both nodes.
func appenders(t *testing.T, disk string, nodes [2]machine, during time.Duration) {
	t.Helper()
	var both sync.WaitGroup
	var lines [2]int
	for i, v := range nodes {
		f := openBy(t, v, "lines", os.O_WRONLY|os.O_APPEND|os.O_CREATE)
		both.Go(func() {
			for until := time.Now().Add(during); time.Now().Before(until); lines[i]++ {
				err := f.flock(unix.LOCK_EX)
				if err == nil {
					_, err = f.Write(line(i, lines[i]))
				}
				if err := errors.Join(err, f.flock(unix.LOCK_UN)); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	ended := make(chan struct{})
	go func() { both.Wait(); close(ended) }()
	select {
	case <-ended:
	case <-time.After(during + 90*time.Second):
		t.Fatal("an appender hangs")
	}
	t.Logf("%d and %d lines in %v", lines[0], lines[1], during)
	b, err := os.ReadFile(filepath.Join(disk, "lines"))
	if err != nil {
		t.Fatal(err)
	}
	var at [2]int
	for rest := b; len(rest) > 0; {
		i := int(rest[0] - '0')
		if i < 0 || i > 1 || !bytes.HasPrefix(rest, line(i, at[i])) {
			t.Fatalf("after %d and %d lines comes %.60q", at[0], at[1], rest)
		}
		rest = rest[len(line(i, at[i])):]
		at[i]++
	}
	if at != lines {
		t.Errorf("the file has %v lines, want %v", at, lines)
	}
	if lines[0] == 0 || lines[1] == 0 {
		t.Error("a node has never had the lock")
	}
}

func line(node, n int) []byte {
	return []byte(fmt.Sprintf("%d %d %s\n", node, n, strings.Repeat("x", n*37%5000)))
}

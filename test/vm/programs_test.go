//go:build vm

package vm_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// TestSQLite has two processes put many transactions into one database, with a
// rollback journal and with a write-ahead log.
func TestSQLite(t *testing.T) {
	a := serve(t)
	pv := a.volume("sqlite", "64Mi")
	mnt := mount(t, pv)
	for _, journal := range []string{"delete", "wal"} {
		t.Run(journal, func(t *testing.T) {
			const processes, transactions, rows = 2, 40, 5
			db := filepath.Join(mnt, journal+".db")
			sqlite(t, db, "PRAGMA journal_mode="+journal+"; CREATE TABLE t (process, n, data);")
			var wg sync.WaitGroup
			for process := range processes {
				wg.Go(func() {
					var b strings.Builder
					for n := range transactions {
						b.WriteString("BEGIN IMMEDIATE;\n")
						for range rows {
							fmt.Fprintf(&b, "INSERT INTO t VALUES (%d, %d, randomblob(500));\n", process, n)
						}
						b.WriteString("COMMIT;\n")
					}
					sqlite(t, db, b.String())
				})
			}
			wg.Wait()
			dropCaches(t)
			for _, dir := range []string{mnt, a.dir(pv)} {
				got := sqlite(t, filepath.Join(dir, journal+".db"), "PRAGMA integrity_check; SELECT count(*), count(DISTINCT n) FROM t;")
				if want := fmt.Sprintf("ok\n%d|%d", processes*transactions*rows, transactions); got != want {
					t.Errorf("%s: the database says %q, want %q", dir, got, want)
				}
			}
		})
	}
}

// sqlite feeds SQL to a process. It waits for others' locks.
func sqlite(t *testing.T, db, sql string) string {
	t.Helper()
	return sqliteBy(t, &local{filepath.Dir(db)}, filepath.Base(db), sql)
}

// sqliteBy is sqlite by a machine.
func sqliteBy(t *testing.T, m machine, db, sql string) string {
	t.Helper()
	out, err := m.run(sql, "sqlite3", "-batch", "-bail", "-init", "/dev/null", "-cmd", ".timeout 60000", db)
	if err != nil {
		t.Error(err)
	}
	return strings.TrimSpace(out)
}

// TestGit clones a repository onto the mount, works there, and has git look
// through all of it.
func TestGit(t *testing.T) {
	nativeOnly(t, "it only takes its time")
	a := serve(t)
	pv := a.volume("git", "128Mi")
	mnt := mount(t, pv)
	files := map[string][]byte{}
	for i := range 150 {
		files[fmt.Sprintf("dir-%d/file-%d", i%10, i)] = data(byte(i), 1000*(i%20))
	}
	source, clone := repository(t, files), filepath.Join(mnt, "clone")
	command(t, "git", "clone", "-q", "--no-local", source, clone)
	if got := command(t, "git", "-C", clone, "status", "--porcelain"); got != "" {
		t.Errorf("the fresh clone is changed:\n%s", got)
	}
	mustWrite(t, filepath.Join(clone, "dir-0/file-0"), []byte("changed"))
	mustWrite(t, filepath.Join(clone, "new"), []byte("new"))
	command(t, "git", "-C", clone, "add", ".")
	command(t, "git", "-C", clone, "commit", "-q", "-m", "second")
	command(t, "git", "-C", clone, "gc", "-q", "--prune=now")
	dropCaches(t)
	command(t, "git", "-C", clone, "fsck", "--full", "--strict")
	if got := command(t, "git", "-C", clone, "status", "--porcelain"); got != "" {
		t.Errorf("the clone is changed after the commit:\n%s", got)
	}
	if got := command(t, "git", "-C", clone, "rev-list", "--count", "HEAD"); strings.TrimSpace(got) != "2" {
		t.Errorf("%s commits, want 2", got)
	}
	for i := range 150 {
		if i != 0 {
			holds(t, filepath.Join(clone, fmt.Sprint("dir-", i%10), fmt.Sprint("file-", i)), data(byte(i), 1000*(i%20)))
		}
	}
}

// repository makes a git repository of one commit, with no settings of the user's.
func repository(t *testing.T, files map[string][]byte) string {
	t.Helper()
	t.Setenv("GIT_CONFIG_GLOBAL", os.DevNull)
	t.Setenv("GIT_CONFIG_NOSYSTEM", "1")
	for _, who := range []string{"AUTHOR", "COMMITTER"} {
		t.Setenv("GIT_"+who+"_NAME", "podnas")
		t.Setenv("GIT_"+who+"_EMAIL", "podnas@example.com")
	}
	dir := filepath.Join(t.TempDir(), "source")
	command(t, "git", "init", "-q", dir)
	for name, b := range files {
		name = filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		mustWrite(t, name, b)
	}
	command(t, "git", "-C", dir, "add", ".")
	command(t, "git", "-C", dir, "commit", "-q", "-m", "first")
	return dir
}

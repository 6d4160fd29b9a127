package checkup

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/podnas/podnas/internal/doctor"
	"github.com/podnas/podnas/internal/heartbeat"
	"github.com/podnas/podnas/internal/latest"
	"github.com/podnas/podnas/internal/process"
	"github.com/podnas/podnas/internal/volume"
	"github.com/podnas/podnas/internal/volume/shareddisk"
	"github.com/podnas/podnas/provisioner/internal/fixture"
	"github.com/podnas/podnas/quota"
)

// newStore opens a disk in a temporary directory, with the volumes one and two.
func newStore(t *testing.T) (store *volume.Store, root string) {
	t.Helper()
	root = t.TempDir()
	store, err := volume.Open(volume.Config{Root: root, Exports: fixture.NoExports{}, Log: slog.New(slog.DiscardHandler)})
	mustDo(t, err)
	t.Cleanup(func() { mustDo(t, store.Close()) })
	for _, name := range []string{"one", "two"} {
		_, err := store.Create(t.Context(), volume.Spec{Name: name, Size: 1 << 20})
		mustDo(t, err)
	}
	return store, root
}

func mustDo(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// want checks the one result of a check, or the one about the thing with that name.
func want(t *testing.T, results []doctor.Result, check string, status doctor.Status, says, fix string) {
	t.Helper()
	for _, r := range results {
		if r.Check != check {
			continue
		}
		if r.Status != status || !strings.Contains(r.Says, says) || !strings.Contains(r.Fix, fix) {
			t.Errorf("%s: %s %q, to do %q; want %s with %q, to do %q", check, r.Status, r.Says, r.Fix, status, says, fix)
		}
		if r.Status != doctor.OK && r.Fix == "" {
			t.Errorf("%s: it is not said what to do about %q", check, r.Says)
		}
		return
	}
	t.Errorf("no check %q in %+v", check, results)
}

// A real disk, broken in each of the ways that can be made here.
func TestDisk(t *testing.T) {
	for _, tt := range []struct {
		name   string
		hurt   func(root string) error
		check  string
		status doctor.Status
		says   string
		fix    string
	}{
		{"good", nil, "disk", doctor.OK, "written", ""},
		{"good records", nil, "records", doctor.OK, "agree", ""},
		{"good secrets", nil, "secrets", doctor.OK, "only podnas can read", ""},
		{"good space", nil, "space", doctor.OK, "are free", ""},
		{"a directory is gone", func(root string) error { return os.Remove(filepath.Join(root, "two")) }, "volume two", doctor.Failed, "missing", "put the directory back"},
		{"a file is in its place", func(root string) error {
			return errors.Join(os.Remove(filepath.Join(root, "two")), os.WriteFile(filepath.Join(root, "two"), nil, 0o600))
		}, "volume two", doctor.Failed, "two", ""},
		{"a stray directory", func(root string) error { return os.Mkdir(filepath.Join(root, "stray"), 0o755) }, "stray", doctor.Warning, "belongs to no volume", "podnas volume adopt"},
		{"the key is open", func(root string) error { return os.Chmod(filepath.Join(root, ".podnas/instance.json"), 0o644) }, "secrets", doctor.Warning, "0644", "chmod go= "},
		{"the state is open", func(root string) error { return os.Chmod(filepath.Join(root, ".podnas"), 0o755) }, "secrets", doctor.Warning, "0755", "chmod go= "},
		{"the key is gone", func(root string) error { return os.Remove(filepath.Join(root, ".podnas/instance.json")) }, "secrets", doctor.Failed, "no such file", "backup"},
		{"a file was put aside", func(root string) error {
			return os.WriteFile(filepath.Join(root, ".podnas/volumes/x.damaged-1"), nil, 0o600)
		}, ".podnas/volumes/x.damaged-1", doctor.Warning, "put aside", "rm -r "},
	} {
		t.Run(tt.name, func(t *testing.T) {
			store, root := newStore(t)
			if tt.hurt != nil {
				mustDo(t, tt.hurt(root))
			}
			results := run(t, Config{Store: store, Disk: store, Heartbeat: func() error { return nil }, FullBelow: func() bool { return false }, Process: process.Info{Root: root}}, "file system", "disk", "space", "inodes", "damaged files", "secrets", "records")
			want(t, results, tt.check, tt.status, tt.says, tt.fix)
			if tt.hurt == nil && doctor.Count(results, doctor.Failed) > 0 {
				t.Errorf("a good disk: %+v", results)
			}
		})
	}
}

// run runs the checks of these names.
func run(t *testing.T, cfg Config, names ...string) []doctor.Result {
	t.Helper()
	var checks []doctor.Check
	for _, c := range cfg.checks(t.Context()) {
		if slices.Contains(names, c.Name) {
			checks = append(checks, c)
		}
	}
	if len(checks) != len(names) {
		t.Fatalf("of %q there are %d", names, len(checks))
	}
	return doctor.Run(t.Context(), checks)
}

// brokenDisk answers nothing, as one that is gone.
type brokenDisk struct{}

var errGone = errors.New("input/output error")

func (brokenDisk) Space() (volume.Space, error) { return volume.Space{}, errGone }

func TestBrokenDisk(t *testing.T) {
	results := run(t, Config{Disk: brokenDisk{}, Heartbeat: func() error { return errGone }, FullBelow: func() bool { return false }, Process: process.Info{Root: filepath.Join(t.TempDir(), "nothing")}}, "file system", "disk", "space", "inodes")
	for _, check := range []string{"disk", "space", "inodes"} {
		want(t, results, check, doctor.Failed, "input/output error", "dmesg")
	}
	want(t, results, "file system", doctor.Failed, "no such file", "read its disk")
}

// What can't be made here: judged by what the kernel would say.
func TestJudgeDisk(t *testing.T) {
	mount := func(kind string, options ...string) doctor.Result {
		return judgeFileSystem(doctor.Mount{Point: "/export", Type: kind, Options: options})
	}
	const gib = 1 << 30
	for _, tt := range []struct {
		name   string
		r      doctor.Result
		status doctor.Status
		says   string
	}{
		{"XFS", mount("xfs", "rw", "prjquota"), doctor.OK, "xfs (rw,prjquota)"},
		{"ext4", mount("ext4", "rw"), doctor.OK, "ext4"},
		{"a beat is late", writable(&latest.PendingError{Since: time.Now().Add(-7 * time.Second)}, false), doctor.Failed, "no answer for 7s"},
		{"read-only", writable(&fs.PathError{Op: "open", Path: "x", Err: syscall.EROFS}, false), doctor.Failed, "it is read-only"},
		{"a lost reservation", writable(syscall.EBADE, false), doctor.Failed, "can't be written to"},
		{"a standby has it", writable(fmt.Errorf("heartbeat: %w", shareddisk.ErrLost), false), doctor.Warning, "another podnas has taken the disk over: clients get their answers there"},
		{"another podnas may answer", writable(&heartbeat.TakeoverError{Left: 4 * time.Second}, false), doctor.Warning, "clients are answered in 4s"},
		{"full below", writable(nil, true), doctor.Failed, "no room even for"},
		{"in memory", mount("tmpfs", "rw"), doctor.Warning, "in memory"},
		{"of the container", mount("overlay", "rw"), doctor.Warning, "lost with the container"},
		{"over NFS", mount("nfs4", "rw"), doctor.Warning, "not a local"},
		{"FUSE", mount("fuse.sshfs", "rw"), doctor.Warning, "not a local"},
		{"room", judgeSpace(50*gib, 100*gib), doctor.OK, "50Gi of 100Gi"},
		{"room yet", judgeSpace(10*gib+1, 100*gib), doctor.OK, "of 100Gi"},
		{"filling", judgeSpace(10*gib, 100*gib), doctor.Warning, "the disk is 90% full"},
		{"nearly full", judgeSpace(5*gib, 100*gib), doctor.Failed, "the disk is 95% full"},
		{"full", judgeSpace(1<<20, 100*gib), doctor.Failed, "writes fail"},
		{"inodes", judgeInodes(&volume.Space{InodesFree: 500, Inodes: 1000}), doctor.OK, "500 of 1000"},
		{"few inodes", judgeInodes(&volume.Space{InodesFree: 100, Inodes: 1000}), doctor.Warning, "90% of them are used"},
		{"fewer inodes", judgeInodes(&volume.Space{InodesFree: 40, Inodes: 1000}), doctor.Failed, "96% of them are used"},
		{"no inodes", judgeInodes(&volume.Space{Inodes: 1000}), doctor.Failed, "no file can be created"},
		{"inodes promised", judgeInodes(&volume.Space{InodesFree: 500, Inodes: 1000, InodesPromised: 3000}), doctor.OK, "may have 3000"},
		{"inodes promised in earnest", judgeInodes(&volume.Space{InodesFree: 500, Inodes: 1000, InodesPromised: 1000, Overcommit: 1}), doctor.OK, "may have 1000"},
		{"more inodes promised than allowed", judgeInodes(&volume.Space{InodesFree: 500, Inodes: 1000, InodesPromised: 2001, Overcommit: 2}), doctor.Warning, "may have 2001, which is more than --overcommit=2"},
		{"no sync failed", syncs(0), doctor.OK, "none"},
		{"a sync failed", syncs(1), doctor.Failed, "1 syncs have failed"},
		{"btrfs has no number", judgeInodes(&volume.Space{}), doctor.OK, "while it has space"},
	} {
		if tt.r.Status != tt.status || !strings.Contains(tt.r.Says, tt.says) || (tt.r.Fix == "") != (tt.status == doctor.OK) {
			t.Errorf("%s: %+v, want %s with %q", tt.name, tt.r, tt.status, tt.says)
		}
	}
}

func TestProcess(t *testing.T) {
	results := run(t, Config{Process: process.Info{Rights: "CHOWN; without MKNOD no devices", Adds: []string{"MKNOD"}}}, "engine", "quota", "capabilities")
	want(t, results, "capabilities", doctor.Warning, "without MKNOD no devices", "add MKNOD to")
	results = run(t, Config{Process: process.Info{Rights: "none; without SETUID and SETGID every call is done as podnas's own user"}}, "engine", "quota", "capabilities")
	want(t, results, "capabilities", doctor.OK, "podnas's own user", "")
	if r := judgeDescriptors(1024); r.Status != doctor.Warning || !strings.Contains(r.Says, "1024") {
		t.Errorf("few descriptors: %+v", r)
	}
	if r := judgeDescriptors(1 << 20); r.Status != doctor.OK {
		t.Errorf("many descriptors: %+v", r)
	}
	results = run(t, Config{Process: process.Info{Engine: "native", EngineWhy: "by the index", Quota: "by the server", Enforced: quota.Server}}, "engine", "quota", "capabilities")
	want(t, results, "engine", doctor.OK, "by the index", "")
	want(t, results, "quota", doctor.OK, "by the server", "")
	results = run(t, Config{Process: process.Info{Enforced: quota.Off}}, "engine", "quota", "capabilities")
	want(t, results, "quota", doctor.Warning, "not enforced", "--quota=auto")
}

package main

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/podnas/podnas/internal/volume"
	"github.com/podnas/podnas/provisioner/control"
	"github.com/podnas/podnas/test/testdisk"
)

// The life of snapshots, in this order, by what a person types.
func TestSnapshotCommands(t *testing.T) {
	testdisk.XFS(t, func(t *testing.T, root string) {
		serveDisk(t, root)
		t.Setenv("PODNAS_ROOT", root)
		for _, s := range []step{
			{name: "none", command: "snapshot list", stdout: "-", stderr: "there are no snapshots; 'podnas snapshot create VOLUME' takes one"},
			{name: "none for programs", command: "snapshot list -o json", stdout: "[]", stderr: "-"},
			{name: "a volume", command: "volume create data --size 1Mi", stdout: "name: data\n"},
			{name: "none of it", command: "volume list", stdout: "STATE   CLIENTS   QUOTA\n"},
			{name: "create", command: "snapshot create data first", stdout: "snapshot first of volume data is complete: 0 files with 0, as of 2", stderr: "-"},
			{name: "create again", command: "snapshot create data first", code: 4, err: "already exists", stdout: "-"},
			{name: "create with a date", command: "snapshot create data -o name", stdout: "20", stderr: "-"},
			{name: "create for programs", command: "snapshot create data second -o json", stdout: `"state": "ready"`},
			{name: "create of nothing", command: "snapshot create dta", code: 3, err: `did you mean "data"?: see 'podnas volume list --all'`},
			{name: "create with a bad name", command: "snapshot create data ../x", code: 2, err: "invalid name of a snapshot"},
			{name: "list", command: "snapshot list", stdout: "VOLUME   NAME"},
			{name: "list one", command: "snapshot list data -o name", stdout: "first\n"},
			{name: "list names", command: "snapshot list -o name", stdout: "data first\n"},
			{name: "list wide", command: "snapshot list -o wide", stdout: "VOLUME-ID"},
			{name: "list of nothing", command: "snapshot list dat", code: 3, err: `did you mean "data"`},
			{name: "show", command: "snapshot show data first", stdout: ".snapshots/first at the root of the volume"},
			{name: "show how to use it", command: "snapshot show data first", stdout: "podnas volume copy data NEW --snapshot first"},
			{name: "show for programs", command: "snapshot show data first -o yaml", stdout: "directory: " + root + "/.podnas/snapshots/"},
			{name: "show another", command: "snapshot show data frist", code: 3, err: `did you mean "first"?: see 'podnas snapshot list data'`},
			{name: "volumes say how many", command: "volume list", stdout: "QUOTA    SNAPSHOTS\n"},
			{name: "the volume says how many", command: "volume show data", stdout: "3 with at most 0, see 'podnas snapshot list data'"},
			{name: "copy", command: "volume copy data copy --snapshot first", stdout: "name: copy\n", stderr: "volume copy is ready: 1Mi"},
			{name: "show the copy", command: "volume show copy", stdout: "snapshot first of data"},
			{name: "create a volume of it", command: "volume create copy-2 --size 2Mi --from data --snapshot second", stdout: "name: copy-2\n"},
			{name: "copy of no snapshot", command: "volume copy data copy-3 --snapshot secnd", code: 3, err: `did you mean "second"`},
			{name: "create of no snapshot", command: "volume create copy-3 --size 1Mi --from data --snapshot secnd", code: 3, err: `did you mean "second"`},
			{name: "create without a source", command: "volume create copy-3 --size 1Mi --snapshot first", code: 2, err: "--snapshot needs --from"},
			{name: "no difference", command: "snapshot diff data first second", stdout: "-", stderr: "there are no differences"},
			{name: "no difference for programs", command: "snapshot diff data first -o json", stdout: "[]", stderr: "-"},
			{name: "diff of no snapshot", command: "snapshot diff data first secnd", code: 3, err: `did you mean "second"`},
			{name: "diff of nothing", command: "snapshot diff dta first", code: 3, err: `did you mean "data"`},
			{name: "diff of one", command: "snapshot diff data", code: 2, err: "A is missing"},
			{name: "diff as a table alone", command: "snapshot diff data first -o yaml", code: 2, err: "-o table, json"},
			{name: "no setting", command: "volume set data", code: 2, err: "say what to change, for example --snapshots hourly=24,daily=7"},
			{name: "a bad schedule", command: "volume set data --snapshots hourly=0", code: 2, err: "leave hourly out"},
			{name: "a schedule of nothing", command: "volume set dta --snapshots hourly=2", code: 3, err: "see 'podnas volume list --all'"},
			{name: "set a schedule", command: "volume set data --snapshots hourly=2,yearly=1", stdout: "volume data now keeps these snapshots: hourly=2,yearly=1\n", stderr: "-"},
			{name: "show the schedule", command: "volume show data", stdout: "hourly=2,yearly=1; the next in "},
			{name: "show the schedule to programs", command: "volume show data -o json", stdout: `"yearly": 1`},
			{name: "set none", command: "volume set data --snapshots none", stdout: "those that there are stay\n", stderr: "-"},
			{name: "set a promise", command: "volume set data --snapshot-reserve 20%", stdout: "for a snapshot of volume data, 20% of what it uses is promised from now on\n"},
			{name: "set a bad promise", command: "volume set data --snapshot-reserve 2Gi", code: 2, err: "a smaller percentage"},
			{name: "create one with a schedule", command: "volume create daily --size 1Mi --snapshots daily=7", stdout: "name: daily\n"},
			{name: "show it", command: "volume show daily", stdout: "daily=7; the next in "},
			{name: "restore in place", command: "snapshot restore data second", stdout: "is what its snapshot second has: 0 files; what it was is in its snapshot before-restore-"},
			{name: "restore to none", command: "snapshot restore data secnd", code: 3, err: `did you mean "second"`},
			{name: "give up none", command: "snapshot restore data second --give-up", code: 3, err: "volume data: it is not being restored"},
			{name: "give up by force", command: "snapshot restore data second --give-up --force", code: 2, err: "no use for --force"},
			{name: "delete unasked", command: "snapshot delete data first", code: 2, err: "use --yes"},
			{name: "delete", command: "snapshot delete data first --yes", stdout: "snapshot first of volume data is deleted: its files are removed in the background\n"},
			{name: "delete again", command: "snapshot delete data first --yes", code: 3, err: "no such snapshot"},
			{name: "delete the volume", command: "volume delete data --yes", stdout: "removed in the background; its 3 snapshots are kept, see 'podnas snapshot list data'\n"},
			{name: "list that of a deleted one", command: "snapshot list", stdout: "data (deleted)   second"},
			{name: "show that of a deleted one", command: "snapshot show data second", stdout: "data, which is deleted"},
			{name: "diff of a deleted one", command: "snapshot diff data second", code: 3, err: "no such volume"},
			{name: "create of a deleted one", command: "snapshot create data", code: 3, err: "no such volume"},
			{name: "restore", command: "volume copy data data --snapshot second", stdout: "name: data\n"},
			{name: "delete several", command: "snapshot delete data second none --yes", code: 1, stdout: "second of volume data is deleted", stderr: "snapshot none is not deleted", err: "1 of 2 snapshots are not deleted"},
			{name: "no name", command: "snapshot delete data", code: 2, err: "NAME is missing"},
			{name: "no volume", command: "snapshot create", code: 2, err: "VOLUME is missing"},
			{name: "too many arguments", command: "snapshot create a b c", code: 2, err: `unexpected argument "c"`},
			{name: "too many volumes", command: "snapshot list a b", code: 2, err: `unexpected argument "b"`},
			{name: "no such command", command: "snapshot crate", code: 2, err: `did you mean "create"?`},
			{name: "bad output", command: "snapshot list -o xml", code: 2, err: "-o table, wide, name, json, yaml"},
		} {
			t.Run(s.name, s.run)
		}
	})
}

// What has changed is printed so that terminals and programs take it.
func TestSnapshotDiff(t *testing.T) {
	testdisk.XFS(t, func(t *testing.T, root string) {
		serveDisk(t, root)
		t.Setenv("PODNAS_ROOT", root)
		in := func(name string) string { return filepath.Join(root, "data", name) }
		step{command: "volume create data --size 1Mi", stdout: "name: data\n"}.run(t)
		for _, name := range []string{"file", "gone"} {
			if err := os.WriteFile(in(name), []byte("content"), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		step{command: "snapshot create data a", stdout: "complete"}.run(t)
		err := errors.Join(os.WriteFile(in("file"), []byte("other"), 0o600), os.Chmod(in("file"), 0o600), os.Remove(in("gone")),
			os.Mkdir(in("dir"), 0o755), os.WriteFile(in("dir/\x1b[31mred"), nil, 0o644), os.WriteFile(in("dir/\xff"), nil, 0o644))
		if err != nil {
			t.Fatal(err)
		}
		const want = "+ dir/\n+ \"dir/\\x1b[31mred\"\n+ \"dir/\\xff\"\nM file   (content, mode, modified)\n- gone\n"
		step{command: "snapshot diff data a", stdout: want, stderr: "3 added, 1 removed, 1 changed"}.run(t)
		step{command: "snapshot create data b", stdout: "complete"}.run(t)
		step{command: "snapshot diff data a b", stdout: want}.run(t)
		step{command: "snapshot diff data b a -o json", stdout: `{"kind":"removed","path":"dir/` + "\\ufffd" + `","pathBase64":"ZGlyL/8=","size":0}`, stderr: "-"}.run(t)
		step{command: "snapshot diff data a -o json", stdout: `{"kind":"changed","path":"file","what":["content","mode","modified"],"size":5},`}.run(t)
	})
}

// A disk that can have no snapshots says why, and what to do.
func TestSnapshotsOnExt4(t *testing.T) {
	testdisk.Ext4(t, func(t *testing.T, root string) {
		serveDisk(t, root)
		t.Setenv("PODNAS_ROOT", root)
		step{command: "volume create data --size 1Mi", stdout: "name: data\n"}.run(t)
		step{command: "snapshot create data", code: 2, err: "it needs XFS (with reflink=1) or btrfs. Put podnas's disk on one of these, or use podnas serve --disk-image", stdout: "-"}.run(t)
		step{command: "snapshot create data", code: 2, err: "only if nobody writes to the volume meanwhile: podnas volume copy data data-copy", stdout: "-"}.run(t)
		step{command: "volume copy data data-copy", stdout: "name: data-copy\n"}.run(t)
		step{command: "snapshot list data", stdout: "-", stderr: "there are no snapshots"}.run(t)
		step{command: "volume set data --snapshots daily=1", code: 2, err: "there can be no snapshots by a schedule: the disk can't share blocks", stdout: "-"}.run(t)
		step{command: "volume create other --size 1Mi --snapshots daily=1", code: 2, err: "or use podnas serve --disk-image", stdout: "-"}.run(t)
		step{command: "volume set data --snapshots none", stdout: "no more snapshots"}.run(t)
	})
}

// What a shell offers are the volumes with snapshots, and their names, but those that are there already.
func TestCompletionOfSnapshots(t *testing.T) {
	testdisk.XFS(t, func(t *testing.T, root string) {
		serveDisk(t, root)
		t.Setenv("PODNAS_ROOT", root)
		for _, command := range []string{
			"volume create data --size=1Mi", "volume create empty --size=1Mi", "snapshot create data a", "snapshot create data b",
		} {
			_, _, err := podnas(t.Context(), strings.Fields(command)...)
			mustDo(t, err)
		}
		for command, want := range map[string]string{
			"snapshot show":                            "data",
			"snapshot list":                            "data",
			"snapshot show data":                       "a b",
			"snapshot show data a":                     "",
			"snapshot delete data a":                   "b",
			"snapshot create":                          "data empty",
			"snapshot list data":                       "",
			"volume create new --from data --snapshot": "a b",
			"volume copy data new --snapshot":          "a b",
		} {
			out, _, err := podnas(t.Context(), append(append([]string{"__complete"}, strings.Fields(command)...), "")...)
			mustDo(t, err)
			var offered []string
			for line := range strings.Lines(out) {
				if name, _, _ := strings.Cut(strings.TrimSpace(line), "\t"); name != "" && !strings.HasPrefix(name, ":") {
					offered = append(offered, name)
				}
			}
			if got := strings.Join(offered, " "); got != want {
				t.Errorf("after %q: %q, want %q", command, got, want)
			}
		}
	})
}

func TestSnapshotTexts(t *testing.T) {
	at := time.Now().Add(-time.Hour)
	taking := control.Snapshot{Snapshot: volume.Snapshot{Name: "a", Volume: "v"}, State: control.SnapshotTaking}
	if got := takingText(taking); got != "snapshot a of volume v: waiting for a moment between two changes" {
		t.Error(got)
	}
	taking.Created, taking.Files, taking.Bytes, taking.Total = at, 1200, 1<<30, 4<<30
	if got := takingText(taking); got != "snapshot a of volume v: 1,200 files with 1Gi of 4Gi, 25%" {
		t.Error(got)
	}
	taking.Bytes = 5 << 30 // the volume has shrunk since
	if got := takingText(taking); !strings.HasSuffix(got, " 99%") {
		t.Error(got)
	}
	if got := takenText(taking); !strings.Contains(got, "'podnas snapshot delete v a' ends it") {
		t.Error(got)
	}
	if got := describeSnapshot(&taking); got != "being taken" {
		t.Error(got)
	}
	taking.State = control.SnapshotReady
	if got := describeSnapshot(&taking); got != "60m ago, 5Gi" {
		t.Error(got)
	}
	if one, two := keptSnapshots(1), keptSnapshots(2); one != "snapshot is" || two != "2 snapshots are" {
		t.Error(one, two)
	}
}

// The files of a snapshot stay what they were, for a script that keeps the last two.
func TestSnapshotsInAScript(t *testing.T) {
	testdisk.XFS(t, func(t *testing.T, root string) {
		serveDisk(t, root)
		t.Setenv("PODNAS_ROOT", root)
		run := func(args ...string) string {
			t.Helper()
			out, _, err := podnas(context.Background(), args...)
			mustDo(t, err)
			return strings.TrimSpace(out)
		}
		run("volume", "create", "data", "--size=1Mi")
		var names []string
		for _, text := range []string{"one", "two", "three"} {
			mustDo(t, os.WriteFile(filepath.Join(root, "data", "file"), []byte(text), 0o600))
			names = append(names, run("snapshot", "create", "data", "-o", "name"))
		}
		if listed := strings.Fields(run("snapshot", "list", "data", "-o", "name")); !slices.Equal(listed, names) {
			t.Fatalf("listed %v, taken %v", listed, names)
		}
		run("snapshot", "delete", "data", names[0], "--yes")
		var shown struct{ Directory string }
		mustDo(t, json.Unmarshal([]byte(run("snapshot", "show", "data", names[1], "-o", "json")), &shown))
		if data, err := os.ReadFile(filepath.Join(shown.Directory, "file")); string(data) != "two" {
			t.Errorf("%q, %v", data, err)
		}
	})
}

package snapshot_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/podnas/podnas/server/disk"
	"github.com/podnas/podnas/server/snapshot"
	"github.com/podnas/podnas/test/testdisk"
)

// Files of a volume may share blocks only with those that have the flag C of chattr(1), too, or only with those that have not: a
// database on btrfs often has it.
func TestFilesWithoutCOW(t *testing.T) {
	testdisk.Sharing(t, func(t *testing.T, on string) {
		v := newVolume(t, on)
		db, err := v.mkdir(*v.Files.RootID(), "db")
		mustDo(t, err)
		testdisk.WithoutCOW(t, filepath.Join(v.dir, "db"), true)
		var ids []disk.FileID
		for _, name := range []string{"table", "log"} {
			id, err := v.create(db, name)
			mustDo(t, err)
			mustDo(t, v.write(id, strings.Repeat(name, 10000), 0))
			ids = append(ids, id)
		}
		testdisk.WithoutCOW(t, filepath.Join(v.dir, "db"), false)
		id, err := v.create(db, "with")
		mustDo(t, err)
		mustDo(t, v.write(id, "copied on write", 0))
		for round := range 3 {
			want, err := describe(v.dir)
			mustDo(t, err)
			tree, err := v.take(new(snapshot.Progress))
			mustDo(t, err)
			mustDo(t, v.write(ids[0], fmt.Sprint("another", round), 4096))
			got, err := describe(tree)
			if err != nil || fmt.Sprint(got) != fmt.Sprint(want) {
				t.Errorf("snapshot %d has %.1000q, %v, want %.1000q", round, got, err, want)
			}
		}
		// Files of podnas's own folder may inherit it, too.
		testdisk.WithoutCOW(t, v.work, true)
		_, err = v.take(new(snapshot.Progress))
		mustDo(t, err)
		if content, err := os.ReadFile(filepath.Join(v.last.Tree, "db", "with")); err != nil || string(content) != "copied on write" {
			t.Errorf("it has %q, %v", content, err)
		}
	})
}

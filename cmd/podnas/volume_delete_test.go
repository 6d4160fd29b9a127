package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/podnas/podnas/internal/volume"
)

// Of several volumes each is tried, and a mistake in one name costs no other volume.
func TestSeveralVolumes(t *testing.T) {
	root, _ := serveStandalone(t)
	t.Setenv("PODNAS_ROOT", root)
	for _, name := range strings.Fields("a b c d keep") {
		step{command: "volume create " + name + " --size=1Mi"}.run(t)
		mustDo(t, os.WriteFile(filepath.Join(root, name, "file"), []byte(name), 0o600))
	}
	for _, s := range []step{
		{name: "nobody is there", command: "volume archive a b", code: exitUsage, err: "volume a is not archived: there is no terminal", stdout: "-"},
		{name: "no name", command: "volume archive", code: exitUsage, err: "NAME is missing: podnas volume archive NAME..."},
		{name: "names that are not there", command: "volume delete -y keep2 none", code: exitFailed, stdout: "-", stderr: "volume none is not deleted: ", err: "2 of 2 volumes are not deleted"},
		{name: "archive", command: "volume archive -y a b", stdout: "volume a is archived: its files are in the archive, 'podnas volume adopt a' restores it\nvolume b is archived: ", stderr: "-"},
		{name: "archive again", command: "volume archive -y a", code: exitUsage, err: "volume a is already deleted, and its files are archived"},
		{name: "a name that is not there", command: "volume delete -y none c", code: exitFailed, stdout: "volume c is deleted: ", stderr: "volume none is not deleted: ", err: "1 of 2 volumes are not deleted"},
		{name: "the same name twice", command: "volume delete -y d d", stdout: "volume d is deleted: its files are removed in the background\n", stderr: "-"},
		// Two of one name are in the archive: only the latest is meant.
		{name: "another a", command: "volume create a --size=1Mi"},
		{name: "archive it, too", command: "volume archive -y a"},
		{name: "remove one", command: "volume delete --kept -y a a a", stdout: "volume a is deleted: ", stderr: "-"},
		{name: "restore the other", command: "volume adopt a", stdout: "name: a\n"},
		{name: "what is in use beside what is kept", command: "volume delete --kept -y keep b", code: exitFailed, stdout: "volume b is deleted: ", stderr: "volume keep is not deleted: volume keep is not archived or retained, but in use"},
		{name: "what is left", command: "volume list --all -o name", stdout: "a\nkeep\n"},
	} {
		t.Run(s.name, s.run)
	}
	for _, name := range []string{"a", "keep"} {
		if data, err := os.ReadFile(filepath.Join(root, name, "file")); err != nil || string(data) != name {
			t.Errorf("the file of %s reads %q, %v", name, data, err)
		}
	}
	out, _, err := podnas(t.Context(), "__complete", "volume", "archive", "a", "")
	if err != nil || !slices.Contains(strings.Split(out, "\n"), "keep\t1Mi, "+volume.Ready) || strings.Contains(out, "a\t") {
		t.Errorf("offered %q, %v", out, err)
	}
}

package docs

import (
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/podnas/podnas/"

// wire is what the table of packages calls the wire packages.
var wire = []string{"nfs/xdr", "nfs/rpc", "nfs/nfs3", "nfs/nfs4", "nfs/mount3"}

var quoted = regexp.MustCompile("`([^`]+)`")

// names returns what is between backquotes.
func names(text string) (names []string) {
	for _, match := range quoted.FindAllStringSubmatch(text, -1) {
		names = append(names, match[1])
	}
	return names
}

// imports returns for each package of the module those that it imports.
func imports(t *testing.T) map[string][]string {
	t.Helper()
	cmd := exec.Command("go", "list", "-f", `{{.ImportPath}} {{join .Imports " "}}`, "./...")
	cmd.Dir = top
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	all := map[string][]string{}
	for line := range strings.Lines(string(out)) {
		var found []string
		for _, name := range strings.Fields(line) {
			if name, ok := strings.CutPrefix(name, module); ok {
				found = append(found, name)
			}
		}
		if len(found) > 0 {
			all[found[0]] = found[1:]
		}
	}
	return all
}

// ARCHITECTURE.md is read in one go. What it has no room for is in the comments of packages.
func TestLength(t *testing.T) {
	const most = 1500
	if words := len(strings.Fields(strings.Join(architecture(t), "\n"))); words > most {
		t.Errorf("ARCHITECTURE.md has %d words, more than %d: move some to the comments of packages", words, most)
	}
}

// The table of packages in ARCHITECTURE.md has each package but some of the tests', and says what each imports.
func TestPackages(t *testing.T) {
	all := imports(t)
	missing := maps.Clone(all)
	maps.DeleteFunc(missing, func(name string, _ []string) bool { return strings.HasPrefix(name, "test/") })
	for _, line := range architecture(t) {
		columns := strings.Split(line, "|")
		if len(columns) != 5 {
			continue
		}
		if strings.Contains(columns[3], "all below") {
			delete(missing, strings.Trim(columns[1], " `"))
			continue
		}
		has := map[string]bool{}
		packages := 0
		for _, folder := range names(columns[1]) {
			found, ok := all[folder]
			if !ok {
				continue
			}
			packages++
			delete(missing, folder)
			for _, name := range found {
				has[name] = true
			}
		}
		if packages == 0 {
			continue
		}
		says := names(columns[3])
		for name := range has {
			isWire := strings.Contains(columns[3], "wire packages") && slices.Contains(wire, name)
			if !isWire && !slices.Contains(says, name) {
				t.Errorf("%s imports %s, which the table does not say", columns[1], name)
			}
		}
		for _, name := range says {
			if !has[name] {
				t.Errorf("%s does not import %s, as the table says", columns[1], name)
			}
		}
	}
	for name := range missing {
		t.Errorf("the table lacks %s", name)
	}
}

// The files that ARCHITECTURE.md names exist.
func TestFiles(t *testing.T) {
	var files []string
	err := filepath.WalkDir(top, func(path string, _ os.DirEntry, err error) error {
		if filepath.Ext(path) == ".go" {
			files = append(files, filepath.ToSlash(path))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	checked := 0
	for _, line := range architecture(t) {
		for _, name := range names(line) {
			if filepath.Ext(name) != ".go" {
				continue
			}
			checked++
			if !slices.ContainsFunc(files, func(file string) bool { return strings.HasSuffix(file, "/"+name) }) {
				t.Errorf("there is no %s", name)
			}
		}
	}
	if checked < 40 {
		t.Errorf("only %d names of files were found", checked)
	}
}

func architecture(t *testing.T) []string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(top, "ARCHITECTURE.md"))
	if err != nil {
		t.Fatal(err)
	}
	return strings.Split(string(b), "\n")
}

package main

import (
	"go/ast"
	"go/build"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// What the race detector leaves out runs in CI only because make test names it, each test and its package.
func TestWithoutRace(t *testing.T) {
	makefile, err := os.ReadFile("../../Makefile")
	if err != nil {
		t.Fatal(err)
	}
	run := regexp.MustCompile(`go test .*-run '([\w|]+)' ([^;]+);`).FindAllStringSubmatch(string(makefile), -1)
	if len(run) != 1 {
		t.Fatalf("the Makefile has %d lines that name tests and packages, want that of make test", len(run))
	}
	named, packages := strings.Split(run[0][1], "|"), strings.Fields(run[0][2])
	left := leftOutByRace(t, "../..")
	for test := range left {
		if !slices.Contains(named, test) {
			t.Errorf("the race detector leaves out %s, and make test does not name it", test)
		}
	}
	for _, test := range named {
		if left[test] == nil {
			t.Errorf("make test names %s, which the race detector does not leave out", test)
		}
	}
	dirs := slices.Concat(slices.Collect(maps.Values(left))...)
	for _, dir := range dirs {
		if !slices.ContainsFunc(packages, func(pattern string) bool { return matches(pattern, dir) }) {
			t.Errorf("the race detector leaves out tests in %s, and make test does not name it", dir)
		}
	}
	for _, pattern := range packages {
		if !slices.ContainsFunc(dirs, func(dir string) bool { return matches(pattern, dir) }) {
			t.Errorf("make test names %s, where the race detector leaves out no test", pattern)
		}
	}
}

// matches is whether a pattern of the go command, ./folder or ./folder/..., has a package.
func matches(pattern, dir string) bool {
	parent, all := strings.CutSuffix(pattern, "/...")
	return dir == parent || all && strings.HasPrefix(dir, parent+"/")
}

// leftOutByRace returns the tests of ./... in files that are built only without the race detector, each with the packages that
// have it, as ./folder.
func leftOutByRace(t *testing.T, top string) map[string][]string {
	t.Helper()
	with := build.Default
	with.BuildTags = append(slices.Clone(with.BuildTags), "race")
	left := map[string][]string{}
	err := filepath.WalkDir(top, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		dir, name := filepath.Split(path)
		if entry.IsDir() {
			_, other := os.Stat(filepath.Join(path, "go.mod"))
			if path != top && (other == nil || strings.HasPrefix(name, ".") || strings.HasPrefix(name, "_") || name == "testdata") {
				return fs.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(name, "_test.go") {
			return nil
		}
		if built, err := build.Default.MatchFile(dir, name); err != nil || !built {
			return err
		}
		if built, err := with.MatchFile(dir, name); err != nil || built {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(top, filepath.Clean(dir))
		for _, decl := range file.Decls {
			if f, ok := decl.(*ast.FuncDecl); ok && f.Recv == nil && strings.HasPrefix(f.Name.Name, "Test") && f.Name.Name != "TestMain" {
				left[f.Name.Name] = append(left[f.Name.Name], "./"+filepath.ToSlash(rel))
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return left
}

package docs

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"
)

// What a page for users may have, so that it is read: docs/internals has the rest.
const (
	maxWords = 2000
	maxCell  = 120 // letters of a cell in a table
)

// shortPages are the pages for users and contributors: all in docs but the reference, which is made from the code.
func shortPages(t *testing.T) []string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(top, "docs/*.md"))
	if err != nil || len(found) == 0 {
		t.Fatalf("no page in docs (%v)", err)
	}
	all := []string{filepath.Join(top, "README.md"), filepath.Join(top, "CONTRIBUTING.md"), filepath.Join(top, "deploy/README.md")}
	for _, page := range found {
		if filepath.Base(page) != "reference.md" {
			all = append(all, page)
		}
	}
	return all
}

// These pages are short, as wc -w counts, and so are the cells of their tables.
func TestShort(t *testing.T) {
	for _, page := range shortPages(t) {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		if words := len(strings.Fields(string(text))); words >= maxWords {
			t.Errorf("%s has %d words, %d or more: put what few need to know into docs/internals", page, words, maxWords)
		}
		for i, line := range strings.Split(string(text), "\n") {
			if line = strings.TrimSpace(line); !strings.HasPrefix(line, "|") {
				continue
			}
			for _, cell := range cells(line) {
				if n := utf8.RuneCountInString(cell); n > maxCell {
					t.Errorf("%s:%d: a cell has %d letters, more than %d: %s", page, i+1, n, maxCell, cell)
				}
			}
		}
	}
}

// cells returns the cells of a line of a table. A pipe in code is written \|.
func cells(line string) (all []string) {
	line = strings.ReplaceAll(strings.Trim(strings.TrimSpace(line), "|"), `\|`, "\x00")
	for _, cell := range strings.Split(line, "|") {
		all = append(all, strings.ReplaceAll(strings.TrimSpace(cell), "\x00", "|"))
	}
	return all
}

// What names a revision of this repository names none that moves, but the tag of the manifests, or TAG for one.
func TestRemoteBases(t *testing.T) {
	tag := manifestTag(t)
	revision := regexp.MustCompile("(?:[?]ref=|targetRevision: |ref: {(?:tag|branch): )([^\\s`}]+)")
	named := 0
	for _, page := range pages(t) {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, found := range revision.FindAllStringSubmatch(string(text), -1) {
			if named++; found[1] != tag && found[1] != "TAG" {
				t.Errorf("%s names %s, the manifests the tag %s", page, found[0], tag)
			}
		}
	}
	if named < 3 {
		t.Errorf("only %d revisions were found", named)
	}
}

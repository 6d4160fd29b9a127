package main

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// skip is a test that did not run, and what it said about it.
type skip struct{ pkg, test, said string }

// failure is a test that failed. Where the suite printed lines, what it and its subtests
// printed is kept, in the order in which they began.
type failure struct {
	pkg, test string
	order     []string
	output    map[string][]string
}

// unexpected are the skips that expected.go does not have, by what the tests said and then
// by their names.
func (s *suite) unexpected() []skip {
	return slices.SortedFunc(func(yield func(skip) bool) {
		for found := range maps.Keys(s.skips) {
			if !expects(found) && !yield(found) {
				return
			}
		}
	}, func(a, b skip) int {
		return cmp.Or(cmp.Compare(a.said, b.said), cmp.Compare(a.pkg, b.pkg), cmp.Compare(a.test, b.test))
	})
}

func expects(found skip) bool {
	return slices.ContainsFunc(expected(), func(e expectation) bool {
		return regexp.MustCompile(e.test).MatchString(found.test) && regexp.MustCompile(e.says).MatchString(found.said)
	})
}

// report prints what did not run, and what failed. That is an error where all must.
func (s *suite) report(must bool) error {
	found := s.unexpected()
	var text strings.Builder
	if len(found) > 0 {
		fmt.Fprintf(&text, "\nDid not run: %d tests, because\n", len(found))
	}
	for i, f := range found {
		if i == 0 || found[i-1].said != f.said {
			fmt.Fprintf(&text, "  %s\n", cmp.Or(f.said, "(no reason was given)"))
		}
		fmt.Fprintf(&text, "      %s\n", strings.TrimSpace(f.test+"  "+strings.TrimPrefix(f.pkg, "github.com/podnas/podnas/")))
	}
	if known := len(s.skips) - len(found); known > 0 {
		fmt.Fprintf(&text, "Expected not to run: %d tests (test/skips/expected.go says why)\n", known)
	}
	if len(s.failed) > 0 {
		fmt.Fprintf(&text, "\nFailed: %d tests\n", len(s.failed))
	}
	for _, f := range s.failed {
		fmt.Fprintf(&text, "      %s\n", strings.TrimSpace(f.test+"  "+strings.TrimPrefix(f.pkg, "github.com/podnas/podnas/")))
		for _, test := range f.order {
			text.WriteString(strings.Join(f.output[test], ""))
		}
	}
	fmt.Fprint(s.out, text.String())
	var errs []error
	if must && len(found) > 0 {
		errs = append(errs, fmt.Errorf("%d tests did not run (above). CI is set, where all must that test/skips/expected.go does not except", len(found)))
	}
	if must && s.empty > 0 {
		errs = append(errs, fmt.Errorf("%d test binaries had no test to run (above). CI is set, where each must have one", s.empty))
	}
	return errors.Join(errs...)
}

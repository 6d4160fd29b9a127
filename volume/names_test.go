package volume

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

func TestCompareNames(t *testing.T) {
	for _, sorted := range []string{
		"team-1 team-2 team-10 team-10a team-11",
		"a a-1 a-1-9 a-1-10 a001 a01 a1 a2 ab b",
		"1 2 10 100000000000000000000000 100000000000000000000001 a",
		"default/data-9 default/data-10 demo/data-1",
		"v1.9.1 v1.10.0 v2",
	} {
		want := strings.Fields(sorted)
		for range 20 {
			got := slices.Clone(want)
			rand.Shuffle(len(got), func(i, j int) { got[i], got[j] = got[j], got[i] })
			slices.SortFunc(got, CompareNames)
			if !slices.Equal(got, want) {
				t.Fatalf("%q, want %q", got, want)
			}
		}
	}
	if CompareNames("a7", "a7") != 0 || CompareNames("", "") != 0 || CompareNames("", "a") >= 0 {
		t.Error("equal names are not equal, or an empty one is not first")
	}
}

package checkup

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/podnas/podnas/internal/doctor"
	"github.com/podnas/podnas/internal/volume"
	"github.com/podnas/podnas/provisioner/internal/fixture"
)

// Results call volumes by their claims, in the order that people expect, and keep the names for commands.
func TestByClaim(t *testing.T) {
	store, _ := fixture.Store(t)
	for name, claim := range map[string]string{"pvc-1": "team-10", "pvc-2": "team-2", "pvc-3": "team-1", "vol": "team-3", "hand": ""} {
		spec := volume.Spec{Name: name, Size: 1 << 20}
		if claim != "" {
			spec.Claim = &volume.Claim{Namespace: claim, Name: "data"}
		}
		_, err := store.Create(t.Context(), spec)
		mustDo(t, err)
	}
	about := func(name string) doctor.Result {
		return doctor.Result{Check: "volume " + name, Volume: name, Status: doctor.Failed}
	}
	for _, tt := range []struct {
		name    string
		results []doctor.Result
		want    string
	}{
		{
			"all about volumes",
			[]doctor.Result{about("pvc-1"), about("pvc-2"), about("hand"), about("pvc-3")},
			"[volume hand=hand volume team-1/data=pvc-3 volume team-2/data=pvc-2 volume team-10/data=pvc-1]",
		},
		{
			"the order of others has its reasons",
			[]doctor.Result{about("pvc-1"), {Check: "b"}, {Check: "a"}, about("pvc-2")},
			"[volume team-10/data=pvc-1 b= a= volume team-2/data=pvc-2]",
		},
		{"a second one", []doctor.Result{{Check: "second volume pvc-1", Volume: "pvc-1"}}, "[second volume team-10/data=pvc-1]"},
		{"one whose name is elsewhere too", []doctor.Result{about("vol")}, "[volume team-3/data=vol]"},
		{"one that is gone", []doctor.Result{about("pvc-4")}, "[volume pvc-4=pvc-4]"},
		{"none", nil, "[]"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			before := slices.Clone(tt.results)
			checks := byClaim(store, []doctor.Check{{Name: "check", Run: func(context.Context) []doctor.Result { return tt.results }}})
			got := []string{}
			for _, r := range checks[0].Run(t.Context()) {
				got = append(got, r.Check+"="+r.Volume)
			}
			if fmt.Sprint(got) != tt.want {
				t.Errorf("%v, want %s", got, tt.want)
			}
			if !slices.Equal(before, tt.results) {
				t.Error("the check's own results are changed")
			}
		})
	}
}

package checkup

import (
	"context"
	"slices"
	"strings"

	"github.com/maruel/natural"

	"github.com/podnas/podnas/internal/doctor"
	"github.com/podnas/podnas/internal/volume"
)

// byClaim has the results of checks call volumes by their claims, which people have named, and not pvc-1e86....
// Commands need that name, so Result.Volume has it. Results that are all about volumes are sorted by those names.
func byClaim(store *volume.Store, checks []doctor.Check) []doctor.Check {
	checks = slices.Clone(checks)
	for i := range checks {
		run := checks[i].Run
		checks[i].Run = func(ctx context.Context) []doctor.Result {
			results := slices.Clone(run(ctx)) // they may be shared
			others := false
			for i := range results {
				r := &results[i]
				if r.Volume == "" {
					others = true
				} else if v, err := store.Get(r.Volume); err == nil {
					if about, ok := strings.CutSuffix(r.Check, r.Volume); ok {
						r.Check = about + known(&v)
					}
				}
			}
			if !others {
				slices.SortStableFunc(results, func(a, b doctor.Result) int { return natural.Compare(a.Check, b.Check) })
			}
			return results
		}
	}
	return checks
}

// known is what people call a volume: by its claim, if it has one.
func known(v *volume.Volume) string {
	if v.Claim == nil {
		return v.Name
	}
	return v.Claim.Namespace + "/" + v.Claim.Name
}

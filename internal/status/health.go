package status

import (
	"context"
	"slices"

	"github.com/podnas/podnas/internal/doctor"
)

// problems returns the findings that are not OK, the worst first, and whether all checks
// have run. The live checks run for it: what they report must agree with the rest of the
// page, which is to be collected before.
func (s *Status) problems(ctx context.Context) (problems []doctor.Result, checked bool) {
	found, checked := s.cfg.Findings.Current(ctx)
	for _, status := range []doctor.Status{doctor.Failed, doctor.Warning} {
		problems = append(problems, slices.DeleteFunc(slices.Clone(found), func(r doctor.Result) bool { return r.Status != status })...)
	}
	return problems, checked
}

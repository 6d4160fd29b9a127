package status

import (
	"slices"

	"github.com/podnas/podnas/doctor"
)

// problems returns the findings that are not OK, the worst first, and whether all checks
// have run.
func (s *Status) problems() (problems []doctor.Result, checked bool) {
	found, checked := s.cfg.Findings.Known()
	for _, status := range []doctor.Status{doctor.Failed, doctor.Warning} {
		problems = append(problems, slices.DeleteFunc(slices.Clone(found), func(r doctor.Result) bool { return r.Status != status })...)
	}
	return problems, checked
}

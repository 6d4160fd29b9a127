package standalone

import (
	"errors"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/maruel/natural"

	"github.com/podnas/podnas/internal/doctor"
	"github.com/podnas/podnas/internal/statedir"
)

// Findings returns what the last scan found wrong with the folder. It may be called
// concurrently.
func (r *Runner) Findings() []doctor.Result {
	if found := r.found.Load(); found != nil {
		return *found
	}
	return []doctor.Result{doctor.Good("the folder %s was not read yet", r.Claims)}
}

// find sets the findings of a scan. m is nil if the folder can't be read.
func (r *Runner) find(m *manifests) {
	wrong := r.problems.Current()
	found := []doctor.Result{}
	for _, about := range slices.SortedFunc(maps.Keys(wrong), natural.Compare) {
		result := doctor.Fail("solve that; podnas reads the folder every second", "%v", wrong[about])
		result.Check = about
		var paused *pauseError
		switch kind, name, _ := strings.Cut(about, " "); {
		case kind == "volume":
			result.Volume = name
		case kind == "claim" && m != nil:
			result.Fix = "change it in " + m.fileOf(about) + ", or solve the problem; podnas tries again every second"
		case kind == "file":
			result.Fix = "correct or remove it; podnas reads the folder every second"
		case kind == "second": // a volume that the claim does not use
			result.Status, result.Volume = doctor.Warning, strings.TrimPrefix(name, "volume ")
			result.Fix = "delete the one that you do not need"
		case errors.As(wrong[about], &paused):
			result = doctor.Warn(paused.fix, "no volume is deleted for now: %s", paused.why)
			result.Check = "folder " + r.Claims
		}
		found = append(found, result)
	}
	for _, path := range statedir.Aside(r.Claims, filepath.Join(r.Claims, provisionedDir)) {
		result := doctor.Warn("remove it: rm -r "+path, "it was not what podnas had written, and was put aside; podnas has written it again")
		result.Check = path
		found = append(found, result)
	}
	if len(found) == 0 {
		found = append(found, doctor.Good("no claim in %s is refused", r.Claims))
	}
	r.found.Store(&found)
}

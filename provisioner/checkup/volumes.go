package checkup

import (
	"fmt"
	"maps"
	"slices"

	"github.com/podnas/podnas/internal/doctor"
	"github.com/podnas/podnas/internal/volume"
	"github.com/podnas/podnas/provisioner"
)

// volumes says which volumes fill up.
func volumes(store *volume.Store) []doctor.Result {
	listed := store.List()
	usages, err := store.Usages(listed)
	if err != nil {
		return []doctor.Result{doctor.Fail("check the disk", "their usage is unknown: %v", err)}
	}
	var results []doctor.Result
	for i := range listed {
		v := &listed[i]
		u := usages[v.Name]
		results = append(results, judgeFullness(v, u.Bytes, u.Limit.Bytes, "%d%% full: %s of %s are used", volume.FormatSize)...)
		results = append(results, judgeFullness(v, u.Inodes, u.Limit.Inodes, "%d%% of its inodes are used: %s of %s", func(n int64) string { return fmt.Sprint(n) })...)
	}
	if len(results) == 0 {
		return []doctor.Result{doctor.Good("%d are served, each less than %d%% full", len(store.Served()), volume.FillingPercent)}
	}
	return results
}

// judgeFullness reports a volume that fills up.
func judgeFullness(v *volume.Volume, used, limit int64, says string, format func(int64) string) []doctor.Result {
	percent := volume.Percent(used, limit)
	mark := volume.Mark(percent)
	if mark == 0 {
		return nil
	}
	fix := "remove files, or raise it: 'podnas volume resize " + v.Name + " SIZE'"
	if v.Claim != nil {
		fix = fmt.Sprintf("remove files, or raise the request of claim %s/%s", v.Claim.Namespace, v.Claim.Name)
	}
	r := doctor.Warn(fix, says, percent, format(used), format(limit))
	if mark == volume.FullPercent {
		r.Status = doctor.Failed
	}
	r.Check, r.Volume = "volume "+v.Name, v.Name
	return []doctor.Result{r}
}

// schedules says whose snapshots are not taken as their schedules say. It returns nothing without a schedule.
func schedules(all []volume.Scheduled) []doctor.Result {
	var results []doctor.Result
	for i := range all {
		problem := all[i].Problem()
		if problem == "" {
			continue
		}
		v := &all[i].Volume
		r := doctor.Warn("podnas tries again; what the reason says has to be done, and its log has more. For no snapshots of the volume: 'podnas volume set "+v.Name+" --snapshots none'",
			"its scheduled snapshots (%s) are not taken: %s", v.Schedule, problem)
		if all[i].Late {
			r.Status = doctor.Failed
		}
		r.Check, r.Volume = "volume "+v.Name, v.Name
		results = append(results, r)
	}
	if len(results) == 0 && len(all) > 0 {
		return []doctor.Result{doctor.Good("%s, and none is late", volume.FormatCount(len(all), "schedule"))}
	}
	return results
}

// versions checks that volumes which mount with NFSv4 can be: notServed is why that is not
// served, or nil.
func versions(store *volume.Store, notServed error) doctor.Result {
	var need []string
	by := map[string]int{}
	for _, v := range store.List() {
		version := provisioner.MountVersion(v)
		if by[version]++; version != "3" {
			need = append(need, known(&v))
		}
	}
	switch {
	case notServed == nil:
		says := "NFSv3, NFSv4.1 and NFSv4.2 are served; new volumes mount with 4.2, unless their class names another"
		for _, version := range slices.Backward(slices.Sorted(maps.Keys(by))) {
			says += fmt.Sprintf("; %s with %s", volume.FormatCount(by[version], "volume"), version)
		}
		return doctor.Good("%s", says)
	case len(need) == 0:
		return doctor.Good("NFSv3 is served, and no volume mounts with version 4: %v", notServed)
	}
	return doctor.Fail("start podnas so that it serves NFSv4, or replace mountOptions of their PersistentVolumes by those of version 3 (docs/storageclass.md)",
		"%s can't be mounted, because they mount with NFSv4: %s. %v", volume.FormatCount(len(need), "volume"), volume.FormatNames(need), notServed)
}

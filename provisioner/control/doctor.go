package control

import (
	"context"
	"net/http"

	"github.com/podnas/podnas/internal/doctor"
	"github.com/podnas/podnas/internal/process"
	"github.com/podnas/podnas/internal/volume"
)

const doctorPath = "/v1/doctor"

// Report is the state of podnas and its disk.
type Report struct {
	Process process.Info `json:"process"`
	Disk    Disk         `json:"disk"`
	// Checks are the results of the checks.
	Checks []doctor.Result `json:"checks"`
}

// Disk is the state of the disk. Sizes are bytes.
type Disk struct {
	Identity   string `json:"identity"`
	FileSystem string `json:"fileSystem"`
	Capacity   int64  `json:"capacity"`
	Free       int64  `json:"free"`
	Promised   int64  `json:"promised"` // the sum of all sizes, kept volumes' too
	Volumes    int    `json:"volumes"`
	Archived   int    `json:"archived"`
	Retained   int    `json:"retained"`
}

func (s *Server) doctor(r *http.Request) (any, error) {
	report := Report{Process: s.Process, Checks: s.Findings.Look(r.Context())}
	// Ignore the error: the checks report it, and the rest of the report is still
	// useful.
	report.Disk, _ = s.disk.Get(r.Context(), 0)
	report.Disk.Identity = s.store().Identity()
	return report, nil
}

// lookAtDisk returns the state of the disk, as far as it can be read.
func (s *Server) lookAtDisk(context.Context) (Disk, error) {
	store := s.store()
	space, _ := store.Space() // the checks report an error, as of the two below
	d := Disk{Capacity: space.Size, Free: space.Free, Promised: space.Promised, Volumes: len(store.Served())}
	kept, _ := store.Kept()
	for _, k := range kept {
		switch k.State {
		case volume.Archived:
			d.Archived++
		case volume.Retained:
			d.Retained++
		}
	}
	if mount, err := doctor.FindMount(s.Process.Root); err == nil {
		d.FileSystem = mount.String()
	}
	return d, nil
}

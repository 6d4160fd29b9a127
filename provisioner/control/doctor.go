package control

import (
	"context"
	"net/http"
	"time"

	"github.com/podnas/podnas/doctor"
	"github.com/podnas/podnas/volume"
)

const doctorPath = "/v1/doctor"

// Report is the state of podnas and its disk.
type Report struct {
	Process Process `json:"process"`
	Disk    Disk    `json:"disk"`
	// Checks are the results of the checks.
	Checks []doctor.Result `json:"checks"`
}

// Values of Process.Mode.
const (
	InCluster  = "cluster"
	Standalone = "standalone"
)

// Process describes the running process.
type Process struct {
	Version     string    `json:"version"`
	PID         int       `json:"pid"`
	Started     time.Time `json:"started"`
	Mode        string    `json:"mode"`
	Provisioner string    `json:"provisioner"`
	Root        string    `json:"root"`
	Listen      string    `json:"listen"` // the address of NFS
	Engine      string    `json:"engine"`
	EngineWhy   string    `json:"engineWhy"`
	QuotaMode   string    `json:"quotaMode"`            // as configured
	Quota       string    `json:"quota"`                // how sizes are enforced
	Overcommit  float64   `json:"overcommit,omitempty"` // 0: only the free space counts
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
func (s *Server) lookAtDisk(context.Context) (d Disk, err error) {
	store := s.store()
	for _, v := range store.List() {
		d.Volumes++
		d.Promised += v.Size
	}
	if kept, err := store.Kept(); err == nil {
		for _, k := range kept {
			d.Promised += k.Size // it may come back
			switch k.State {
			case volume.Archived:
				d.Archived++
			case volume.Retained:
				d.Retained++
			}
		}
	}
	if capacity, err := store.Capacity(); err == nil {
		d.Capacity = capacity
	}
	if free, err := store.Free(); err == nil {
		d.Free = free
	}
	if mount, err := doctor.FindMount(s.Process.Root); err == nil {
		d.FileSystem = mount.String()
	}
	return d, nil
}

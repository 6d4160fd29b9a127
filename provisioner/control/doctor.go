package control

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/podnas/podnas/volume"
)

// Report is what a podnas says of itself and its disk.
type Report struct {
	Process Process `json:"process"`
	Disk    Disk    `json:"disk"`
	// Findings are what is wrong, empty if all is well.
	Findings []Finding `json:"findings"`
}

// Process is what the running process is, as it was started.
type Process struct {
	Version string    `json:"version"`
	PID     int       `json:"pid"`
	Started time.Time `json:"started"`
	// Mode is "cluster" or "standalone".
	Mode        string  `json:"mode"`
	Provisioner string  `json:"provisioner"`
	Root        string  `json:"root"`
	Listen      string  `json:"listen"` // the address of NFS
	Engine      string  `json:"engine"`
	EngineWhy   string  `json:"engineWhy"`
	QuotaMode   string  `json:"quotaMode"`            // as asked for
	Quota       string  `json:"quota"`                // how sizes are enforced
	Overcommit  float64 `json:"overcommit,omitempty"` // 0: only free space is looked at
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

// Finding is something wrong.
type Finding struct {
	About   string `json:"about"` // a volume, or a part of podnas
	Problem string `json:"problem"`
	Fix     string `json:"fix,omitempty"` // what to do
}

func (s *Server) doctor(r *http.Request) (any, error) {
	report := Report{Process: s.Process, Findings: []Finding{}}
	add := func(about string, err error, fix string) {
		if err != nil {
			report.Findings = append(report.Findings, Finding{About: about, Problem: err.Error(), Fix: fix})
		}
	}
	store := s.store()

	d := &report.Disk
	d.Identity = store.Identity()
	for _, v := range store.List() {
		d.Volumes++
		d.Promised += v.Size
	}
	kept, err := store.Kept()
	add("disk", err, "see that podnas may read its folder .podnas on the disk")
	for _, k := range kept {
		d.Promised += k.Size // it may come back
		switch k.State {
		case volume.Archived:
			d.Archived++
		case volume.Retained:
			d.Retained++
		}
	}
	d.Capacity, err = store.Capacity()
	add("disk", err, "")
	d.Free, err = store.Free()
	add("disk", err, "")
	d.FileSystem, err = fileSystem(s.Process.Root)
	add("disk", err, "")

	_, err = s.Provisioner.Endpoint.Address(r.Context())
	add("address", err, "until then no volume is made: nodes could not mount it")

	problems, err := store.Check()
	add("disk", err, "see that podnas may read its disk")
	if s.Reconciler != nil {
		compared := s.Reconciler.Report()
		if compared.StandsAside != "" {
			add("provisioner", errors.New(compared.StandsAside), "")
		}
		problems = append(problems, compared.Findings...)
	}
	for _, p := range problems {
		report.Findings = append(report.Findings, Finding{About: about(p), Problem: p.Problem, Fix: p.Fix})
	}
	if s.Findings != nil {
		report.Findings = append(report.Findings, s.Findings(r.Context())...)
	}
	return report, nil
}

// about names what a finding of the store is about.
func about(f volume.Finding) string {
	if f.Volume == "" {
		return f.Path
	}
	return "volume " + f.Volume
}

// fileSystem tells the type and the options of the file system that holds a
// directory, see proc_pid_mountinfo(5).
func fileSystem(root string) (string, error) {
	root, err := filepath.EvalSymlinks(root)
	if err != nil {
		return "", err
	}
	data, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return "", err
	}
	unescape := strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`)
	found, longest := "", -1
	for line := range strings.Lines(string(data)) {
		mount, device, ok := strings.Cut(strings.TrimSpace(line), " - ")
		m, d := strings.Fields(mount), strings.Fields(device)
		if !ok || len(m) < 5 || len(d) < 3 {
			continue
		}
		point := unescape.Replace(m[4])
		inside := root == point || strings.HasPrefix(root, strings.TrimSuffix(point, "/")+"/")
		// Of two on one another the later one is on top.
		if inside && len(point) >= longest {
			found, longest = fmt.Sprintf("%s (%s)", d[0], d[2]), len(point)
		}
	}
	return found, nil
}

package volume

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"strings"

	"github.com/podnas/podnas/quota"
)

// Finding is a problem on the disk. podnas never removes anything because of one.
type Finding struct {
	Volume  string `json:"volume,omitempty"` // its name, if known
	Path    string `json:"path,omitempty"`   // below the root of the disk
	Problem string `json:"problem"`
	Fix     string `json:"fix"`              // what the administrator can do
	Notice  bool   `json:"notice,omitempty"` // a warning, not a failure
}

func (f Finding) String() string {
	return fmt.Sprintf("%s: %s; %s", strings.TrimSpace(f.Volume+" "+f.Path), f.Problem, f.Fix)
}

// Check compares the records with the directories on the disk.
func (s *Store) Check() ([]Finding, error) {
	// List the directories first: if one is created or moved meanwhile, its record is
	// read afterwards.
	var strays []string
	if err := s.findStrays(".", s.places(), &strays); err != nil {
		return nil, err
	}
	s.mu.Lock()
	var findings []Finding
	for _, d := range s.stillDamaged() {
		findings = append(findings, Finding{Path: d.file, Problem: damagedRecord + ": " + d.err.Error(), Fix: damagedFix})
	}
	var records []record
	for _, r := range s.records {
		records = append(records, *r)
	}
	strays = s.withoutRecord(strays)
	marked := map[string]error{} // volumes being marked, and errors of that
	for name, m := range s.markings {
		marked[name] = m.err
	}
	s.mu.Unlock()
	for _, p := range strays {
		if _, err := s.root.Lstat(p); errors.Is(err, os.ErrNotExist) {
			continue
		}
		findings = append(findings, Finding{
			Path:    p,
			Problem: "a directory that belongs to no volume",
			Fix:     "turn it into a volume: podnas volume adopt NAME --path=" + p + " --size=SIZE, or move it away",
			Notice:  true,
		})
	}
	limits, err := s.projectUsages()
	if err != nil {
		findings = append(findings, Finding{Problem: "the limits of volumes can't be read: " + err.Error(), Fix: "check the disk"})
	}
	for i := range records {
		r := &records[i]
		findings = append(findings, s.checkRecord(r)...)
		if s.quota != nil && err == nil {
			findings = append(findings, checkLimit(r, limits[r.Project], marked)...)
		}
	}
	return findings, nil
}

// withoutRecord returns the paths that neither contain a record's path nor are
// inside one. The caller holds s.mu.
func (s *Store) withoutRecord(paths []string) []string {
	var strays []string
	for _, p := range paths {
		if s.takenBy(p) == nil {
			strays = append(strays, p)
		}
	}
	return strays
}

// findStrays lists the directories that are not in a volume and contain none.
func (s *Store) findStrays(dir string, known places, strays *[]string) error {
	entries, err := fs.ReadDir(s.root.FS(), dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("list %s: %w", dir, err)
	}
	for _, e := range entries {
		p := path.Join(dir, e.Name())
		if !e.IsDir() || p == StateDir || p == "lost+found" {
			continue
		}
		switch {
		case known.volumes[p]:
		case known.above[p]:
			if err := s.findStrays(p, known, strays); err != nil {
				return err
			}
		default:
			*strays = append(*strays, p)
		}
	}
	return nil
}

// places has the paths of volumes, and of all their parent directories.
type places struct{ volumes, above map[string]bool }

func (s *Store) places() places {
	s.mu.Lock()
	defer s.mu.Unlock()
	known := places{map[string]bool{}, map[string]bool{}}
	for _, r := range s.records {
		known.volumes[r.Path] = true
		for p := path.Dir(r.Path); p != "." && !known.above[p]; p = path.Dir(p) {
			known.above[p] = true
		}
	}
	return known
}

// checkRecord checks one volume.
func (s *Store) checkRecord(r *record) []Finding {
	var findings []Finding
	found := func(problem, fix string) {
		findings = append(findings, Finding{Volume: r.Name, Path: r.Path, Problem: problem, Fix: fix})
	}
	switch r.State {
	case ready, retained, copyingState:
		if err := s.plainDir(r.Path); err != nil {
			found("its directory is missing, so it is not served: "+err.Error(), "put the directory back and restart podnas, or delete the volume")
			return findings
		}
	case adopting, archived:
		found("it could not be loaded at the start", "see the log for the reason, correct it, and restart podnas")
	}
	if r.State == copyingState && s.copyOf(r.Name) == nil {
		found("it should be a copy of "+r.Source+", which does not exist", "delete it")
	}
	return findings
}

// checkLimit compares the kernel's limit of a volume's project with the record. A
// retained volume is not checked: its limit is set when it is adopted.
func checkLimit(r *record, u quota.Usage, marked map[string]error) []Finding {
	limit := u.Limit.Bytes
	rightSize, rightInodes := limit >= r.Size && limit < r.Size+4096, u.Limit.Inodes == r.Inodes
	if r.Project == 0 || r.State != ready || rightSize && rightInodes {
		return nil
	}
	f := Finding{Volume: r.Name, Path: r.Path, Notice: true}
	switch err, marking := marked[r.Name]; {
	case err != nil:
		f.Problem = "its files can't be assigned to its project, so its size is not enforced: " + err.Error()
		f.Fix = "correct that; podnas tries again every minute"
	case marking:
		f.Problem = fmt.Sprintf("its files are being assigned to its project, %d so far; its size is not enforced until this is done", u.Inodes)
		f.Fix = "wait; the log says when it is done"
	case !rightSize:
		f.Problem = fmt.Sprintf("its limit on the disk is %s, not %s", FormatSize(limit), FormatSize(r.Size))
		f.Fix = "restart podnas, which corrects it"
	default:
		f.Problem = fmt.Sprintf("its inode limit on the disk is %d, not %d", u.Limit.Inodes, r.Inodes)
		f.Fix = "restart podnas, which corrects it"
	}
	return []Finding{f}
}

func (s *Store) copyOf(name string) *copying {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.copies[name]
}

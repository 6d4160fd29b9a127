package volume

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"

	"al.essio.dev/pkg/shellescape"
	"github.com/google/uuid"

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
	if err := s.findStrays(".", s.knownPaths(), &strays); err != nil {
		return nil, err
	}
	findings := s.checkSnapshots()
	for _, d := range s.stillRefused() {
		findings = append(findings, d.finding())
	}
	s.mu.Lock()
	if s.original != "" {
		findings = append(findings, s.copiedFinding())
	}
	var records []record
	for _, r := range s.records {
		records = append(records, *r)
	}
	strays = s.withoutRecordLocked(strays)
	findings = append(findings, s.halfRestoredLocked()...)
	marked := s.markingLocked()
	s.mu.Unlock()
	for _, p := range strays {
		if s.isGone(p) {
			continue
		}
		f := Finding{
			Path:    p,
			Problem: "a directory that belongs to no volume",
			Fix:     "turn it into a volume: " + adoptCommand(p) + ", or move it away",
			Notice:  true,
		}
		if isLost(p) {
			f.Problem += ", but has the name of one: its record is gone"
			f.Fix = "restore " + recordFile(p) + " from a backup of the disk and restart podnas; or " + f.Fix
			f.Notice = false
		}
		findings = append(findings, f)
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

// withoutRecordLocked returns the paths that neither contain a record's path nor are
// inside one.
//
// +checklocks:s.mu
func (s *Store) withoutRecordLocked(paths []string) []string {
	var strays []string
	for _, p := range paths {
		if s.takenByLocked(p) == nil {
			strays = append(strays, p)
		}
	}
	return strays
}

// findStrays lists the directories that are not in a volume and contain none.
func (s *Store) findStrays(dir string, known knownPaths, strays *[]string) error {
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

// knownPaths are the paths of volumes, and of all their parent directories.
type knownPaths struct{ volumes, above map[string]bool }

func (s *Store) knownPaths() knownPaths {
	known := knownPaths{map[string]bool{}, map[string]bool{}}
	for _, d := range s.stillRefused() {
		if p := d.path(); p != "" {
			known.add(p)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range s.records {
		known.add(r.Path)
	}
	return known
}

func (known knownPaths) add(volume string) {
	known.volumes[volume] = true
	for p := path.Dir(volume); p != "." && !known.above[p]; p = path.Dir(p) {
		known.above[p] = true
	}
}

// isLost reports whether a directory has the name that volumes of claims get, unless their class
// has a pathPattern.
func isLost(p string) bool {
	id, found := strings.CutPrefix(p, "pvc-")
	return found && len(id) == 36 && uuid.Validate(id) == nil
}

// findLost finds the directories at Open that lost their records. Nobody else has the Store yet.
//
// +checklocksignore
func (s *Store) findLost() {
	entries, err := fs.ReadDir(s.root.FS(), ".")
	if err != nil {
		s.log.Warn("disk: can't look for directories whose records are gone", "err", err)
		return
	}
	known := s.knownPaths()
	for _, name := range s.Damaged() {
		known.add(name) // it has a record
	}
	for _, e := range entries {
		if p := e.Name(); e.IsDir() && isLost(p) && !known.volumes[p] {
			s.lost = append(s.lost, p)
		}
	}
}

// Lost returns the directories that were made for claims, but have no record any more.
func (s *Store) Lost() []string {
	s.mu.Lock()
	lost := slices.Clone(s.lost)
	s.mu.Unlock()
	gone := map[string]bool{}
	for _, p := range lost {
		gone[p] = s.isGone(p)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	still := s.lost[:0]
	for _, p := range s.lost {
		if !gone[p] && s.takenByLocked(p) == nil {
			still = append(still, p)
		}
	}
	s.lost = still
	return slices.Clone(s.lost)
}

// checkRecord checks one volume.
func (s *Store) checkRecord(r *record) []Finding {
	var findings []Finding
	found := func(problem, fix string) {
		findings = append(findings, Finding{Volume: r.Name, Path: r.Path, Problem: problem, Fix: fix})
	}
	if f := unservedFinding(r); f != nil {
		return []Finding{*f}
	}
	switch r.State {
	case ready, retained, copyingState:
		mounted := false
		err := s.plainDir(r.Directory())
		if err == nil {
			mounted, err = s.isMountedOver(r.Directory())
		}
		switch {
		case r.View && (errors.Is(err, os.ErrNotExist) || errors.Is(err, ErrExists)):
			found("the files of the "+r.source()+", which it shows, are missing: "+err.Error(), "put them back and restart podnas, or delete the volume")
		case errors.Is(err, os.ErrNotExist), errors.Is(err, ErrExists):
			found("its directory is missing: "+err.Error(), "put the directory back and restart podnas, or delete the volume")
		case err != nil:
			found("its directory can't be checked: "+err.Error(), "give podnas the right to read its disk")
		case mounted:
			found("something is mounted over its directory since podnas was started: clients use the directory below", "unmount it")
		}
	}
	return findings
}

// checkLimit compares the kernel's limit of a volume's project with the record. A
// retained volume is not checked: its limit is set when it is adopted.
func checkLimit(r *record, u quota.Usage, marked map[string]error) []Finding {
	limit := u.Limit.Bytes
	rightSize, rightInodes := limit >= r.Size && limit < r.Size+4096, u.Limit.Inodes == r.Inodes
	if r.Project == 0 || r.State != ready || rightSize && rightInodes || r.Restoring != "" {
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

// adoptCommand is the command that makes a volume of a directory, for a shell. It is in quotes, as commands in a Fix are, unless it has
// some itself.
func adoptCommand(dir string) string {
	quoted := shellescape.Quote(dir)
	command := "podnas volume adopt NAME --path=" + quoted + " --size=SIZE"
	if quoted != dir {
		return command
	}
	return "'" + command + "'"
}

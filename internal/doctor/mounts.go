package doctor

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Mount is a mounted file system, see proc_pid_mountinfo(5).
type Mount struct {
	Point   string
	Type    string // ext4, nfs, ...
	Source  string // HOST:/path of an NFS
	Options []string
}

// Has reports whether a mount has an option, "ro" or "timeo=600".
func (m Mount) Has(option string) bool { return slices.Contains(m.Options, option) }

// String returns the type and the options of the file system, for people.
func (m Mount) String() string { return fmt.Sprintf("%s (%s)", m.Type, strings.Join(m.Options, ",")) }

// FindMount finds the mount that contains a path.
func FindMount(path string) (Mount, error) {
	path, err := filepath.Abs(path)
	if err == nil {
		path, err = filepath.EvalSymlinks(path)
	}
	if err != nil {
		return Mount{}, err
	}
	return MountOf(path)
}

// MountOf is FindMount for a path without symbolic links. It does not access the
// path itself, which would hang if it is on an NFS that hangs.
func MountOf(path string) (Mount, error) {
	data, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return Mount{}, err
	}
	m, ok := parseMounts(string(data), path)
	if !ok {
		return Mount{}, fmt.Errorf("nothing in /proc/self/mountinfo holds %s", path)
	}
	return m, nil
}

// parseMounts finds the mount that contains a path, in the text of mountinfo.
func parseMounts(mountinfo, path string) (found Mount, ok bool) {
	unescape := strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`)
	for line := range strings.Lines(mountinfo) {
		mount, device, split := strings.Cut(strings.TrimSpace(line), " - ")
		m, d := strings.Fields(mount), strings.Fields(device)
		if !split || len(m) < 6 || len(d) < 3 {
			continue
		}
		point := unescape.Replace(m[4])
		inside := path == point || strings.HasPrefix(path, strings.TrimSuffix(point, "/")+"/")
		// Of two mounts at the same point the later one is visible.
		if !inside || ok && len(point) < len(found.Point) {
			continue
		}
		// The mount's own options, and those of the file system behind it.
		options := strings.Split(m[5], ",")
		for o := range strings.SplitSeq(d[2], ",") {
			if !slices.Contains(options, o) {
				options = append(options, o)
			}
		}
		found, ok = Mount{Point: point, Type: d[0], Source: unescape.Replace(d[1]), Options: options}, true
	}
	return found, ok
}

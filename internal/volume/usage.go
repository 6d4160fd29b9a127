package volume

import "github.com/podnas/podnas/quota"

// Quota returns what enforces a volume's size (quota.Kernel, quota.Server or
// quota.Off), and why.
func (s *Store) Quota(v *Volume) (quota.Mode, string) {
	switch {
	case v.View:
		return quota.Off, "nothing can be written to it, as it shows a snapshot"
	case s.choice.ModeOf(v.Project) == s.choice.Mode():
		return s.choice.Mode(), s.choice.Reason
	case s.counter != nil:
		return quota.Server, "the server enforces its size by counting what clients write: it was created when the kernel could not, and has no project"
	}
	return quota.Off, "its size is not enforced: it was created when the kernel could not, and has no project"
}

// Usage returns a volume's usage; zero, if nothing counts it, or its files are still being assigned to its project.
func (s *Store) Usage(name string) (quota.Usage, error) {
	v, err := s.Get(name)
	switch {
	case err != nil:
		return quota.Usage{}, err
	case s.quota != nil && v.Project != 0:
		u, err := s.quota.Usage(v.Project)
		return v.known(u), err
	case s.counter != nil:
		return s.counter.Usage(v), nil
	}
	return quota.Usage{}, nil
}

// Usages returns the usage, by name, of those of the volumes that are counted. It reads the kernel's
// quota records once, or nothing from the disk if the server counts. That of a volume whose files are still being
// assigned to its project is partial.
func (s *Store) Usages(volumes []Volume) (map[string]quota.Usage, error) {
	projects, err := s.projectUsages()
	if err != nil {
		return nil, err
	}
	usages, marking := make(map[string]quota.Usage, len(volumes)), s.Marking()
	for _, v := range volumes {
		var u quota.Usage
		switch {
		case s.quota != nil && v.Project != 0:
			u = v.known(projects[v.Project])
			if _, ok := marking[v.Name]; ok && u.Limit.Bytes == 0 {
				u.Limit, u.Partial = v.limit(), true
			}
		case s.counter != nil:
			u = s.counter.Usage(v)
		}
		if u.Limit.Bytes > 0 {
			usages[v.Name] = u
		}
	}
	return usages, nil
}

// KeptUsage returns the usage of an archived or retained volume. ok is false if it is
// unknown: the server counts only volumes that it serves.
func (s *Store) KeptUsage(k *Kept) (usage quota.Usage, ok bool, err error) {
	if s.quota == nil || k.Project == 0 {
		return quota.Usage{}, false, nil
	}
	usage, err = s.quota.Usage(k.Project)
	return usage, err == nil, err
}

// projectUsages returns the kernel's usage of all projects; nothing, if the kernel
// enforces no limits.
func (s *Store) projectUsages() (map[uint32]quota.Usage, error) {
	if s.quota == nil {
		return nil, nil
	}
	return s.quota.Usages()
}

package volume

import "github.com/podnas/podnas/quota"

// Quota tells who keeps a volume below its size (quota.Kernel, quota.Server or
// quota.Off), and why.
func (s *Store) Quota(v *Volume) (quota.Mode, string) {
	switch {
	case s.choice.Mode() != quota.Kernel || v.Project != 0:
		return s.choice.Mode(), s.choice.Reason
	case s.counter != nil:
		return quota.Server, "the server enforces its size by counting what clients write: it was created when the kernel could not, and has no project"
	}
	return quota.Off, "its size is not enforced: it was created when the kernel could not, and has no project"
}

// Usage tells what a volume uses; nothing, if nobody counts.
func (s *Store) Usage(name string) (quota.Usage, error) {
	v, err := s.Get(name)
	switch {
	case err != nil:
		return quota.Usage{}, err
	case s.quota != nil && v.Project != 0:
		return s.quota.Usage(v.Project)
	case s.counter != nil:
		return s.counter.Usage(v), nil
	}
	return quota.Usage{}, nil
}

// Usages tells what all volumes use, by name, without those that nobody counts
// for. It takes one pass over the disk's records of quotas, and nothing of the disk
// where the server counts.
func (s *Store) Usages() (map[string]quota.Usage, error) {
	projects, err := s.projectUsages()
	if err != nil {
		return nil, err
	}
	usages := map[string]quota.Usage{}
	for _, v := range s.List() {
		var u quota.Usage
		switch {
		case s.quota != nil && v.Project != 0:
			u = projects[v.Project]
		case s.counter != nil:
			u = s.counter.Usage(v)
		}
		if u.Limit.Bytes > 0 {
			usages[v.Name] = u
		}
	}
	return usages, nil
}

// KeptUsage tells what the files of a volume use that was deleted and kept. ok is false
// where nobody knows: the server counts what it serves.
func (s *Store) KeptUsage(k *Kept) (usage quota.Usage, ok bool, err error) {
	if s.quota == nil || k.Project == 0 {
		return quota.Usage{}, false, nil
	}
	usage, err = s.quota.Usage(k.Project)
	return usage, err == nil, err
}

// projectUsages is what the kernel has of all projects; nothing, if it enforces no
// limit.
func (s *Store) projectUsages() (map[uint32]quota.Usage, error) {
	if s.quota == nil {
		return nil, nil
	}
	return s.quota.Usages()
}

package volume

import (
	"errors"

	"github.com/podnas/podnas/quota"
)

// newProject reserves a project that neither a record nor anything else on the disk uses. For the latter it asks the kernel, which
// may hang.
//
// +checklocksexclude:s.mu
func (s *Store) newProject() (uint32, error) {
	if s.quota == nil {
		return 0, nil
	}
	for range 1000 { // others never use more in a row
		s.mu.Lock()
		id := s.nextProjectLocked()
		s.mu.Unlock()
		u, err := s.quota.Usage(id)
		if err == nil && u == (quota.Usage{}) {
			return id, nil
		}
		s.mu.Lock()
		delete(s.projects, id)
		s.mu.Unlock()
		if err != nil {
			return 0, err
		}
	}
	return 0, errors.New("there is no free project id")
}

// nextProjectLocked reserves the next project that no record uses.
//
// +checklocks:s.mu
func (s *Store) nextProjectLocked() uint32 {
	const firstProject = 0x10000 // lower ones are for administrators
	if s.lastID == 0 {
		s.lastID = firstProject - 1
		for id := range s.projects {
			s.lastID = max(s.lastID, id)
		}
	}
	for {
		if s.lastID++; s.lastID < firstProject {
			s.lastID = firstProject // went past 2^32-1
		}
		if !s.projects[s.lastID] {
			s.projects[s.lastID] = true
			return s.lastID
		}
	}
}

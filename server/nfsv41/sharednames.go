package nfsv41

import (
	"slices"
	"strings"
	"sync"
	"time"
)

// SharedName is a name that two nodes have, of which one waits for the other, or, from one address, they take each other's lease.
type SharedName struct {
	Name           string
	Address, Other string // of the two, as far as the network between shows them
	Last           time.Time
}

const (
	// sharedFor is how long a name counts as shared: nodes that still share it are noticed again every few seconds, when both use
	// their volumes.
	sharedFor = time.Hour
	// sharedMax is how many are remembered: anybody may come with any names.
	sharedMax = 16
)

// sharedNames are those that were noticed lately.
type sharedNames struct {
	mu sync.Mutex
	// +checklocks:mu
	names map[string]SharedName // by Name
}

func (s *sharedNames) add(n SharedName) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.names == nil {
		s.names = map[string]SharedName{}
	}
	if _, known := s.names[n.Name]; !known && len(s.names) >= sharedMax {
		oldest := n
		for _, other := range s.names {
			if other.Last.Before(oldest.Last) {
				oldest = other
			}
		}
		delete(s.names, oldest.Name)
	}
	s.names[n.Name] = n
}

// list returns those that still count, sorted.
func (s *sharedNames) list(now time.Time) []SharedName {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []SharedName
	for name, n := range s.names {
		if now.Sub(n.Last) > sharedFor {
			delete(s.names, name)
			continue
		}
		all = append(all, n)
	}
	slices.SortFunc(all, func(a, b SharedName) int { return strings.Compare(a.Name, b.Name) })
	return all
}

// SharedNames returns the names that two nodes have each.
func (s *Server) SharedNames() []SharedName { return s.events.shared.list(time.Now()) }

package controller

import (
	"fmt"
	"time"
)

// SharedName is a name that two nodes have, by which one keeps the other out, or they take each other's files and locks.
type SharedName struct {
	Name           string
	Address, Other string // of the two
	Last           time.Time
}

// sharedNames puts an event on podnas's pod for each name that two nodes have. It is on the
// pod, because all volumes that these nodes use are affected, and podnas may not see nodes.
type sharedNames struct {
	list func() []SharedName
	pod  *pod
	told map[string]time.Time // by name: when it was last noticed, as the last event said
}

const (
	sharedNamesPeriod = 10 * time.Second
	// sharedNamesAgain is the time after which an event says it again, as long as it goes on:
	// the API server forgets events after an hour.
	sharedNamesAgain = 30 * time.Minute
)

func (s *sharedNames) look() {
	told := map[string]time.Time{}
	for _, n := range s.list() {
		last, known := s.told[n.Name]
		if !known || n.Last.Sub(last) >= sharedNamesAgain {
			s.pod.warn("NodesShareName", fmt.Sprintf(
				"Two nodes call themselves %q, so one can't mount while the other does, or each loses its open files and locks to the other: the one at %s, and the one at %s before it. Give them different host names, or set nfs4_unique_id on them",
				n.Name, n.Address, n.Other))
			last = n.Last
		}
		told[n.Name] = last
	}
	s.told = told
}

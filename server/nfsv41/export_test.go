package nfsv41

import (
	"time"

	"github.com/podnas/podnas/internal/statedir"
	"github.com/podnas/podnas/nfs/nfs4"
	"github.com/podnas/podnas/server/nfsv41/state"
)

// What is on the disk, which another version leaves or reads, and which tests damage.
const (
	HandoverFile = handoverFile
	RunFile      = runFile
)

// Bounds that tests reach.
const (
	StableAfter = stableAfter
	TriesMax    = triesMax
)

// RestoreBack reads what a handover has of a back channel.
var RestoreBack = restoreBack

// OpenTracking opens the client tracking by itself.
var OpenTracking = openTracking

// PanicIn has an operation end in a panic.
func (s *Server) PanicIn(op nfs4.OpNum) {
	s.operations[op].do = func(*compound) (result, error) { panic(op) }
}

// State returns what the server knows of its clients, which are none of a test's that dies and begins again.
func (s *Server) State() *state.State { return s.state }

// Abandon has descriptors be released soon, of which AbandonedMax wait at most.
func (s *Server) Abandon(all []state.Abandoned) { s.freeing.add(all) }

// AbandonedMax is how many descriptors wait to be released.
func (s *Server) AbandonedMax() int { return s.freeing.most }

// WentOn reports whether the server goes on with the log of one that died.
func (s *Server) WentOn() bool { return s.wentOn }

// NoticesLeft counts the clients that are to be told of what the server before could not tell.
func (s *Server) NoticesLeft() int { return len(s.notices.clients) }

// LogFile returns the name of the log, and the size of its beginning.
func (s *Server) LogFile() (name string, head int) { return s.stateLog.name, len(s.stateLog.head) }

// LogIsLong has the log be too long, whatever its size.
func (s *Server) LogIsLong() { s.stateLog.now.limit = 0 }

// IsLogLong reports whether the log was not replaced since LogIsLong.
func (s *Server) IsLogLong() bool { return s.stateLog.now.limit == 0 }

// WatchLog looks after the log, as Run does each second.
func (s *Server) WatchLog() { s.watchLog() }

// BeganBefore has the server have begun a while ago.
func (s *Server) BeganBefore(d time.Duration) { s.began = time.Now().Add(-d) }

// HandOver is a step of Stop, and the last of a process that is killed after it.
func (s *Server) HandOver() error { return s.handOver() }

// BeginUntil is what Begin does, of a process that is killed after so many steps.
func (s *Server) BeginUntil(steps int) error {
	for _, step := range []func() error{func() error { s.startLog(); return nil }, s.run.record, s.tracking.forgetHandover}[:steps] {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

// Track adds a client to the list on the disk that the server does not know.
func (s *Server) Track(c state.TrackedClient) error { return s.tracking.Add(c) }

// StopIn is Stop of a server whose folder is another at its end.
func (s *Server) StopIn(dir *statedir.Dir) {
	was := s.tracking.dir
	s.tracking.dir = dir
	s.Stop()
	s.tracking.dir = was
}

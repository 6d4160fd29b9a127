package nfs4

import (
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"maps"
	"slices"

	"github.com/podnas/podnas/nfs/rpc"
	"github.com/podnas/podnas/server/export"
	"github.com/podnas/podnas/server/nfs4/state"
)

// A server that is meant to end leaves all that its clients have in a file, and the next one
// goes on with it: no grace period, and nobody has to reclaim anything.
//
// The file is removed before the next one grants anything, so that it is never read twice, and names the run
// that has written it (run.go), so that it is not read later. A podnas that does not know it removes it, too, as
// it is beside the entries of the roster and none of them.

const (
	handoverFile   = "handover"
	handoverFormat = 1
	// handoverMax bounds the file: with all tables full it is 60% of that (state.TestResident).
	handoverMax = 256 << 20
)

// handover is the file.
type handover struct {
	Format int             `json:"format"`
	Server []byte          `json:"server"` // whose it is: Server.identity
	Run    string          `json:"run"`    // which process has written it; empty: it was of an earlier version
	Sum    uint32          `json:"sum"`    // CRC-32C of State
	State  json.RawMessage `json:"state"`
	// What clients could not be told yet. They ask by themselves where it is lost, but late.
	Notices []savedNotice `json:"notices,omitempty"`
}

// savedNotice is a state.LockFree.
type savedNotice struct {
	Client uint64 `json:"client"`
	Volume uint64 `json:"volume"`
	File   []byte `json:"file"`
	Owner  []byte `json:"owner"`
}

// savedBack is a backChannel.
type savedBack struct {
	Seq     uint32   `json:"seq"`
	Program uint32   `json:"program"`
	Cred    rpc.Auth `json:"cred"`
}

func saveBack(callback any) (json.RawMessage, error) {
	b, ok := callback.(*backChannel)
	if !ok {
		return nil, fmt.Errorf("a callback is %T", callback)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return json.Marshal(savedBack{b.seq, b.program, b.cred})
}

func restoreBack(b json.RawMessage) (any, error) {
	var saved savedBack
	if err := json.Unmarshal(b, &saved); err != nil {
		return nil, err
	}
	return &backChannel{seq: saved.Seq, program: saved.Program, cred: saved.Cred}, nil
}

// handOver leaves what clients have to the next server.
func (s *Server) handOver() error {
	saved, err := s.state.Save(saveBack)
	if err != nil || len(saved.Clients) == 0 && saved.Grace == nil {
		return err
	}
	b, err := json.Marshal(saved)
	if err == nil {
		err = s.run.record()
	}
	if err == nil {
		b, err = json.Marshal(handover{handoverFormat, s.identity, s.run.own, crc32.Checksum(b, s.crc), b, s.notices.save()})
	}
	if err == nil && len(b) > handoverMax {
		err = fmt.Errorf("what clients have is %d MiB, and a handover at most %d", len(b)>>20, handoverMax>>20)
	}
	if err != nil {
		return err
	}
	return s.roster.dir.Write(handoverFile, b)
}

// takeOver goes on with what the server before has left, if it fits the roster. The error
// says why not.
func (s *Server) takeOver(cfg state.Config, roster []state.RosterEntry) (*state.State, error) {
	file, err := s.readHandover()
	if err != nil {
		return nil, err
	}
	var saved state.Saved
	switch {
	case file.Format != handoverFormat:
		return nil, fmt.Errorf("it has the format %d, and this podnas knows %d", file.Format, handoverFormat)
	case !slices.Equal(file.Server, s.identity):
		return nil, errors.New("it is another disk's")
	case file.Run != s.run.before:
		return nil, errOtherRun
	}
	if err := json.Unmarshal(file.State, &saved); err != nil {
		return nil, err
	}
	// The process that has written it was the last that has changed the roster. What the two don't have
	// in common was changed on the disk, or was damaged there.
	if err := s.follow(file, &saved, roster); err != nil {
		return nil, err
	}
	s.ownForms(&saved)
	restored, err := state.Restore(cfg, &saved, restoreBack, s.reopen)
	if err == nil {
		s.notices.restore(file.Notices)
	}
	return restored, err
}

// readHandover reads the file. One that is damaged is put aside.
func (s *Server) readHandover() (*handover, error) {
	b, err := s.roster.dir.Read(handoverFile, handoverMax)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) {
		return nil, err
	}
	var file handover
	if err == nil {
		err = json.Unmarshal(b, &file)
	}
	if err == nil && file.Format == handoverFormat && crc32.Checksum(file.State, s.crc) != file.Sum {
		err = errors.New("its checksum is wrong")
	}
	if err != nil {
		return nil, errors.Join(err, s.roster.dir.SetAside(handoverFile, err))
	}
	return &file, nil
}

// follow makes sure that the roster is that of a handover.
func (s *Server) follow(file *handover, saved *state.Saved, roster []state.RosterEntry) error {
	want := saved.Roster()
	switch {
	case file.Run != "":
		return s.roster.become(want, roster)
	case !maps.Equal(byID(want), byID(roster)):
		return errors.New("another podnas has served this disk since")
	}
	return nil
}

// ownForms has files known by the FileIDs of their volumes' form. A podnas that recorded no form may have known them
// by others.
func (s *Server) ownForms(saved *state.Saved) {
	for i := range saved.Clients {
		for j := range saved.Clients[i].Opens {
			f := &saved.Clients[i].Opens[j]
			f.File = slices.Clone(s.opener.OwnForm(f.Volume, export.NewFileID(f.File)).Bytes())
		}
	}
}

// reopen opens a file that a client has open. One that is gone, as one that was removed on a full
// disk, is a held without a file.
func (s *Server) reopen(key state.FileKey, access state.Access) state.Held {
	h := &held{}
	h.Retain()
	h.Held, _ = s.opener.Reopen(key.Volume, export.NewFileID(key.ID[:key.Len]), access&state.Write != 0) // nil with an error, which its users get as ESTALE
	return h
}

package nfsv41

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/podnas/podnas/nfs/rpc"
	"github.com/podnas/podnas/server/disk"
	"github.com/podnas/podnas/server/nfsv41/state"
)

// A server that is meant to end leaves all that its clients have in a file on the disk, a log (statelog.go) that has their
// sessions, too. The next one goes on with it: no grace period, and nobody has to reclaim anything.
//
// The file is removed before the next one grants anything, so that it is never read twice, and names the run
// that has written it (run.go), so that it is not read later. A podnas that does not know it removes it, too, as
// it is beside the entries of the client tracking and none of them.

const (
	handoverFile = "handover.log"
	// handoverMax bounds the file: with all tables full it is two thirds of that (state.TestResident).
	handoverMax = 256 << 20
)

// handover is the file while it is made. It implements state.Log.
type handover struct {
	server *Server
	bytes  []byte
}

// Begin begins it.
func (h *handover) Begin() error {
	head, err := h.server.headOf(nil)
	h.bytes = append(h.bytes, head...)
	return err
}

// Copy adds a frame.
func (h *handover) Copy(frame []byte) error {
	if len(h.bytes)+len(frame) > handoverMax {
		return fmt.Errorf("what clients have is more than the %d MiB that a handover has at most", handoverMax>>20)
	}
	h.bytes = append(h.bytes, frame...)
	return nil
}

// Replace writes the file.
func (h *handover) Replace() (old io.Closer, err error) {
	if err := h.server.run.record(); err != nil {
		return nil, err
	}
	return nil, h.server.tracking.dir.Write(handoverFile, h.bytes)
}

// Append is never called: nothing changes any more.
func (h *handover) Append([]byte) (long bool, err error) { return false, errors.ErrUnsupported }

// savedBack is a backChannel.
type savedBack struct {
	Minor   uint32   `json:"minor"`
	Seq     uint32   `json:"seq"`
	Program uint32   `json:"program"`
	Cred    rpc.Auth `json:"cred"`
}

func saveBack(callback any) (encoded json.RawMessage) {
	if b, ok := callback.(*backChannel); ok {
		b.mu.Lock()
		defer b.mu.Unlock()
		encoded, _ = json.Marshal(savedBack{b.minor, b.seq, b.program, b.cred}) // which has nothing that JSON hasn't
	}
	return encoded
}

func restoreBack(b json.RawMessage) (any, error) {
	var saved savedBack
	if err := json.Unmarshal(b, &saved); err != nil {
		return nil, err
	}
	if saved.Minor == 0 {
		return nil, errors.New("a back channel has no minor version")
	}
	return &backChannel{minor: saved.Minor, seq: saved.Seq, program: saved.Program, cred: saved.Cred}, nil
}

// handOver leaves what clients have to the next server.
func (s *Server) handOver() error {
	h := &handover{server: s, bytes: make([]byte, 0, s.state.Bytes())} // it is shorter
	return s.state.Leave(h, saveBack, s.notices.save())
}

// takeOver goes on with what the server before has left, and has the client tracking be what it was then: what the two don't have in
// common was changed on the disk, or was damaged there. The error says why not.
func (s *Server) takeOver(cfg state.Config, tracking []state.TrackedClient) (*state.State, error) {
	frames, err := s.readLog(s.tracking.dir, handoverFile, handoverMax, nil)
	if errors.Is(err, errNoLog) {
		return nil, errors.Join(err, s.tracking.dir.SetAside(handoverFile, err))
	}
	if err != nil {
		return nil, err
	}
	replay := s.newReplay(cfg)
	rest, err := replayFrames(replay, frames)
	if err != nil {
		return nil, err
	}
	if len(rest) > 0 || !replay.Left() {
		err := errors.New("it is not whole")
		return nil, errors.Join(err, s.tracking.dir.SetAside(handoverFile, err))
	}
	return s.goOnWith(replay, tracking)
}

// reopen opens a file that a client has open. One that is gone, as one that was removed on a full
// disk, is a descriptor without a file.
func (s *Server) reopen(key state.FileKey, access state.Access) state.Descriptor {
	h := &descriptor{}
	h.Retain()
	h.Held, _ = s.opener.Reopen(key.Volume, disk.NewFileID(key.ID[:key.Len]), access&state.Write != 0) // nil with an error, which its users get as ESTALE
	return h
}

package nfsv41

import (
	"bytes"
	"encoding/json"
	"errors"
	"hash/crc32"

	"github.com/podnas/podnas/server/nfsv41/state"
)

// What a podnas leaves that was built from commit 30851a4 or before is gone on with, too. Its handover is one JSON object, of
// format 1. Its log has the format 2, whose frames are the same, and names the number of a file of its own. This file, that of
// package state with the same name, and logHead.Number can go when nobody upgrades from such a podnas any more: clients reclaim what they
// have then. A podnas that old does not know handover.log, removes it, and has them reclaim.

const (
	handoverOfFormat1 = "handover"
	numberOfFormat2   = "state-log"
)

//nolint:gochecknoglobals // constants, if Go had such
var filesOfFormat1 = []string{handoverOfFormat1, numberOfFormat2}

// format1 is the handover.
type format1 struct {
	Format  int             `json:"format"`
	Server  []byte          `json:"server"` // Server.identity
	Run     string          `json:"run"`
	Sum     uint32          `json:"sum"` // CRC-32C of State
	State   json.RawMessage `json:"state"`
	Notices json.RawMessage `json:"notices"`
}

// takeOverFormat1 is takeOver for a handover of format 1.
func (s *Server) takeOverFormat1(cfg state.Config, tracking []state.TrackedClient) (*state.State, error) {
	b, err := s.tracking.dir.Read(handoverOfFormat1, handoverMax)
	if err != nil {
		return nil, err
	}
	var file format1
	if err := json.Unmarshal(b, &file); err != nil {
		return nil, err
	}
	switch {
	case file.Format != 1 || crc32.Checksum(file.State, s.crc) != file.Sum:
		return nil, errors.New("it is damaged")
	case !bytes.Equal(file.Server, s.identity):
		return nil, errors.New("it is another disk's")
	case file.Run == "" || file.Run != s.run.before:
		return nil, errOtherRun
	}
	replay := s.newReplay(cfg)
	if err := replay.ApplyFormat1(file.State, file.Notices); err != nil {
		return nil, err
	}
	return s.goOnWith(replay, tracking)
}

// fromFormat2 has the head of a log of format 2 be one of this.
func (s *Server) fromFormat2(head *logHead) {
	if head.Format != 2 {
		return
	}
	head.Format = logFormat
	if number, err := s.tracking.dir.Read(numberOfFormat2, runMax); err == nil && bytes.Equal(number, head.Number) {
		head.Run = s.run.before
	}
}

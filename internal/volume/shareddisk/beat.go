package shareddisk

import (
	"bytes"
	"encoding/json"
	"fmt"
	"hash/crc32"
)

// beatSize is the size of the block that beats overwrite.
const beatSize = 4096

// magic is how a beat begins; its checksum and its text in JSON follow.
const magic = "podnas-beat-1 "

// nameMax keeps a beat within 512 bytes, which disks write whole or not at all.
const nameMax = 128

// beat is what a process that has the disk says. The zero beat is that of a disk that nobody had.
type beat struct {
	Key   uint64 `json:"key"`   // of its registration
	Count uint64 `json:"count"` // over all processes
	Boot  string `json:"boot"`  // of its kernel; empty: unknown
	Name  string `json:"name"`  // for people
	// Making and Growing are whether it is making the file system, or making it larger.
	Making  bool `json:"making,omitempty"`
	Growing bool `json:"growing,omitempty"`
	Ended   bool `json:"ended,omitempty"` // it has unmounted the disk, and does nothing more with it
}

// encode returns a block.
func (b *beat) encode() []byte {
	text, _ := json.Marshal(b) // numbers and strings
	block := fmt.Appendf(nil, "%s%08x %s\n", magic, crc32.ChecksumIEEE(text), text)
	return append(block, bytes.Repeat([]byte{'\n'}, beatSize-len(block))...)
}

// decodeBeat decodes a block. It returns false if the block has no beat.
func decodeBeat(block []byte) (b beat, ok bool) {
	line, _, _ := bytes.Cut(block, []byte{'\n'})
	rest, found := bytes.CutPrefix(line, []byte(magic))
	if !found || len(rest) < 9 {
		return beat{}, false
	}
	text := rest[9:]
	if string(rest[:9]) != fmt.Sprintf("%08x ", crc32.ChecksumIEEE(text)) || json.Unmarshal(text, &b) != nil {
		return beat{}, false
	}
	return b, b.Key != 0
}

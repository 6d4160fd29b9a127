package faultydisk_test

import (
	"bytes"
	"encoding/binary"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/podnas/podnas/test/faultydisk"
)

// logOf is a log of two writes around a mark, and a flush.
func logOf() []byte {
	sector := func(values ...uint64) []byte {
		b := make([]byte, 512)
		for i, v := range values {
			binary.LittleEndian.PutUint64(b[8*i:], v)
		}
		return b
	}
	mark := sector(0, 0, 8, 5)
	copy(mark[32:], "acked")
	return slices.Concat(
		sector(0x6a736677736872, 1, 4, 512),
		sector(2, 1, 0), bytes.Repeat([]byte("a"), 512),
		mark,
		sector(0, 2, 2), bytes.Repeat([]byte("b"), 1024),
		sector(0, 0, 1),
	)
}

func TestReadLog(t *testing.T) {
	log := bytes.NewReader(logOf())
	entries, err := faultydisk.ReadLog(log)
	if err != nil || len(entries) != 4 || entries[1].Mark != "acked" || !entries[3].Flush || entries[0].Flush {
		t.Fatalf("%+v, %v", entries, err)
	}
	name := filepath.Join(t.TempDir(), "disk")
	disk, err := os.Create(name)
	must(t, err)
	defer disk.Close()
	for i, want := range []string{"\x00\x00a", "\x00\x00a", "bba", "bba"} {
		must(t, entries[i].Replay(log, disk))
		got, err := os.ReadFile(name)
		must(t, err)
		for at := range want {
			if got[512*at] != want[at] || got[512*at+511] != want[at] {
				t.Errorf("after entry %d sector %d has %q", i, at, got[512*at])
			}
		}
	}
}

func TestReadDamagedLog(t *testing.T) {
	log := logOf()
	for name, b := range map[string][]byte{
		"empty":         nil,
		"another magic": append([]byte{1}, log[1:]...),
		"cut":           log[:len(log)-1],
		"a huge write":  slices.Concat(log[:512], bytes.Repeat([]byte{0xff}, 512), log[1024:]),
	} {
		if entries, err := faultydisk.ReadLog(bytes.NewReader(b)); err == nil {
			t.Errorf("%s: %+v", name, entries)
		}
	}
}

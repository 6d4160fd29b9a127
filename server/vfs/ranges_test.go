package vfs_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/podnas/podnas/server/inode"
	"github.com/podnas/podnas/server/vfs"
)

// A COPY begins no piece after its time, and is short then. The client goes on where it ended.
func TestCopyIsShort(t *testing.T) {
	w := newWorld(t)
	want := make([]byte, 3*vfs.CopyPiece)
	for i := range want {
		want[i] = byte(i >> 12)
	}
	mustDo(t, os.WriteFile(filepath.Join(w.dir, "from"), want, 0o644))
	mustDo(t, os.WriteFile(filepath.Join(w.dir, "to"), nil, 0o644))
	for _, tt := range []struct {
		name    string
		copyFor time.Duration
		counts  []int // of each COPY of all that is left, from 1 on: no disk shares that
	}{
		{"no time", 0, []int{vfs.CopyPiece, vfs.CopyPiece, vfs.CopyPiece - 1}},
		{"time for all", time.Hour, []int{3*vfs.CopyPiece - 1}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			mustDo(t, os.Truncate(filepath.Join(w.dir, "to"), 0))
			w.service.CopyFor(tt.copyFor)
			done := uint64(0)
			for i, count := range tt.counts {
				c := w.call(0)
				written, err := c.Copy(w.open(c, inode.UseRead, "from"), w.open(c, inode.UseWrite, "to"), 1+done, done, 0)
				mustDo(t, err)
				if written.Count != count {
					t.Errorf("COPY %d: %d bytes, want %d", i, written.Count, count)
				}
				done += uint64(written.Count)
			}
			got, err := os.ReadFile(filepath.Join(w.dir, "to"))
			mustDo(t, err)
			if !bytes.Equal(got, want[1:]) {
				t.Errorf("the copy, of %d bytes, is not what it was made of", len(got))
			}
		})
	}
}

// An ALLOCATE for which there is too little room tells how much it needs, and is to be tried again if the disk gives that.
func TestAllocateAsksForRoom(t *testing.T) {
	var asked []int64
	gives := false
	w := newWorld(t)
	w.table.GivesRoom = func(volume uint64, bytes int64) bool {
		if volume == 1 {
			asked = append(asked, bytes)
		}
		return gives
	}
	mustDo(t, os.WriteFile(filepath.Join(w.dir, "file"), nil, 0o644))
	const much = 1 << 60
	for _, tt := range []struct {
		gives bool
		want  error
	}{{true, syscall.EAGAIN}, {false, syscall.ENOSPC}} {
		asked, gives = nil, tt.gives
		c := w.call(0)
		err := c.Allocate(w.open(c, inode.UseWrite, "file"), 0, much)
		if !errors.Is(err, tt.want) || len(asked) != 1 || asked[0] != much {
			t.Errorf("the disk gives room: %v: %v, asked for %v", tt.gives, err, asked)
		}
	}
}

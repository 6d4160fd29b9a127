package main

import (
	"bytes"
	"testing"
	"time"

	"github.com/podnas/podnas/provisioner/control"
)

// In a log, progress is told now and then; on a terminal in one line.
func TestProgress(t *testing.T) {
	var out bytes.Buffer
	p := newProgress(&out)
	p.say("10 files")
	p.say("20 files")
	p.end()
	if got := out.String(); got != "10 files\n" {
		t.Errorf("in a log: %q", got)
	}
	out.Reset()
	width := 0 // not known
	p = &progress{out: &out, screen: func() (int, int) { return width, 24 }}
	p.say("10 files")
	p.say("9 files")
	width = 6
	p.say("8 files")
	p.end()
	if got := out.String(); got != "\r10 files\r9 files \r8 fil  \n" {
		t.Errorf("on a terminal: %q", got)
	}
}

func TestCopySpeed(t *testing.T) {
	const mi = 1 << 20
	began := time.Unix(1000, 0)
	for _, tt := range []struct {
		name   string
		begins int64 // bytes at first
		bytes  int64
		total  int64
		after  time.Duration
		want   string
	}{
		{"at first", 0, 0, 100 * mi, 0, "copying a: 0%, 0 of 100Mi"},
		{"on the way", 0, 40 * mi, 100 * mi, 4 * time.Second, "copying a: 40%, 40Mi of 100Mi, 10Mi/s, 6s left"},
		{"an earlier process had copied half", 50 * mi, 60 * mi, 100 * mi, 10 * time.Second, "copying a: 60%, 60Mi of 100Mi, 1Mi/s, 40s left"},
		{"all is copied, and being synced", 0, 100 * mi, 100 * mi, 10 * time.Second, "copying a: 99%, 100Mi of 100Mi, 10Mi/s"},
		{"the source has shrunk", 0, 110 * mi, 100 * mi, 10 * time.Second, "copying a: 99%, 110Mi of 100Mi, 11Mi/s"},
		{"it stands still", 5 * mi, 5 * mi, 100 * mi, time.Minute, "copying a: 5%, 5Mi of 100Mi"},
		{"as good as never", 0, 100, 1 << 60, 100 * time.Second, "copying a: 0%, 100 of 1Ei, 1/s"},
		{"nothing counts", 0, 40 * mi, 0, 4 * time.Second, "copying a: 40Mi in 7 files, 10Mi/s"},
	} {
		var s copySpeed
		s.text(&control.Error{Progress: &control.Progress{Bytes: tt.begins}}, began)
		got := s.text(&control.Error{Progress: &control.Progress{Source: "a", Files: 7, Bytes: tt.bytes, Total: tt.total}}, began.Add(tt.after))
		if got != tt.want {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}
}

package nfsv41_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/podnas/podnas/server/nfsv41"
	"github.com/podnas/podnas/server/nfsv41/state"
)

// What a podnas of commit 30851a4 has left, when it was meant to end or died, is gone on with, once.
func TestFormat1(t *testing.T) {
	const left, died = "clients go on", "podnas had died, and clients go on"
	change := func(l *life, do func(*nfsv41.Format1)) {
		path := filepath.Join(l.cfg.Tracking, nfsv41.HandoverOfFormat1)
		b, err := os.ReadFile(path)
		l.do(err)
		var file nfsv41.Format1
		l.do(json.Unmarshal(b, &file))
		do(&file)
		b, err = json.Marshal(file)
		l.do(errors.Join(err, os.WriteFile(path, b, 0o600)))
	}
	for _, tt := range []struct {
		name   string
		files  string
		change func(l *life)
		says   string // if it does not go on: why
		goesOn bool
	}{
		{"it was meant to end", "handover", func(*life) {}, left, true},
		{"it could not tell all", "handover", func(l *life) {
			change(l, func(f *nfsv41.Format1) {
				f.Notices = json.RawMessage(`[{"client":7,"volume":1,"file":"AA==","owner":"bQ=="}]`)
			})
		}, left, true},
		{"its handover is damaged", "handover", func(l *life) {
			change(l, func(f *nfsv41.Format1) {
				f.State = bytes.Replace(f.State, []byte(`"access":1`), []byte(`"access":3`), 1)
			})
		}, "it is damaged", false},
		{"its handover is nothing", "handover", func(l *life) {
			l.do(os.WriteFile(filepath.Join(l.cfg.Tracking, nfsv41.HandoverOfFormat1), nil, 0o600))
		}, "can't be used", false},
		{"another disk's handover", "handover", func(l *life) { change(l, func(f *nfsv41.Format1) { f.Server[0]++ }) }, "another disk's", false},
		{"a handover of another run", "handover", func(l *life) { change(l, func(f *nfsv41.Format1) { f.Run = "x" }) }, "of an older run", false},
		{"a handover without a run", "handover", func(l *life) {
			change(l, func(f *nfsv41.Format1) { f.Run = "" })
			l.do(os.Remove(filepath.Join(l.cfg.Tracking, "..", nfsv41.RunFile)))
		}, "of an older run", false},
		{"it died", "log state-log", func(*life) {}, died, true},
		{"it died, and another one was there", "log state-log", func(l *life) {
			l.do(os.WriteFile(filepath.Join(l.cfg.Tracking, nfsv41.NumberOfFormat2), []byte("x"), 0o600))
		}, "of an older run", false},
		{"it died, and one without a log was there", "log", func(*life) {}, "of an older run", false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			l := newLife(t)
			l.start().Stop() // for the folders
			name := func(of string) string {
				switch of {
				case "run":
					return filepath.Join(l.cfg.Tracking, "..", nfsv41.RunFile)
				case "log":
					s, err := nfsv41.New(l.cfg)
					l.do(err)
					name, _ := s.LogFile()
					return filepath.Join(l.cfg.StateLog, name)
				}
				return filepath.Join(l.cfg.Tracking, of)
			}
			for of := range strings.FieldsSeq("run " + tt.files) {
				b, err := os.ReadFile(filepath.Join("testdata", "format1", of))
				l.do(err)
				if of == "log" { // it is of this boot
					first, frames, _ := state.CutFrame(b)
					var head nfsv41.LogHead
					l.do(json.Unmarshal(first, &head))
					head.Kernel, err = os.ReadFile("/proc/sys/kernel/random/boot_id")
					l.do(err)
					first, err = json.Marshal(head)
					l.do(err)
					b = append(state.AppendFrame(nil, first), frames...)
				}
				l.do(os.WriteFile(name(of), b, 0o600))
			}
			tt.change(l)
			s := l.start()
			n := s.State().Counts()
			if !strings.Contains(l.said.String(), tt.says) || tt.goesOn != (n.Opens == 2) || s.WentOn() != (tt.says == died) {
				t.Errorf("%+v; it says %s", n, l.said)
			}
			if had := s.NoticesLeft(); tt.name == "it could not tell all" && had != 1 {
				t.Errorf("%d are to be told", had)
			}
			for _, of := range nfsv41.FilesOfFormat1 {
				if _, err := os.Lstat(filepath.Join(l.cfg.Tracking, of)); !errors.Is(err, os.ErrNotExist) {
					t.Errorf("%s is there still: %v", of, err)
				}
			}
			if s = l.start(); s.State().Counts().Opens != n.Opens {
				t.Errorf("the next one: %+v; it says %s", s.State().Counts(), l.said)
			}
		})
	}
}

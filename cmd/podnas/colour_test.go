package main

import (
	"bytes"
	"os"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/podnas/podnas/internal/doctor"
	"github.com/podnas/podnas/internal/volume"
	"github.com/podnas/podnas/provisioner/control"
	"github.com/podnas/podnas/quota"
)

// With colours a table has the columns that it has without, and each status its colour.
func TestColours(t *testing.T) {
	of := func(name, state string, used int64) control.Volume {
		v := control.Volume{Volume: volume.Volume{Name: name, Path: name, Size: 100}, State: state}
		if used >= 0 {
			v.Used = &quota.Usage{Bytes: used}
		}
		return v
	}
	volumes := []control.Volume{
		of("well", volume.Ready, 10), of("filling", volume.Ready, 90), of("full", volume.Ready, 99),
		of("copy", volume.Copying, 0), of("damaged", volume.Damaged, -1), of("kept", volume.Archived, -1),
	}
	results := []doctor.Result{{Check: "disk", Status: doctor.OK, Says: "well"}, {Check: "clock", Status: doctor.Warning, Says: "late"}, {Check: "claim a", Status: doctor.Failed, Says: "full"}}
	var with, without bytes.Buffer
	for out, p := range map[*bytes.Buffer]painter{&with: true, &without: false} {
		mustDo(t, printTable(out, p, volumes, true))
		mustDo(t, printResults(out, p, results))
	}
	if strings.Contains(without.String(), "\x1b") {
		t.Errorf("without colours: %q", &without)
	}
	if got := regexp.MustCompile(`\x1b\[\d+m`).ReplaceAllString(with.String(), ""); got != without.String() {
		t.Errorf("with colours\n%s\nwithout\n%s", got, &without)
	}
	for colour, texts := range map[string][]string{
		"31": {"99%", "damaged", "FAILED"}, "32": {"ready", "ok"}, "33": {"90%", "copying", "WARNING"}, "39": {"10%", "archived", "STATE"},
	} {
		for _, text := range texts {
			if want := "\x1b[" + colour + "m" + text + "\x1b[0m"; !strings.Contains(with.String(), want) {
				t.Errorf("%q lacks %q", &with, want)
			}
		}
	}
}

// A terminal has colours, unless its user wants none; nothing else has.
func TestPainter(t *testing.T) {
	terminal := openTerminal(t)
	file, err := os.Create(t.TempDir() + "/file")
	mustDo(t, err)
	defer file.Close()
	for _, tt := range []struct {
		name string
		env  map[string]string
		args []string
		out  *os.File
		want painter
	}{
		{"terminal", nil, nil, terminal, true},
		{"a file", nil, nil, file, false},
		{"NO_COLOR", map[string]string{"NO_COLOR": "1"}, nil, terminal, false},
		{"NO_COLOR that is empty", map[string]string{"NO_COLOR": ""}, nil, terminal, true},
		{"a terminal without", map[string]string{"TERM": "dumb"}, nil, terminal, false},
		{"the flag", nil, []string{"--no-color"}, terminal, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Setenv("NO_COLOR", "")
			t.Setenv("TERM", "xterm")
			for name, value := range tt.env {
				t.Setenv(name, value)
			}
			cmd, _, err := newCommand().Find([]string{"volume", "list"})
			mustDo(t, err)
			mustDo(t, cmd.ParseFlags(tt.args))
			if got := newPainter(cmd, tt.out); got != tt.want {
				t.Errorf("%v, want %v", got, tt.want)
			}
		})
	}
}

// openTerminal returns the master of a terminal, pty(7), which is one itself.
func openTerminal(t *testing.T) *os.File {
	t.Helper()
	f, err := os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Skipf("no terminals here: %v", err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

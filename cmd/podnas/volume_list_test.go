package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/podnas/podnas/internal/volume"
	"github.com/podnas/podnas/provisioner/control"
	"github.com/podnas/podnas/quota"
)

func TestSortVolumes(t *testing.T) {
	of := func(name string, size, used int64, claim string) control.Volume {
		v := control.Volume{Volume: volume.Volume{Name: name, Size: size}}
		if used >= 0 {
			v.Used = &quota.Usage{Bytes: used}
		}
		if claim != "" {
			v.Claim = &volume.Claim{Namespace: "ns", Name: claim}
		}
		return v
	}
	volumes := []control.Volume{
		of("team-10", 100, 10, "b"), of("team-2", 50, 20, ""), of("team-1", 100, -1, "a-10"), of("damaged", 0, -1, ""), of("copy", 50, 0, "a-9"),
	}
	few, many := 2, 10
	volumes[0].Clients, volumes[1].Clients, volumes[4].Clients = &few, &many, &few
	volumes[0].StorageClass, volumes[2].StorageClass, volumes[4].StorageClass = "fast-10", "fast-2", "archive"
	for order, want := range map[string]string{
		sortName:       "copy damaged team-1 team-2 team-10",
		sortClaim:      "copy team-1 team-10 damaged team-2",
		sortClass:      "copy team-1 team-10 damaged team-2",
		sortSize:       "team-1 team-10 copy team-2 damaged",
		sortUsed:       "team-2 team-10 copy damaged team-1",
		sortUsePercent: "team-2 team-10 copy damaged team-1",
		sortClients:    "team-2 copy team-10 damaged team-1",
	} {
		sorted := slices.Clone(volumes)
		sortVolumes(sorted, order)
		var names []string
		for _, v := range sorted {
			names = append(names, v.Name)
		}
		if got := strings.Join(names, " "); got != want {
			t.Errorf("by %s: %s, want %s", order, got, want)
		}
	}
}

func TestVolumeTable(t *testing.T) {
	two := 2
	volumes := []control.Volume{
		{Volume: volume.Volume{Name: "a", Path: "a", Size: 1 << 30, Claim: &volume.Claim{Namespace: "demo", Name: "data"}}, State: volume.Ready, StorageClass: "podnas", Clients: &two, Used: &quota.Usage{Bytes: 512 << 20}, Quota: &control.Quota{By: quota.Kernel, Reason: "XFS"}},
		{Volume: volume.Volume{Name: "b", Path: "b"}, State: volume.Damaged, Problem: "it is damaged", Fix: "mend it"},
	}
	var out bytes.Buffer
	mustDo(t, printTable(&out, false, volumes, false))
	want := `NAME   SIZE   USED    USE%   CLASS    CLAIM       STATE     CLIENTS   QUOTA
a      1Gi    512Mi   50%    podnas   demo/data   ready     2         kernel
b      -      -       -      -        -           damaged   -         -

b: it is damaged
  to do: mend it

QUOTA kernel: XFS
`
	if out.String() != want {
		t.Errorf("printed\n%s\nwant\n%s", &out, want)
	}
}

// A watch prints what has changed, on a terminal over what was there, and ends with its context or an error.
func TestRepeat(t *testing.T) {
	for _, tt := range []struct {
		name   string
		screen screen
		want   string
	}{
		{"in a pipe", nil, "one\ntwo\nthree\nfour\n"},
		{"on a terminal", func() (int, int) { return 80, 24 }, "\x1b[Hone\x1b[K\ntwo\x1b[K\n\x1b[J\x1b[Hone\x1b[K\ntwo\x1b[K\n\x1b[J\x1b[Hthree\x1b[K\nfour\x1b[K\n\x1b[J"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			looks := []string{"one\ntwo\n", "one\ntwo\n", "three\nfour\n"}
			ctx, cancel := context.WithCancel(t.Context())
			var out bytes.Buffer
			n := 0
			err := repeat(ctx, &out, tt.screen, 0, func(_ context.Context, out io.Writer) error {
				if n == len(looks) {
					cancel()
					return errors.New("interrupted")
				}
				n++
				_, err := io.WriteString(out, looks[n-1])
				return err
			})
			if err != nil || out.String() != tt.want {
				t.Errorf("%v, printed %q, want %q", err, out.String(), tt.want)
			}
		})
	}
	broken := errors.New("podnas does not run")
	if err := repeat(t.Context(), io.Discard, nil, 0, func(context.Context, io.Writer) error { return broken }); !errors.Is(err, broken) {
		t.Errorf("an error: %v", err)
	}
}

// What would scroll a terminal is cut, also if its lines wrap. Colours have no width.
func TestFit(t *testing.T) {
	coloured := painter(true).paint(red, "four")
	for _, tt := range []struct {
		name, text    string
		width, height int
		want          string
	}{
		{"it fits", "1\n2\n3\n", 4, 4, "1\n2\n3\n"},
		{"a row too much", "1\n2\n3\n4\n", 4, 4, "1\n2\nand 2 more lines\n"},
		{"a line that wraps", "1\nfive5\n3\n", 4, 4, "1\nand 2 more lines\n"},
		{"a coloured line that does not", "1\n" + coloured + "\n3\n", 4, 4, "1\n" + coloured + "\n3\n"},
		{"a terminal of a row", "1\n2\n", 4, 1, "and 2 more lines\n"},
		{"of an unknown size", "1\n2\n3\n4\n", 0, 0, "1\n2\n3\n4\n"},
	} {
		if got := screen(func() (int, int) { return tt.width, tt.height }).fit(tt.text); got != tt.want {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}
}

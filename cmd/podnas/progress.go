package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/podnas/podnas/internal/volume"
	"github.com/podnas/podnas/provisioner/control"
)

// wait asks until an answer is there that is not "under way", and meanwhile says
// how far it is. When the command is interrupted, it returns how far it was.
func (c *createConfig) wait(cmd *cobra.Command, ask func(context.Context) (control.Volume, error)) (control.Volume, error) {
	p := newProgress(cmd.ErrOrStderr())
	defer p.end()
	var speed copySpeed
	var going *control.Error
	for {
		v, err := ask(cmd.Context())
		var said *control.Error
		switch {
		case going != nil && isInterrupted(cmd.Context(), err):
			return v, going
		case c.noWait || !errors.As(err, &said) || said.Code != control.Copying:
			return v, err
		}
		going = said
		p.say(speed.text(said, time.Now()))
		if !sleep(cmd.Context(), copyPoll) {
			return v, err
		}
	}
}

// awaitAssigned waits until the files of an adopted directory are assigned to their volume, and meanwhile says how many are.
func (c *createConfig) awaitAssigned(cmd *cobra.Command, client *control.Client, v control.Volume) (control.Volume, error) {
	v, err := await(cmd, copyPoll, v, func(v control.Volume) (string, bool) {
		return fmt.Sprintf("volume %s can be mounted; its files are being assigned to it%s", v.Name, assignedOf(v)), v.Assigning == nil || v.Assigning.Problem != ""
	}, func(ctx context.Context) (control.Volume, error) { return client.Get(ctx, v.Name) })
	switch {
	case isInterrupted(cmd.Context(), err):
		return v, &interruptedError{fmt.Sprintf(`volume %[1]s can be mounted; its files are assigned to it in the background, and its size is not enforced until then.
'podnas volume show %[1]s' tells how far it is, and 'podnas volume manifests %[1]s' prints its PersistentVolume.`, v.Name)}
	case err != nil:
		return v, advise(err)
	case v.Assigning != nil:
		return v, fmt.Errorf("volume %[1]s can be mounted, but its files can't be assigned to it, so its size is not enforced: %[2]s\n"+
			"podnas tries again each minute; correct that, and 'podnas volume show %[1]s' tells how far it is", v.Name, v.Assigning.Problem)
	case v.Used != nil && v.Used.Bytes > v.Size:
		return v, &usageError{fmt.Errorf("the files of volume %[1]s take %[2]s, more than its size of %[3]s, so clients can add nothing: "+
			"raise it with 'podnas volume resize %[1]s SIZE'; 'podnas volume manifests %[1]s' then prints its PersistentVolume",
			v.Name, volume.FormatSize(v.Used.Bytes), volume.FormatSize(v.Size))}
	}
	return v, nil
}

// assignedOf says how many files of a volume are assigned to it, if that is known.
func assignedOf(v control.Volume) string {
	if v.Used == nil {
		return ""
	}
	return fmt.Sprintf(": %s with %s so far", volume.FormatCount(v.Used.Inodes, "file"), volume.FormatSize(v.Used.Bytes))
}

// copySpeed measures how fast a copy is, from when it is first asked about: an earlier process may have copied
// some of it.
type copySpeed struct {
	began time.Time
	first int64 // bytes that were copied then
}

// leftMax is the longest time that is told to be left. Beyond it, the copy as good as stands still.
const leftMax = 1000 * time.Hour

// text says how far a copy is: in percent, if it is known how much there is to copy.
func (s *copySpeed) text(said *control.Error, now time.Time) string {
	p := said.Progress
	source := p.Source
	if p.Snapshot != "" {
		source = "snapshot " + p.Snapshot + " of " + source
	}
	if s.began.IsZero() {
		s.began, s.first = now, p.Bytes
	}
	text := fmt.Sprintf("copying %s: %s in %s", source, volume.FormatSize(p.Bytes), volume.FormatCount(p.Files, "file"))
	if p.Total > 0 {
		// The source grows and shrinks meanwhile. The last percent is for syncing.
		text = fmt.Sprintf("copying %s: %d%%, %s of %s", source, min(99, volume.Percent(p.Bytes, p.Total)), volume.FormatSize(p.Bytes), volume.FormatSize(p.Total))
	}
	rate := float64(p.Bytes-s.first) / now.Sub(s.began).Seconds()
	if now.Sub(s.began) < copyPoll/2 || rate < 1 {
		return text // it is not known yet
	}
	text += fmt.Sprintf(", %s/s", volume.FormatSize(int64(rate)))
	if left := float64(p.Total-p.Bytes) / rate; left > 0 && left < leftMax.Seconds() {
		text += fmt.Sprintf(", %s left", duration.HumanDuration(time.Duration(left*float64(time.Second))))
	}
	return text
}

// progress says how far something is: on a terminal in one line that changes, in
// a log in a line now and then.
type progress struct {
	out    io.Writer
	screen screen // of the terminal
	width  int    // of the line on the terminal
	last   time.Time
}

// progressInterval is the time between two lines of progress in a log.
const progressInterval = 10 * time.Second

func newProgress(out io.Writer) *progress { return &progress{out: out, screen: screenOf(out)} }

func (p *progress) say(text string) {
	switch {
	case p.screen != nil:
		line := []rune(text)
		if width, _ := p.screen(); width > 0 {
			line = line[:min(len(line), width-1)] // one that wraps is not overwritten
		}
		fmt.Fprintf(p.out, "\r%s%s", string(line), strings.Repeat(" ", max(0, p.width-len(line))))
		p.width = len(line)
	case time.Since(p.last) >= progressInterval:
		fmt.Fprintln(p.out, text)
		p.last = time.Now()
	}
}

func (p *progress) end() {
	if p.width > 0 {
		fmt.Fprintln(p.out)
	}
}

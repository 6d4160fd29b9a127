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
	if p == nil { // an older podnas
		return said.Message
	}
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

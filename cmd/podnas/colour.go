package main

import (
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/podnas/podnas/internal/doctor"
	"github.com/podnas/podnas/internal/volume"
	"github.com/podnas/podnas/provisioner/control"
)

// colour is a sequence of ECMA-48 (SGR). All are of one length: tables count their bytes, so each cell of a column
// has one, the header too.
type colour string

const (
	noColour colour = "\x1b[39m" // the terminal's own
	red      colour = "\x1b[31m"
	green    colour = "\x1b[32m"
	yellow   colour = "\x1b[33m"

	endColour = "\x1b[0m"
)

// painter colours texts, if it is true.
type painter bool

// newPainter returns one that colours on a terminal, unless the user wants none: https://no-color.org.
func newPainter(cmd *cobra.Command, out io.Writer) painter {
	off, _ := cmd.Flags().GetBool(noColourFlag) // a command without it has colours
	return painter(!off && isTerminal(out) && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb")
}

// noColourFlag is hidden: kubectl podnas gives it to a command in the pod, which has another environment.
const noColourFlag = "no-color"

func (p painter) paint(c colour, text string) string {
	if !p {
		return text
	}
	return string(c) + text + endColour
}

func colourOf(s doctor.Status) colour {
	switch s {
	case doctor.Failed:
		return red
	case doctor.Warning:
		return yellow
	}
	return green
}

func colourOfState(state string) colour {
	switch state {
	case volume.Ready:
		return green
	case volume.Copying:
		return yellow
	case volume.Damaged, volume.NotServed:
		return red
	}
	return noColour
}

func colourOfUse(v control.Volume) colour {
	if usePercent(v) < 0 {
		return noColour
	}
	switch volume.Mark(volume.Percent(v.Used.Bytes, v.Size)) {
	case 0:
		return noColour
	case volume.FullPercent:
		return red
	}
	return yellow
}

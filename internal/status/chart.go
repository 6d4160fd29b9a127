package status

import (
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/podnas/podnas/server/stats"
)

// chart is a small picture of numbers over the last minutes, with their latest values.
type chart struct {
	Title string
	Lines []line
	Max   string  // of the scale
	Half  string  // of the scale, empty if it would look like 0
	Zero  string  // of the scale
	base  float64 // of the units, if it is not 10
}

// line has the numbers of one kind, the oldest first.
type line struct {
	Name   string // empty if there is one line
	Now    string
	Class  string    // for its color
	values []float64 // NaN: no value
}

// The picture's units: one for each sample. The browser scales it to the available
// width.
const (
	chartWidth  = samplesMax
	chartHeight = 40
	minute      = int(time.Minute / samplePeriod) // in these units
)

func newChart(title string, base float64, of units, lines ...line) chart {
	c := chart{Title: title, Lines: lines, base: base}
	format := of.of(c.scale()).format
	for i := range c.Lines {
		l := &c.Lines[i]
		l.Class = fmt.Sprintf("line%d", i)
		l.Now = format(0)
		if n := len(l.values); n > 0 && math.IsNaN(l.values[n-1]) {
			l.Now = "none"
		} else if n > 0 {
			l.Now = format(l.values[n-1])
		}
	}
	c.Max, c.Half, c.Zero = format(c.scale()), format(c.scale()/2), format(0)
	if c.Half == c.Zero || c.Half == c.Max {
		c.Half = ""
	}
	return c
}

// scale is the value at the top of the picture: a round number, so that it does not
// change with each sample.
func (c *chart) scale() float64 {
	top := 0.0
	for _, l := range c.Lines {
		for _, v := range l.values {
			if v > top { // false for NaN
				top = v
			}
		}
	}
	if top <= 0 {
		return 1
	}
	unit := 1.0
	for c.base > 1 && top/unit >= c.base {
		unit *= c.base // for bytes, round numbers are those of KiB, MiB and so on
	}
	power := unit * math.Pow(10, math.Floor(math.Log10(top/unit)))
	for _, step := range []float64{1, 2, 5} {
		if top <= step*power {
			return step * power
		}
	}
	return 10 * power
}

// Label describes the picture in words.
func (c *chart) Label() string {
	var parts []string
	for _, l := range c.Lines {
		parts = append(parts, strings.TrimSpace(l.Name+" "+l.Now))
	}
	return c.Title + ": " + strings.Join(parts, ", ") + " now"
}

// Path is the shape of a line in the syntax of SVG. It has a gap where there is no value.
func (c *chart) Path(l line) string {
	var b strings.Builder
	scale := c.scale()
	drawing := false
	for i, v := range l.values {
		if math.IsNaN(v) {
			drawing = false
			continue
		}
		x, y := chartWidth-(len(l.values)-1-i), chartHeight*(1-v/scale) // the latest is at the right
		if !drawing {
			fmt.Fprintf(&b, "M%d %.1f", max(0, x-1), y) // a value is for the time before x
			drawing = true
		}
		fmt.Fprintf(&b, "L%d %.1f", x, y)
	}
	return b.String()
}

// grid is a line for each minute, and at the middle and the ends of the scale.
func grid() string {
	var b strings.Builder
	for x := 0; x <= chartWidth; x += minute {
		fmt.Fprintf(&b, "M%d 0V%d", x, chartHeight)
	}
	for y := 0; y <= chartHeight; y += chartHeight / 2 {
		fmt.Fprintf(&b, "M0 %dH%d", y, chartWidth)
	}
	return b.String()
}

// tick is a label of the time axis.
type tick struct {
	Text    string
	Percent float64 // of the width
	Anchor  string  // of the text, as in SVG
}

// ticks returns the labels of the minutes, from the left.
func ticks() []tick {
	list := []tick{{fmt.Sprintf("-%dm", chartWidth/minute), 0, "start"}}
	for n := chartWidth/minute - 1; n > 0; n-- {
		list = append(list, tick{fmt.Sprintf("-%dm", n), 100 * float64(chartWidth-n*minute) / chartWidth, "middle"})
	}
	return append(list, tick{"now", 100, "end"})
}

// charts returns the charts of the last minutes.
func charts(spans []span) []chart {
	collect := func(f func(*span) float64) []float64 {
		var values []float64
		for i := range spans {
			values = append(values, f(&spans[i]))
		}
		return values
	}
	quantile := func(part float64, of func(*span) *stats.Distribution) []float64 {
		return collect(func(s *span) float64 {
			if of(s).Count == 0 {
				return math.NaN()
			}
			return of(s).Quantile(part).Seconds()
		})
	}
	calls := func(s *span) *stats.Distribution { return &s.durations }
	syncs := func(s *span) *stats.Distribution { return &s.syncs }
	return []chart{
		newChart("Calls per second", 0, countUnits(),
			line{Name: "all", values: collect(func(s *span) float64 { return s.perSecond(s.durations.Count) })},
			line{Name: "failed", values: collect(func(s *span) float64 { return s.perSecond(s.errors) })}),
		newChart("Data per second", 1024, byteUnits(),
			line{Name: "read", values: collect(func(s *span) float64 { return s.perSecond(s.all.Read) })},
			line{Name: "written", values: collect(func(s *span) float64 { return s.perSecond(s.all.Written) })}),
		newChart("How long calls take", 0, timeUnits(),
			line{Name: "p50", values: quantile(0.5, calls)},
			line{Name: "p99", values: quantile(0.99, calls)}),
		newChart("How long syncs take", 0, timeUnits(),
			line{Name: "p50", values: quantile(0.5, syncs)},
			line{Name: "p99", values: quantile(0.99, syncs)}),
	}
}

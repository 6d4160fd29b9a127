package docs

import (
	"bytes"
	"flag"
	"fmt"
	"html"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write anew what is made: docs/performance.svg, and the values in the chart's README.md")

// The picture in docs/performance.md is made of the tables in docs/internals/measurements.md, by
// "make docs", and never behind them.
func TestPicture(t *testing.T) {
	want := picture(t)
	file := filepath.Join(top, "docs/performance.svg")
	if *update {
		if err := os.WriteFile(file, want, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Error(`docs/performance.svg is not what its tables say: run "make docs"`)
	}
}

// row is a line of a table by the names of its columns.
type row map[string]string

// table returns the first table below a heading of a page.
func table(t *testing.T, page, heading string) (rows []row) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(top, page))
	if err != nil {
		t.Fatal(err)
	}
	_, after, found := strings.Cut(string(text), "\n"+heading+"\n")
	if !found {
		t.Fatalf("%s has no heading %q", page, heading)
	}
	var columns []string
	for line := range strings.Lines(after) {
		if !strings.HasPrefix(line, "|") {
			if columns != nil {
				break
			}
			continue
		}
		cells := cells(line)
		switch {
		case columns == nil:
			columns = cells
		case !strings.HasPrefix(cells[0], "---"):
			r := row{}
			for i, name := range columns {
				r[name] = cells[i]
			}
			rows = append(rows, r)
		}
	}
	if len(rows) == 0 {
		t.Fatalf("%s has no table below %q", page, heading)
	}
	return rows
}

// number reads what a cell begins with.
func number(t *testing.T, cell string) float64 {
	t.Helper()
	end := strings.IndexFunc(cell, func(r rune) bool { return !strings.ContainsRune("0123456789.,", r) })
	if end < 0 {
		end = len(cell)
	}
	n, err := strconv.ParseFloat(strings.ReplaceAll(cell[:end], ",", ""), 64)
	if err != nil {
		t.Fatalf("cell %q: %v", cell, err)
	}
	return n
}

// A scale is logarithmic: from is at the left, to at the right.
type scale struct{ from, to, left, width float64 }

func (s scale) x(value float64) float64 {
	value = min(max(value, s.from), s.to)
	return s.left + s.width*math.Log(value/s.from)/math.Log(s.to/s.from)
}

const (
	lineHeight = 24
	labelWidth = 190
)

// A plot has a line for each row of a table, and draw adds to line i what is at the height y.
type plot struct {
	title, unit string
	legend      []mark
	scale       scale
	ticks       []float64
	rows        []row
	draw        func(svg *bytes.Buffer, r row, y float64)
}

// A mark is a circle in a plot, of a class in the picture's style.
type mark struct {
	class, text string
	left        float64
}

func (p plot) height() float64 { return 90 + lineHeight*float64(len(p.rows)) }

func (p plot) write(svg *bytes.Buffer, y float64) {
	fmt.Fprintf(svg, `<text x="14" y="%.0f" class="title">%s</text>`+"\n", y+16, html.EscapeString(p.title))
	for _, m := range p.legend {
		circle(svg, m.class, m.left, y+38)
		fmt.Fprintf(svg, `<text x="%.0f" y="%.0f">%s</text>`+"\n", m.left+10, y+42, html.EscapeString(m.text))
	}
	bottom := y + 56 + lineHeight*float64(len(p.rows))
	for _, tick := range p.ticks {
		fmt.Fprintf(svg, `<line class="grid" x1="%.1f" x2="%.1f" y1="%.0f" y2="%.0f"/>`+"\n", p.scale.x(tick), p.scale.x(tick), y+56, bottom)
		fmt.Fprintf(svg, `<text x="%.1f" y="%.0f" class="tick">%v%s</text>`+"\n", p.scale.x(tick), bottom+16, tick, p.unit)
	}
	for i, r := range p.rows {
		at := y + 68 + lineHeight*float64(i)
		fmt.Fprintf(svg, `<text x="%d" y="%.0f" class="label">%s</text>`+"\n", labelWidth-10, at+4, html.EscapeString(r["load"]))
		p.draw(svg, r, at)
	}
}

func circle(svg *bytes.Buffer, class string, x, y float64) {
	fmt.Fprintf(svg, `<circle class="%s" cx="%.1f" cy="%.0f" r="5"/>`+"\n", class, x, y)
}

// picture has what a program sees through the kernel's client, and what a call costs the server.
func picture(t *testing.T) []byte {
	t.Helper()
	const page = "docs/internals/measurements.md"
	seen := plot{
		title:  "What a pod sees, with 4.2: rates as multiples of NFS-Ganesha's (right is faster)",
		legend: []mark{{"podnas", "podnas: median of three rounds", 24}, {"knfsd", "knfsd: the same", 270}},
		scale:  scale{0.25, 32, labelWidth, 540}, ticks: []float64{0.25, 0.5, 1, 2, 4, 8, 16, 32}, unit: "x",
		rows: table(t, page, "#### Version 4.2 with the default sync"),
	}
	seen.draw = func(svg *bytes.Buffer, r row, y float64) {
		circle(svg, "podnas", seen.scale.x(number(t, r["podnas / NFS-Ganesha"])), y)
		circle(svg, "knfsd", seen.scale.x(number(t, r["knfsd 4.2"])/number(t, r["NFS-Ganesha 4.2"])), y)
	}
	loads := []string{"getattr", "lookup", "read-4k-rand", "read-128k-seq", "write-4k-rand-unstable", "write-4k-rand-stable", "create", "rename", "remove", "smallfile"}
	costs := plot{
		title:  "What a call costs the server: processor time in microseconds (left is cheaper)",
		legend: []mark{{"podnas", "podnas", 24}, {"ganesha", "NFS-Ganesha", 110}},
		scale:  scale{1, 1000, labelWidth, 540}, ticks: []float64{1, 10, 100, 1000},
		rows: slices.DeleteFunc(table(t, page, "## What a call costs"), func(r row) bool { return !slices.Contains(loads, r["load"]) }),
	}
	costs.draw = func(svg *bytes.Buffer, r row, y float64) {
		for _, server := range []struct{ class, column string }{{"podnas", "native"}, {"ganesha", "Ganesha 4.3"}} {
			circle(svg, server.class, costs.scale.x(number(t, r[server.column])), y)
		}
	}
	svg := &bytes.Buffer{}
	fmt.Fprintf(svg, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 760 %.0f" role="img" aria-labelledby="t d" font-family="system-ui, sans-serif" font-size="13">
<title id="t">How fast podnas is</title>
<desc id="d">Above: rates of programs through the kernel's NFS client, of podnas and of the kernel's own server, as multiples of NFS-Ganesha's. Below: the server's processor time for a call, of podnas and of NFS-Ganesha. The figures are in docs/internals/measurements.md.</desc>
<style>
.page { fill: #ffffff } text { fill: #1b1f24 } .title { font-size: 15px; font-weight: 600 } .label { text-anchor: end }
.tick { text-anchor: middle; fill: #47515c; font-size: 12px } .grid { stroke: #d5dae0 }
.podnas { fill: #1f5fa8; stroke: #1f5fa8; stroke-width: 2 } .ganesha { fill: #b06a00 } .knfsd { fill: none; stroke: #57606a; stroke-width: 2 }
@media (prefers-color-scheme: dark) {
.page { fill: #0d1117 } text { fill: #e6edf3 } .tick { fill: #a6b0ba } .grid { stroke: #2d3640 }
.podnas { fill: #6cb0ff; stroke: #6cb0ff } .ganesha { fill: #d8a657 } .knfsd { stroke: #a6b0ba }
}
</style>
<rect class="page" width="760" height="100%%"/>
`, 10+seen.height()+costs.height())
	seen.write(svg, 10)
	costs.write(svg, 10+seen.height())
	svg.WriteString("</svg>\n")
	return svg.Bytes()
}

package status

import (
	g "maragu.dev/gomponents"
	h "maragu.dev/gomponents/html"

	"github.com/podnas/podnas/internal/volume"
)

// diskUse is the usage of the disk by kind, as far as it is counted.
type diskUse struct {
	volumes int64 // of volumes, and of copies in progress
	kept    int64 // of archived and retained volumes, and of the trash
	// uncounted is whether the usage of a volume is unknown, and partial whether one is
	// still being counted.
	uncounted, partial bool
	keptUnknown        bool // the usage of a deleted volume is unknown
	snapshots          bool // there are some, which nobody counts
}

// share is a part of the disk.
type share struct {
	Class   string // for its color
	Name    string
	Bytes   int64
	Percent float64
}

// shares returns the parts of a disk, which add up to its size.
func (u *diskUse) shares(space volume.Space) []share {
	used := space.Size - space.Free
	free := share{Class: "free", Name: "free", Bytes: space.Free}
	parts := []share{{Class: "others", Name: "used: who uses it is not counted", Bytes: used}, free}
	if !u.uncounted {
		// The usage of volumes includes data that is not on the disk yet.
		volumes := min(u.volumes, used)
		kept := min(u.kept, used-volumes)
		parts = []share{{Class: "volumes", Name: "volumes", Bytes: volumes}}
		if u.partial {
			parts[0].Name = "volumes, which are being counted"
		}
		if kept > 0 {
			parts = append(parts, share{Class: "kept", Name: "of deleted volumes", Bytes: kept})
		}
		others := share{Class: "others", Name: "others", Bytes: used - volumes - kept}
		if u.snapshots {
			others.Name = "snapshots and others"
		}
		if u.keptUnknown {
			others.Name += ", and what is kept of deleted volumes"
		}
		parts = append(parts, others, free)
	}
	for i := range parts {
		parts[i].Percent = 100 * float64(parts[i].Bytes) / float64(max(1, space.Size))
	}
	return parts
}

// sharesBar is one bar of several parts, with a legend below it.
func sharesBar(parts []share) g.Node {
	whole := 0.0
	for _, p := range parts {
		whole += float64(p.Bytes)
	}
	u := byteUnits().of(whole)
	var rects, legend g.Group
	at, label := 0.0, "the disk"
	for _, p := range parts {
		size := u.format(float64(p.Bytes))
		label += ", " + p.Name + " " + size
		legend = append(legend, h.Span(h.Class(p.Class), g.Text(p.Name+" "), h.B(g.Text(size))), g.Text(" "))
		if p.Class != "free" {
			rects = append(rects, g.El("rect", h.Class(p.Class), g.Attr("x", percentText(at)), h.Width(percentText(p.Percent)), h.Height("100%")))
		}
		at += p.Percent
	}
	return g.Group{
		h.SVG(h.Class("bar shares"), h.Role("img"), h.Aria("label", label), g.El("rect", h.Class("whole"), h.Width("100%"), h.Height("100%")), rects),
		h.P(h.Class("legend"), legend),
	}
}

package status

import (
	"context"
	"net/http"
	"net/url"
	"slices"
	"time"

	g "maragu.dev/gomponents"
	h "maragu.dev/gomponents/html"

	"github.com/podnas/podnas/internal/doctor"
	"github.com/podnas/podnas/provisioner"
)

// addressAge is how old the address that volumes are mounted from may be.
const addressAge = time.Minute

// volumeHref is a link to the page of a volume.
func volumeHref(name string) g.Node { return h.Href("/volume/" + url.PathEscape(name)) }

// volumePage is the page of one volume.
func (s *Status) volumePage(ctx context.Context, p *page, name string) (int, g.Node) {
	v := p.volume(name)
	if v == nil {
		return http.StatusNotFound, document("No such volume: podnas", volumeHeader(p, "No such volume"),
			h.P(h.Class("state"), g.Textf("There is no volume %s.", name)),
			none("It may have been deleted; a claim's volume is found by its claim's name in the list."))
	}
	spans := s.samples.history(v.record.ID)
	problems := problemsOf(v, p.Problems)
	mark := ""
	if len(problems) > 0 && problems[0].Status == doctor.Failed {
		mark = "Trouble: "
	}
	return http.StatusOK, document(
		mark+v.title()+": podnas", volumeHeader(p, v.title()),
		healthSection(p, problems, v.Name),
		volumeFacts(p, v, s.mountCommand(ctx, v)),
		chartsOf(volumeCharts(spans), len(spans) > 1),
		section("clients", "Clients", volumeClients(v)), volumeHoldings(p, v.Name),
		eventsSection(eventsOf(v, p.Events), "Nothing since podnas was started."),
		footer(),
	)
}

// volumeHeader begins a page that is not the one of all volumes.
func volumeHeader(p *page, title string) g.Node {
	return h.Header(
		h.Nav(h.Aria("label", "Pages"), h.A(h.Href("/"), icon(), g.Text(" All volumes of podnas"))), moment(p),
		h.H1(h.Class("title"), g.Text(title)),
	)
}

// mountCommand returns the command that mounts the volume, or why it is unknown.
func (s *Status) mountCommand(ctx context.Context, v *volumeView) g.Node {
	if s.cfg.Provisioner == nil || !v.served || v.Source != "" {
		return g.Text("it is not served")
	}
	address, err := s.address.Get(ctx, addressAge)
	if err != nil {
		return g.Text("unknown at the moment: " + err.Error())
	}
	p := *s.cfg.Provisioner
	p.Endpoint = provisioner.StaticEndpoint(address)
	pv, err := p.PersistentVolume(ctx, v.record)
	if err != nil {
		return g.Text("unknown at the moment: " + err.Error())
	}
	return command("command-mount", "mounts the volume", provisioner.MountCommand(pv))
}

// volumeFacts are the properties of a volume.
func volumeFacts(p *page, v *volumeView, mount g.Node) g.Node {
	use := g.Group{h.P(g.Textf("%s, not counted", v.Use.Size))}
	if v.record.View {
		use = g.Group{h.P(g.Textf("%s, takes no space", v.Use.Size))}
	}
	if v.Use.Known {
		use = g.Group{useBar(&v.Use), g.If(v.Partial, h.P(g.Text("so far: it is still being counted")))}
	}
	return g.Group{
		untitled("volume", "Use", h.Div(
			h.Class("facts"),
			h.Div(h.H3(g.Text("Size")), use),
			g.If(v.Inodes.Known, h.Div(h.H3(g.Text("Files")), useBar(&v.Inodes))),
			h.Div(h.Class("wide"), h.H3(g.Text("Of the last minute")), h.P(
				h.B(g.Text(v.Calls)), g.Text(" calls, "), h.B(g.Text(v.Read)), g.Text(" read, "), h.B(g.Text(v.Written)), g.Text(" written per second"),
			)),
		)),
		section("about", "This volume", facts(
			say("Volume", v.Name), say("Claim", v.Claim), say("Class", v.Class), say("State", v.State),
			say("A copy of", v.Source), say("Shows", showsOf(v)), say("Snapshots", v.Snapshots), say("Schedule", v.Schedule), say("Directory", v.record.Directory()), say("Made", v.record.Created.UTC().Format("2006-01-02 15:04 UTC")),
			fact{"Mount", mount}, fact{"More", command("command-show", "tells more of the volume", p.Process.Command("volume show "+v.Name))},
		)),
	}
}

// showsOf says which snapshot a volume shows.
func showsOf(v *volumeView) string {
	if !v.record.View {
		return ""
	}
	return "the snapshot " + v.record.SourceSnapshot + " of " + v.record.Source + ", read-only"
}

// volumeClients is the table of a volume's clients, the latest first.
func volumeClients(v *volumeView) g.Node {
	if len(v.Clients) == 0 {
		return none("Nobody was here within the last hour.")
	}
	columns := []column{{"Address", ""}, {"Last call", ""}}
	return table("", columns, g.Map(v.Clients, func(c seenView) g.Node {
		return row("client-"+c.Address, columns, clientName(c.Address, c.Here, nil), g.Text(agoWords(c.Ago)))
	}))
}

// volumeCharts are the charts of a volume's traffic.
func volumeCharts(spans []trafficSpan) []chart {
	collect := func(f func(*trafficSpan) uint64) []float64 {
		var values []float64
		for i := range spans {
			values = append(values, float64(f(&spans[i]))/max(spans[i].seconds, 1e-3))
		}
		return values
	}
	return []chart{
		newChart("Calls per second", 0, countUnits(), line{Name: "all", values: collect(func(s *trafficSpan) uint64 { return s.Calls })}),
		newChart("Data per second", 1024, byteUnits(),
			line{Name: "read", values: collect(func(s *trafficSpan) uint64 { return s.Read })},
			line{Name: "written", values: collect(func(s *trafficSpan) uint64 { return s.Written })}),
	}
}

// problemsOf returns the problems that name a volume, its directory or its claim.
func problemsOf(v *volumeView, problems []doctor.Result) []doctor.Result {
	var its []doctor.Result
	for _, p := range problems {
		if p.Volume == v.Name || p.Check == v.Path || v.Claim != "" && p.Check == "claim "+v.Claim {
			its = append(its, p)
		}
	}
	return its
}

// eventsOf returns the events that name a volume, its directory or its claim.
func eventsOf(v *volumeView, events []eventView) []eventView {
	names := []string{v.Name, v.Path}
	if v.Claim != "" {
		names = append(names, v.Claim)
	}
	return slices.DeleteFunc(slices.Clone(events), func(e eventView) bool {
		return !slices.ContainsFunc(e.about, func(name string) bool { return slices.Contains(names, name) })
	})
}

package status

import (
	"fmt"
	"strconv"

	g "maragu.dev/gomponents"
	h "maragu.dev/gomponents/html"

	"github.com/podnas/podnas/doctor"
)

// The page is made by functions and not from a template of html/template: that one
// finds methods by their names, so the linker, which can't tell which, would keep
// every exported method of every type. Those are 20 MB of client-go that nobody calls.

// overviewPage is the page of all volumes, or of those that fit a filter.
func overviewPage(p *page, filter string) g.Node {
	title := "podnas"
	if p.Bad {
		title = "Trouble: podnas"
	}
	return document(
		title,
		heading(p), healthSection(p), diskSection(p), chartsOf(p.Charts, p.Spans), volumesSection(listOf(p.Volumes, filter)),
		clientsSection(p), proceduresSection(p), eventsSection(p.Events, "Nothing yet."), footer(p),
	)
}

// document is a whole page.
func document(title string, main ...g.Node) g.Node {
	return h.Doctype(h.HTML(
		h.Lang("en"),
		h.Head(
			h.Meta(h.Charset("utf-8")),
			h.Meta(h.Name("viewport"), h.Content("width=device-width, initial-scale=1")),
			h.Meta(h.Name("color-scheme"), h.Content("light dark")),
			h.NoScript(h.Meta(g.Attr("http-equiv", "refresh"), h.Content("10"))),
			h.TitleEl(g.Text(title)),
			h.Link(h.Rel("icon"), h.Href("/icon.svg")),
			h.Link(h.Rel("stylesheet"), h.Href("/page.css")),
			h.Script(h.Src("/page.js"), h.Defer()),
		),
		h.Body(
			h.P(h.ID("late"), h.Class("problem bad"), g.Attr("hidden"), g.Text("podnas does not answer. What is below is old.")),
			h.Main(main...),
		),
	))
}

func heading(p *page) g.Node {
	now := p.Now.UTC()
	return h.Header(
		h.H1(h.A(h.Href("/"), h.Img(h.Src("/icon.svg"), h.Alt(""), h.Width("28"), h.Height("28")), g.Text(" podnas"))),
		h.P(
			g.Textf("%s, %s, up for %s · ", p.Process.Version, p.Process.Mode, p.Uptime),
			h.Time(h.DateTime(now.Format(timeFormat)), g.Text(now.Format("15:04:05")+" UTC")),
		),
	)
}

// timeFormat is for programs.
const timeFormat = "2006-01-02T15:04:05Z"

// section is a part of the page under a title.
func section(id, title string, children ...g.Node) g.Node {
	return h.Section(h.ID(id), h.Aria("label", title), h.H2(g.Text(title)), g.Group(children))
}

// none is said where there is nothing to list.
func none(text string) g.Node { return h.P(h.Class("none"), g.Text(text)) }

func healthSection(p *page) g.Node {
	class, text := "state good", "All is well."
	switch {
	case !p.Checked:
		class, text = "state", "The first checks are under way."
	case p.Bad:
		class, text = "state bad", "Something is wrong."
	case len(p.Problems) > 0:
		class, text = "state notice", "All works. There is something to know."
	}
	return h.Section(
		h.ID("health"), h.Aria("label", "Health"),
		h.P(h.Class(class), g.Text(text)),
		g.Map(p.Problems[:min(len(p.Problems), problemsMax)], problemNode),
		g.If(len(p.Problems) > problemsMax, h.P(g.Textf("and %d more, podnas doctor has them all", len(p.Problems)-problemsMax))),
	)
}

func problemNode(problem doctor.Result) g.Node {
	class := "problem notice"
	if problem.Status == doctor.Failed {
		class = "problem bad"
	}
	return h.Div(
		h.Class(class), h.Strong(g.Text(problem.Check)), g.Text(": "+problem.Says),
		g.If(problem.Fix != "", g.Group{g.Text(" "), h.Span(h.Class("fix"), g.Text("To do: "+problem.Fix))}),
	)
}

func diskSection(p *page) g.Node {
	return h.Section(
		h.ID("disk"), h.Aria("label", "Disk"), h.Class("facts"),
		h.Div(
			h.H3(g.Text("Disk")), sharesBar(p.Shares), h.P(h.Class("of"), h.Span(h.Class("percent "+p.Disk.Class), g.Textf("%d%%", p.Disk.Percent)),
				g.Textf(" of %s is used, %s is promised to volumes", p.Disk.Size, p.Promised)),
		),
		g.If(p.Inodes.Known, h.Div(h.H3(g.Text("Files")), shareBar(&p.Inodes), h.P(g.Text("of those the disk has room for")))),
		h.Div(
			h.H3(g.Text("Serving")),
			h.P(h.B(number(p.Connections)), g.Text(" connections, "), h.B(number(p.InFlight)), g.Text(" calls under way")),
			h.P(g.Textf("%s engine on %s", p.Process.Engine, p.Process.Listen)),
		),
		h.Div(h.H3(g.Text("Sizes")), h.P(g.Text(p.Process.Quota))),
	)
}

func number(n uint64) g.Node { return g.Text(strconv.FormatUint(n, 10)) }

// useBar is a bar with sizes beside it.
func useBar(b *bar) g.Node {
	return g.Group{shareBar(b), h.Span(h.Class("sizes"), g.Textf("%s of %s", b.Used, b.Size))}
}

func shareBar(b *bar) g.Node {
	percent := strconv.Itoa(b.Percent) + "%"
	rect := func(class, width string) g.Node {
		return g.El("rect", h.Class(class), h.Width(width), h.Height("100%"), g.Attr("rx", "4"))
	}
	return g.Group{
		h.SVG(h.Class("bar "+b.Class), h.Role("img"), h.Aria("label", percent+" used"), rect("whole", "100%"), rect("part", percent)),
		h.Span(h.Class("percent"), g.Text(percent)),
	}
}

// chartsOf are the charts, if there is something in them.
func chartsOf(charts []chart, something bool) g.Node {
	const title = "The last five minutes"
	if !something {
		return section("charts", title, none("Nothing yet: a sample is taken every 5 seconds."))
	}
	return section("charts", title, h.Div(h.Class("charts"), g.Map(charts, picture)))
}

// picture is a chart as SVG, with its scale, its time axis and its legend.
func picture(c chart) g.Node {
	path := func(class, shape string) g.Node { return g.El("path", h.Class(class), g.Attr("d", shape)) }
	return h.Figure(
		h.FigCaption(g.Text(c.Title)),
		h.Div(
			h.Class("plot"),
			h.Div(h.Class("scale"), h.Span(g.Text(c.Max)), h.Span(g.Text(c.Half)), h.Span(g.Text(c.Zero))),
			h.SVG(
				g.Attr("viewBox", fmt.Sprintf("0 0 %d %d", chartWidth, chartHeight)), g.Attr("preserveAspectRatio", "none"), h.Role("img"), h.Aria("label", c.Label()),
				path("grid", grid()),
				g.Map(c.Lines, func(l line) g.Node { return path(l.Class, c.Path(l)) }),
			),
			h.SVG(h.Class("axis"), h.Aria("hidden", "true"), g.Map(ticks(), func(t tick) g.Node {
				return g.El("text", g.Attr("x", percentText(t.Percent)), g.Attr("y", "12"), g.Attr("text-anchor", t.Anchor), g.Text(t.Text))
			})),
		),
		h.P(h.Class("legend"), g.Map(c.Lines, func(l line) g.Node {
			return g.Group{h.Span(h.Class(l.Class), g.Text(l.Name+" "), h.B(g.Text(l.Now))), g.Text(" ")}
		})),
	)
}

// percentText is a percentage as SVG and HTML have it.
func percentText(percent float64) string { return strconv.FormatFloat(percent, 'f', 2, 64) + "%" }

func footer(p *page) g.Node {
	return h.Footer(h.P(
		g.Textf("Provisioner %s, disk %s. ", p.Process.Provisioner, p.Process.Root),
		h.A(h.Href("/metrics"), g.Text("Metrics")), g.Text(", "), h.A(h.Href("/readyz"), g.Text("readiness")),
		g.Text(". Nothing can be changed here: use "), h.Code(g.Text("podnas volume")), g.Text(" and "), h.Code(g.Text("podnas doctor")), g.Text("."),
	))
}

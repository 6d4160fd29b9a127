package status

import (
	"fmt"
	"net/url"
	"strconv"
	"strings"

	g "maragu.dev/gomponents"
	h "maragu.dev/gomponents/html"

	"github.com/podnas/podnas/internal/volume"
)

// column is a column of a table. On a narrow screen each row is shown as a card, whose
// cells have the names of their columns.
type column struct {
	name  string
	class string // of its cells: n for numbers
}

// table is a table whose rows have a cell for each column. Each row has an id, by which the page's script finds it again when
// rows move.
func table(class string, columns []column, rows g.Node) g.Node {
	return h.Table(
		g.If(class != "", h.Class(class)),
		h.THead(h.Tr(g.Map(columns, func(c column) g.Node {
			return h.Th(h.Scope("col"), g.If(c.class == "n", h.Class("n")), g.Text(c.name))
		}))),
		h.TBody(rows),
	)
}

// row is a row of a table that may be shown as cards. The first cell is the card's title.
func row(id string, columns []column, cells ...g.Node) g.Node {
	name := h.Th(h.Scope("row"), h.Class("name"), cells[0])
	rest := make(g.Group, 0, len(cells))
	for i, cell := range cells[1:] {
		c := columns[i+1]
		rest = append(rest, h.Td(h.Data("label", c.name), g.If(c.class != "", h.Class(c.class)), cell))
	}
	return h.Tr(rowID(id), name, rest)
}

// rowID makes an id, which must not have spaces.
func rowID(parts ...string) g.Node { return h.ID(url.PathEscape(strings.Join(parts, "-"))) }

func volumesSection(l list) g.Node {
	const title = "Volumes"
	if l.There == 0 {
		return section("volumes", title, none("There is none yet."))
	}
	return section(
		"volumes", title,
		g.If(l.There > filterFrom || l.Filter != "", filterForm(&l)),
		g.If(len(l.Shown) > 0, volumesTable(l.Shown)),
		g.If(len(l.Folded) > 0, h.Details(
			h.ID("folded"), h.Summary(g.Textf("%s more; above are the fullest, the busiest, and those with a problem", volume.FormatCount(l.Matching-len(l.Shown), ""))),
			volumesTable(l.Folded),
		)),
		g.If(l.Matching > volumesMax, none(fmt.Sprintf("and %d more: filter for them; 'podnas volume list' has all", l.Matching-volumesMax))),
	)
}

// filterForm works without scripts; with them, the page is updated while the user types.
func filterForm(l *list) g.Node {
	says := volume.FormatCount(l.There, "volume")
	if l.Filter != "" {
		says = fmt.Sprintf("%s of %s", volume.FormatCount(l.Matching, ""), says)
	}
	return h.Form(
		h.ID("filtering"), h.Class("filter"), h.Method("get"), h.Action("/"), h.Role("search"),
		h.Input(h.Type("search"), h.ID("filter"), h.Name("filter"), h.Value(l.Filter), h.MaxLength(strconv.Itoa(filterMax)), h.AutoComplete("off"),
			h.Placeholder("claim, namespace, class, state or client"), h.Aria("label", "Filter the volumes")),
		h.Button(h.Type("submit"), g.Text("Filter")),
		h.Span(h.Class("none"), g.Text(says)),
		g.If(l.Filter != "", h.A(h.Href("/"), g.Text("Show all volumes"))),
	)
}

func volumesTable(volumes []volumeView) g.Node {
	columns := []column{{"Claim", ""}, {"Used", "used"}, {"Class", ""}, {"State", ""}, {"Clients", ""}, {"Calls/s", "n"}, {"Read/s", "n"}, {"Written/s", "n"}}
	return table("cards", columns, g.Map(volumes, func(v volumeView) g.Node {
		class := v.Class
		if class == "" {
			class = "none"
		}
		return row("volume-"+strconv.FormatUint(v.record.ID, 10), columns, volumeName(&v), volumeUse(&v), g.Text(class), g.Text(v.State), seenBy(v.Clients), g.Text(v.Calls), g.Text(v.Read), g.Text(v.Written))
	}))
}

func volumeName(v *volumeView) g.Node {
	about := v.Name
	if v.Claim == "" {
		about = "without a claim"
	}
	if v.Path != v.Name {
		about += " in " + v.Path
	}
	if v.record.View {
		about += ", shows " + showsOf(v)
	}
	if v.Source != "" {
		about += ", a copy of " + v.Source
	}
	return g.Group{h.A(volumeHref(v.Name), h.B(g.Text(v.title()))), h.Small(g.Text(about))}
}

func volumeUse(v *volumeView) g.Node {
	if v.record.View {
		return g.Textf("of %s, takes no space", v.Use.Size)
	}
	if !v.Use.Known {
		return g.Textf("of %s, not counted", v.Use.Size)
	}
	files := ""
	if v.Inodes.Known {
		files = fmt.Sprintf("%s of %s files", v.Inodes.Used, v.Inodes.Size)
	}
	if v.Partial {
		files = "being counted"
	}
	return g.Group{useBar(&v.Use), g.If(files != "", h.Small(g.Text(files))), g.If(v.Snapshots != "", h.Small(g.Text(v.Snapshots)))}
}

// seenBy are the clients of a volume.
func seenBy(clients []seenView) g.Node {
	if len(clients) == 0 {
		return h.Span(h.Class("none"), g.Text("nobody"))
	}
	return g.Map(clients, func(c seenView) g.Node {
		return g.Group{clientName(c.Address, c.Here, g.If(!c.Here, g.Group{g.Text(" "), h.Small(g.Text(c.Ago + " ago"))})), g.Text(" ")}
	})
}

func clientName(address string, here bool, after g.Node) g.Node {
	class := "client"
	if here {
		class = "client here"
	}
	return h.Span(h.Class(class), g.Text(address), after)
}

func clientsSection(p *page) g.Node {
	const title = "Clients"
	if len(p.Clients) == 0 {
		return section("clients", title, none("Nobody was here within the last hour."))
	}
	columns := []column{{"Address", ""}, {"Last call", ""}, {"Connections", "n"}, {"Calls/s", "n"}, {"Read/s", "n"}, {"Written/s", "n"}, {"Calls in all", "n"}, {"Read", "n"}, {"Written", "n"}}
	return section(
		"clients", title,
		table("cards", columns, g.Map(p.Clients, func(c clientView) g.Node {
			return row("client-"+c.Address, columns, clientName(c.Address, c.Here, nil), g.Text(agoWords(c.Ago)), g.Text(strconv.Itoa(c.Connections)), g.Text(c.Rate), g.Text(c.Read), g.Text(c.Written),
				g.Text(c.AllCalls), g.Text(c.AllRead), g.Text(c.AllWritten))
		})),
		g.If(p.MoreClients > 0, none("and "+strconv.Itoa(p.MoreClients)+" more")),
	)
}

// agoWords adds the word "ago" to a result of ago.
func agoWords(ago string) string {
	if ago == "now" {
		return ago
	}
	return ago + " ago"
}

func proceduresSection(p *page) g.Node {
	const title = "Calls of the last minute"
	if len(p.Procedures) == 0 {
		return section("procedures", title, none("There was none."))
	}
	columns := []column{{"Procedure", ""}, {"Per second", "n"}, {"p50", "n"}, {"p99", "n"}}
	return section("procedures", title, table("", columns, g.Map(p.Procedures, func(v procedureView) g.Node {
		return row("procedure-"+v.Name, columns, g.Text(v.Name), g.Text(v.Rate), g.Text(v.P50), g.Text(v.P99))
	})))
}

func eventsSection(events []eventView, otherwise string) g.Node {
	const title = "What happened"
	if len(events) == 0 {
		return section("events", title, none(otherwise))
	}
	return section("events", title, h.Ol(h.Class("events"), g.Map(events, func(e eventView) g.Node {
		return h.Li(
			rowID("event", strconv.FormatUint(e.number, 10)), h.Class(e.Class),
			h.Time(h.DateTime(e.Time.UTC().Format(timeFormat)), g.Text(agoWords(e.Ago))),
			h.P(
				g.If(e.Class != "info", g.Group{h.B(g.Text(e.Level.String())), g.Text(" ")}),
				g.Text(e.Message),
				g.If(e.Times > 1, g.Group{g.Text(" "), h.B(g.Textf("(%d times)", e.Times))}),
				g.Text(" "), h.Small(g.Text(e.Details)),
			),
		)
	})))
}

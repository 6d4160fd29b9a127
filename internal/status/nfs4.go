package status

import (
	"crypto/sha256"
	"fmt"
	"strconv"

	g "maragu.dev/gomponents"
	h "maragu.dev/gomponents/html"

	"github.com/podnas/podnas/internal/process"
)

// holdingsMax limits the list of open files and locks.
const holdingsMax = 100

// nfs4Section has the clients of NFSv4 and what they have open and locked.
func nfs4Section(p *page) g.Node {
	const title = "Clients of NFSv4"
	switch {
	case p.NFS4 == nil:
		return nil
	case len(p.NFS4.Clients) == 0:
		return section("nfs4", title, graceNode(p), none("There is none. Volumes of version 3 have none."))
	}
	columns := []column{{"Name", ""}, {"Address", ""}, {"Version", ""}, {"State", ""}, {"Here for", ""}, {"Last call", ""}, {"Open files", "n"}, {"Locks", "n"}}
	clients := p.NFS4.Clients
	more := max(0, len(clients)-clientsMax)
	return section(
		"nfs4", title, graceNode(p),
		table("cards", columns, g.Map(clients[:len(clients)-more], func(c process.Client) g.Node {
			return row("client-4-"+digest(c.ID), columns, clientName(c.Name, c.State == process.ClientActive, nil), g.Text(c.Address), g.Text(c.Version), g.Text(stateWords(c.State)),
				g.Text(ago(p.Now.Sub(c.Since))), g.Text(agoWords(ago(p.Now.Sub(c.Seen)))), g.Text(strconv.Itoa(c.Opens)), g.Text(strconv.Itoa(c.Locks)))
		})),
		g.If(more > 0, none(fmt.Sprintf("and %d more: podnas client list has all", more))),
		g.If(len(p.NFS4.Opens) > 0, h.Details(h.ID("holdings"), h.Summary(g.Text("Open files and locks")), holdingsTable(p.NFS4, p, true))),
	)
}

// volumeHoldings is who has which files of a volume open and locked.
func volumeHoldings(p *page, volume string) g.Node {
	if p.NFS4 == nil {
		return nil
	}
	its := p.NFS4.Of(volume)
	if len(its.Opens)+len(its.Locks) == 0 {
		return section("nfs4", "Open files and locks", graceNode(p), none("None. Only clients of NFSv4 tell what they have open and locked."))
	}
	return section("nfs4", "Open files and locks", graceNode(p), holdingsTable(&its, p, false))
}

func graceNode(p *page) g.Node {
	if p.NFS4.Grace == nil {
		return nil
	}
	return h.Div(h.Class("problem notice"), h.Strong(g.Text("Grace period")), g.Text(": "+p.NFS4.Grace.Text(p.Now)))
}

// digest stands for a client ID on the page. Everybody may see the page, and whoever knows a client ID could try to be that client.
func digest(clientID string) string {
	sum := sha256.Sum256([]byte(clientID))
	return fmt.Sprintf("%x", sum[:8])
}

// stateWords explains a client's state.
func stateWords(state string) string {
	if state == process.ClientSilent {
		return "silent: it keeps what nobody else wants"
	}
	return state
}

// holdingsTable lists open files and locks. Everybody may see the page, but not what files are
// called, so they are told by their inode numbers.
func holdingsTable(all *process.NFS4, p *page, volumes bool) g.Node {
	columns := []column{{"File", ""}, {"What", ""}, {"Client", ""}, {"Open for", ""}}
	var rows g.Group
	ids := map[string]bool{}
	add := func(holder *process.Holder, what string) {
		if len(rows) == holdingsMax {
			return
		}
		file := g.Textf("inode %d", holder.Inode)
		if volumes {
			file = g.Group{file, g.Text(" "), h.Small(h.A(volumeHref(holder.Volume), g.Text(p.titleOf(holder.Volume))))}
		}
		id := fmt.Sprintf("%s-%d-%s-%s", holder.Volume, holder.Inode, digest(holder.ClientID), what)
		for ids[id] { // it may have several of a kind
			id += "+"
		}
		ids[id] = true
		rows = append(rows, row("open-"+id, columns, file, g.Text(what), g.Group{g.Text(holder.Client + " "), h.Small(g.Text(holder.Address))}, g.Text(ago(p.Now.Sub(holder.Since)))))
	}
	for i := range all.Locks {
		add(&all.Locks[i].Holder, all.Locks[i].Text())
	}
	for i := range all.Opens {
		add(&all.Opens[i].Holder, all.Opens[i].Text())
	}
	more := len(all.Opens) + len(all.Locks) - len(rows)
	return g.Group{
		table("cards", columns, rows),
		g.If(more > 0 || all.Omitted > 0, none("and more: podnas client list -o json has up to 10,000 of each")),
	}
}

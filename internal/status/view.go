package status

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/maruel/natural"

	"github.com/podnas/podnas/internal/doctor"
	"github.com/podnas/podnas/internal/process"
	"github.com/podnas/podnas/internal/volume"
	"github.com/podnas/podnas/provisioner"
	"github.com/podnas/podnas/quota"
	"github.com/podnas/podnas/server/stats"
)

const (
	// clientsMax and problemsMax limit the lists. Beyond problemsShown, problems are folded away.
	clientsMax    = 30
	problemsMax   = 100
	problemsShown = 5
	// hereFor is how long after its last call a client is shown as present.
	hereFor = 30 * time.Second
)

// page has the data of the page.
type page struct {
	Process  process.Info
	Now      time.Time
	Uptime   string
	Checked  bool            // all checks have run
	Problems []doctor.Result // the worst first
	Bad      bool            // one of them is a failure
	Disk     bar
	Shares   []share // of the disk
	Inodes   bar
	Promised string // with the unit of Disk

	Volumes []volumeView // all
	byName  map[string]int
	Charts  []chart
	Spans   bool // the charts are not empty

	Connections, InFlight uint64
	Procedures            []procedureView
	Clients               []clientView
	MoreClients           int
	NFS4                  *process.NFS4 // nil where it is not served
	Events                []eventView
}

// bar is how much of something is used.
type bar struct {
	Known      bool
	Percent    int
	Used, Size string // "1.2" of "3 GiB"
	Class      string // full, filling, or empty
}

type volumeView struct {
	Use, Inodes                     bar
	Name, Claim, Class, State, Path string
	Source                          string // of a copy
	Clients                         []seenView
	Calls, Read, Written            string // per second
	Partial                         bool   // it is still being counted
	Snapshots                       string // what they are; empty: there are none
	Schedule                        string // of them, and how it is kept; empty: there is none

	record volume.Volume
	served bool // clients can reach it
	sort   int
	calls  uint64 // of the last minute
	bad    bool   // something is wrong with it
}

type seenView struct {
	Address, Ago string
	Here         bool
}

type procedureView struct {
	Name, Rate, P50, P99 string
	count                uint64
}

type clientView struct {
	Address, Ago                  string
	Here                          bool
	Connections                   int
	Rate, Read, Written, AllCalls string
	AllRead, AllWritten           string
	calls                         uint64
}

type eventView struct {
	Event

	Ago   string
	Class string
}

// view collects the data of the page.
func (s *Status) view(ctx context.Context, now time.Time) *page {
	space, err := s.space.Get(ctx, 0)
	if err != nil {
		space = volume.Space{} // the findings report it
	}
	recent, spans := s.samples.recent(), s.samples.spans()
	served := s.cfg.Served.Snapshot()
	p := &page{
		Process: s.cfg.Process, Now: now, Uptime: ago(now.Sub(s.cfg.Process.Started)),
		Charts: charts(spans), Spans: len(spans) > 1,
		Connections: served.Connections.Open, InFlight: served.InFlight,
		Disk:     newBar(space.Size-space.Free, space.Size, volume.DiskMark),
		Inodes:   newBar(int64(space.Inodes-space.InodesFree), int64(space.Inodes), volume.DiskMark),
		Promised: byteUnits().of(float64(space.Size)).format(float64(space.Promised)),
	}
	use := diskUse{}
	p.Volumes = s.volumes(now, &recent, &use)
	p.Shares = use.shares(space)
	p.Procedures = procedures(&recent)
	p.Clients, p.MoreClients = clients(now, served.Clients, &recent)
	if s.cfg.NFS4 != nil {
		all := s.cfg.NFS4()
		p.NFS4 = &all
	}
	for _, e := range s.cfg.Events.Recent() {
		p.Events = append(p.Events, eventOf(now, e))
	}
	// Last, so that a problem that shows above is among them.
	p.Problems, p.Checked = s.problems(ctx)
	p.Bad = len(p.Problems) > 0 && p.Problems[0].Status == doctor.Failed
	p.byName = map[string]int{}
	for i := range p.Volumes {
		v := &p.Volumes[i]
		if _, ok := p.byName[v.Name]; !ok { // a kept volume is after the new one of its name
			p.byName[v.Name] = i
		}
		v.bad = !v.served && v.sort >= 0 || len(problemsOf(v, p.Problems)) > 0
	}
	return p
}

// newBar returns the bar of something whose marks are volume.Mark or volume.DiskMark.
func newBar(used, size int64, mark func(percent int) int) bar {
	u := byteUnits().of(float64(size))
	b := bar{Known: size > 0, Percent: volume.Percent(used, size), Used: u.number(float64(used)), Size: u.format(float64(size))}
	switch mark(b.Percent) {
	case 0:
	case volume.FullPercent:
		b.Class = "full"
	default:
		b.Class = "filling"
	}
	return b
}

// volumes returns all volumes, the fullest first, kept ones last, and adds up their usage.
func (s *Status) volumes(now time.Time, recent *span, use *diskUse) []volumeView {
	var views []volumeView
	exported := map[uint64]*stats.Volume{}
	for _, v := range s.cfg.Exports.Volumes() {
		exported[v.ID] = &v.Served
	}
	taken := s.cfg.Store.SnapshotUses()
	use.snapshots = len(taken) > 0
	scheduled := map[uint64]string{}
	for _, kept := range s.cfg.Store.Schedules() {
		scheduled[kept.Volume.ID] = describeSchedule(&kept, now)
	}
	for _, v := range s.cfg.Store.List() {
		view := describe(v, volume.Ready)
		view.Snapshots, view.Schedule = describeSnapshots(taken[v.ID], now), scheduled[v.ID]
		if u, err := s.cfg.Store.Usage(v.Name); err == nil && u.Limit.Bytes > 0 {
			view.count(&u)
			view.sort = max(view.Use.Percent, view.Inodes.Percent)
			use.volumes += u.Bytes
			use.partial = use.partial || u.Partial
		} else if !v.View {
			use.uncounted = true
		}
		if served := exported[v.ID]; served != nil {
			view.served = true
			for _, seen := range s.cfg.Served.ClientsOf(served) {
				view.Clients = append(view.Clients, seenView{nameOf(seen.Address), ago(now.Sub(seen.Last)), now.Sub(seen.Last) < hereFor})
			}
		} else {
			view.State = "not served"
		}
		t := recent.volumes[v.ID]
		view.calls = t.Calls
		view.Calls = formatRate(recent.perSecond(t.Calls))
		view.Read, view.Written = formatPair(recent.perSecond(t.Read), recent.perSecond(t.Written))
		views = append(views, view)
	}
	for _, c := range s.cfg.Store.Copies() {
		view := describe(c.Volume, fmt.Sprintf("being copied: %s so far", formatBytes(float64(c.Bytes))))
		view.Source, view.sort, view.served = c.Source, 101, true
		if source, err := s.cfg.Store.Get(c.Source); err == nil && source.Claim != nil {
			view.Source = source.Claim.Namespace + "/" + source.Claim.Name
		}
		use.volumes += c.Bytes
		views = append(views, view)
	}
	views = append(views, s.kept(now, use)...)
	slices.SortStableFunc(views, func(a, b volumeView) int {
		return cmp.Or(cmp.Compare(b.sort, a.sort), natural.Compare(a.title(), b.title()))
	})
	return views
}

// kept returns the volumes that were deleted, but whose files still exist.
func (s *Status) kept(now time.Time, use *diskUse) []volumeView {
	trash, err := s.cfg.Store.Trash()
	use.kept += trash.Bytes
	use.keptUnknown = err != nil || trash.Volumes > 0 && !trash.Counted
	kept, err := s.cfg.Store.Kept()
	if err != nil {
		s.cfg.Log.Warn("status: what is archived and retained is not known", "err", err)
	}
	var views []volumeView
	for i := range kept {
		k := &kept[i]
		view := describe(k.Volume, fmt.Sprintf("%s %s", k.State, agoWords(ago(now.Sub(k.Since)))))
		view.sort = -1
		if u, ok, err := s.cfg.Store.KeptUsage(k); ok && err == nil {
			use.kept += u.Bytes
			u.Limit = quota.Limit{Bytes: k.Size, Inodes: k.Inodes} // it is not limited any more
			view.count(&u)
		} else {
			use.keptUnknown = true
		}
		views = append(views, view)
	}
	return views
}

// count sets the usage of the volume.
func (v *volumeView) count(u *quota.Usage) {
	v.Use = newBar(u.Bytes, u.Limit.Bytes, volume.Mark)
	v.Inodes = newBar(u.Inodes, u.Limit.Inodes, volume.Mark)
	v.Inodes.Used, v.Inodes.Size = volume.FormatCount(u.Inodes, ""), volume.FormatCount(u.Limit.Inodes, "")
	v.Partial = u.Partial
}

// titleOf is what people call a volume.
func (p *page) titleOf(name string) string {
	if v := p.volume(name); v != nil {
		return v.title()
	}
	return name
}

// volume returns the volume with a name, or nil.
func (p *page) volume(name string) *volumeView {
	if at, ok := p.byName[name]; ok {
		return &p.Volumes[at]
	}
	return nil
}

// title is what people call the volume: by its claim, if it has one.
func (v *volumeView) title() string { return cmp.Or(v.Claim, v.Name) }

// describe returns the data in a volume's record.
func describe(v volume.Volume, state string) volumeView {
	view := volumeView{record: v, Name: v.Name, Path: v.Path, State: state, Use: bar{Size: formatBytes(float64(v.Size))}, Calls: "0", Read: "0 B", Written: "0 B"}
	if v.Claim != nil {
		view.Claim = v.Claim.Namespace + "/" + v.Claim.Name
	}
	if m, err := provisioner.ManifestOf(v); err == nil {
		view.Class = m.StorageClassName
	}
	return view
}

// describeSnapshots says what the snapshots of a volume are.
func describeSnapshots(u volume.SnapshotUse, now time.Time) string {
	if u.Count == 0 {
		return ""
	}
	return fmt.Sprintf("%s, the latest %s, with at most %s", volume.FormatCount(u.Count, "snapshot"), agoWords(ago(now.Sub(u.Newest))), formatBytes(float64(u.Bytes)))
}

// describeSchedule says which snapshots of a volume are taken, and when.
func describeSchedule(kept *volume.Scheduled, now time.Time) string {
	text := strings.ReplaceAll(kept.Volume.Schedule.String(), ",", ", ")
	if problem := kept.Problem(); problem != "" {
		return text + ": " + problem
	}
	if wait := kept.Next.Sub(now); wait >= time.Second {
		text += ": the next in " + ago(wait)
	}
	return text
}

// nameOf is a client's name on the page.
func nameOf(address netip.Addr) string {
	switch {
	case !address.IsValid():
		return "others"
	case address.IsLoopback():
		return address.String() + " (here)"
	}
	return address.String()
}

// procedures returns the procedures called within the last minute, the most frequent first.
func procedures(recent *span) []procedureView {
	var views []procedureView
	for i := range recent.procedures {
		p := &recent.procedures[i]
		p50, p99 := p.durations.Quantile(0.5).Seconds(), p.durations.Quantile(0.99).Seconds()
		u := timeUnits().of(p50, p99)
		views = append(views, procedureView{
			Name: p.name, Rate: formatRate(recent.perSecond(p.durations.Count)), count: p.durations.Count, P50: u.format(p50), P99: u.format(p99),
		})
	}
	slices.SortStableFunc(views, func(a, b procedureView) int { return cmp.Compare(b.count, a.count) })
	return views
}

// clients returns the known clients, the busiest first.
func clients(now time.Time, served []stats.ClientTraffic, recent *span) (views []clientView, more int) {
	for i := range served {
		c := &served[i]
		if !c.Address.IsValid() && c.Connections == 0 {
			continue // the forgotten clients
		}
		t := recent.clients[c.Address.String()]
		read, written := formatPair(recent.perSecond(t.Read), recent.perSecond(t.Written))
		allRead, allWritten := formatPair(float64(c.Traffic.Read), float64(c.Traffic.Written))
		views = append(views, clientView{
			Address: nameOf(c.Address), Ago: ago(now.Sub(c.Seen)), Here: now.Sub(c.Seen) < hereFor,
			Connections: c.Connections, calls: t.Calls,
			Rate: formatRate(recent.perSecond(t.Calls)), Read: read, Written: written,
			AllCalls: volume.FormatCount(c.Calls, ""), AllRead: allRead, AllWritten: allWritten,
		})
	}
	slices.SortStableFunc(views, func(a, b clientView) int {
		return cmp.Or(cmp.Compare(b.calls, a.calls), natural.Compare(a.Address, b.Address))
	})
	if more = len(views) - clientsMax; more > 0 {
		return views[:clientsMax], more
	}
	return views, 0
}

func eventOf(now time.Time, e Event) eventView {
	view := eventView{Event: e, Ago: ago(now.Sub(e.Time)), Class: "info"}
	switch {
	case e.Level >= slog.LevelError:
		view.Class = "error"
	case e.Level >= slog.LevelWarn:
		view.Class = "warn"
	}
	return view
}

// ago formats the time since something.
func ago(d time.Duration) string {
	switch {
	case d < time.Second:
		return "now"
	case d < time.Minute:
		return fmt.Sprintf("%d s", int(d.Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%d min", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%d h", int(d.Hours()))
	}
	return fmt.Sprintf("%d days", int(d.Hours()/24))
}

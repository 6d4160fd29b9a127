package status

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/podnas/podnas/internal/doctor"
	"github.com/podnas/podnas/internal/process"
	"github.com/podnas/podnas/internal/volume"
	"github.com/podnas/podnas/quota"
	"github.com/podnas/podnas/server/exports"
	"github.com/podnas/podnas/server/stats"
)

// exporter exports volumes without an engine, and says what each uses.
type exporter struct {
	table *exports.Table
	root  string
	used  map[string]int64 // in percent of the size, and of a hundred inodes
}

func (e exporter) Check(volume.Options) error { return nil }
func (e exporter) Export(v volume.Volume) error {
	return e.table.Export(exports.Exported{ID: v.ID, Path: v.Path, Dir: filepath.Join(e.root, v.Path)})
}
func (e exporter) Unexport(v volume.Volume) { e.table.Remove(v.ID) }
func (e exporter) SetLimit(volume.Volume)   {}
func (e exporter) Usage(v volume.Volume) quota.Usage {
	used := e.used[v.Name]
	return quota.Usage{Bytes: (used*v.Size + 99) / 100, Inodes: used, Limit: quota.Limit{Bytes: v.Size, Inodes: 100}}
}

// snapshots takes empty ones.
type snapshots struct{ volume.Snapshotter }

func (snapshots) CheckSnapshots(volume.Volume) error                           { return nil }
func (snapshots) ShowSnapshots(volume.Volume, string, []volume.Snapshot) error { return nil }
func (snapshots) TakeSnapshot(_ context.Context, _ volume.Volume, work *os.File, _ *volume.EarlierSnapshot, _ *volume.SnapshotProgress) (volume.SnapshotTaken, error) {
	return volume.SnapshotTaken{Cut: time.Now(), Files: 3, Bytes: 5 << 20}, os.Mkdir(filepath.Join(work.Name(), "tree"), 0o700)
}

// newStatus makes a Status of volumes with these claims, by their names.
func newStatus(t *testing.T, specs []volume.Spec, change func(*Config, exporter)) *Status {
	t.Helper()
	e := exporter{table: &exports.Table{}, root: t.TempDir(), used: map[string]int64{}}
	store, err := volume.Open(volume.Config{Root: e.root, Exports: e, Counter: e, Snapshots: snapshots{}, Log: slog.New(slog.DiscardHandler)})
	mustDo(t, err)
	t.Cleanup(func() { mustDo(t, store.Close()) })
	for _, spec := range specs {
		_, err := store.Create(t.Context(), spec)
		mustDo(t, err)
	}
	cfg := Config{
		Process: process.Info{Version: "v1.2.3", Mode: process.InCluster, Started: time.Now().Add(-3 * time.Hour), Engine: "native", Namespace: "storage", Pod: "podnas-0"},
		Store:   store, Served: stats.New([]string{"NULL", "READ"}, nil), Exports: e.table, Findings: found(), Events: &Events{}, Log: slog.New(slog.DiscardHandler),
	}
	if change != nil {
		change(&cfg, e)
	}
	s, err := New(cfg)
	mustDo(t, err)
	s.cfg.Findings.Look(t.Context())
	return s
}

// found is a list that finds this.
func found(results ...doctor.Result) *doctor.List {
	return doctor.NewList([]doctor.Check{{Name: "check", Run: func(context.Context) []doctor.Result { return results }}})
}

func get(t *testing.T, s *Status, method, path string) *httptest.ResponseRecorder {
	t.Helper()
	w := httptest.NewRecorder()
	s.Handler().ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), method, path, http.NoBody))
	return w
}

func body(t *testing.T, s *Status) string {
	t.Helper()
	w := get(t, s, http.MethodGet, "/")
	if w.Code != http.StatusOK {
		t.Fatalf("status %d: %s", w.Code, w.Body)
	}
	return w.Body.String()
}

func wants(t *testing.T, page string, wants ...string) {
	t.Helper()
	for _, want := range wants {
		if !strings.Contains(page, want) {
			t.Errorf("the page lacks %q", want)
		}
	}
}

func TestOnlyReads(t *testing.T) {
	s := newStatus(t, nil, nil)
	for _, tt := range []struct {
		method, path string
		code         int
		kind         string
	}{
		{"GET", "/", 200, "text/html; charset=utf-8"},
		{"GET", "/?filter=x", 200, "text/html; charset=utf-8"},
		{"POST", "/?filter=x", 405, ""},
		{"HEAD", "/", 200, "text/html; charset=utf-8"},
		{"GET", "/page.css", 200, "text/css; charset=utf-8"},
		{"GET", "/page.js", 200, "text/javascript; charset=utf-8"},
		{"GET", "/icon.svg", 200, "image/svg+xml"},
		{"GET", "/idiomorph/idiomorph.min.js", 200, "text/javascript; charset=utf-8"},
		{"GET", "/idiomorph/LICENSE", 200, "text/plain; charset=utf-8"},
		{"GET", "/idiomorph/", 404, ""},
		{"GET", "/other", 404, ""},
		{"GET", "/page.html", 404, ""},
		{"GET", "/assets/page.html", 404, ""},
		{"POST", "/", 405, ""},
		{"PUT", "/", 405, ""},
		{"DELETE", "/page.css", 405, ""},
		{"OPTIONS", "/", 405, ""},
	} {
		w := get(t, s, tt.method, tt.path)
		if w.Code != tt.code || tt.kind != "" && w.Header().Get("Content-Type") != tt.kind {
			t.Errorf("%s %s: %d, %s", tt.method, tt.path, w.Code, w.Header().Get("Content-Type"))
		}
		if p := w.Header().Get("Content-Security-Policy"); !strings.HasPrefix(p, "default-src 'none';") || strings.Contains(p, "unsafe") {
			t.Errorf("%s %s: policy %q", tt.method, tt.path, p)
		}
	}
	// What the policy forbids is not there, or the page would not look as it should.
	if found := regexp.MustCompile(`(?i)<style|\sstyle=|<script[^>]*>[^<]|\son[a-z]+=`).FindString(body(t, s)); found != "" {
		t.Errorf("the page has %q, which its policy forbids", found)
	}
}

// The page of all volumes says what snapshots there are, and that of a volume when the next one is taken, or why it is not.
func TestSnapshotsOnPage(t *testing.T) {
	s := newStatus(t, []volume.Spec{{Name: "v", Size: 1 << 20, Schedule: volume.Schedule{Daily: 7, Yearly: 1}}, {Name: "w", Size: 1 << 20}}, nil)
	if text := body(t, s); strings.Contains(text, "snapshot") {
		t.Error("without one the page tells of snapshots")
	}
	for range 2 {
		_, err := s.cfg.Store.CreateSnapshot(t.Context(), "v", "")
		mustDo(t, err)
		time.Sleep(time.Second) // the page is made once a second
	}
	wants(t, body(t, s), "<small>2 snapshots, the latest ", ", with at most 10 MiB</small>", "snapshots and others")
	wants(t, get(t, s, http.MethodGet, "/volume/v").Body.String(), "<dd>2 snapshots, the latest ", ", with at most 10 MiB</dd>", "<dd>daily=7, yearly=1: the next in ")
	if text := get(t, s, http.MethodGet, "/volume/w").Body.String(); strings.Contains(text, "Schedule") {
		t.Error("a volume without snapshots tells of a schedule")
	}
	now := time.Now()
	for _, tt := range []struct {
		kept volume.Scheduled
		want string
	}{
		{volume.Scheduled{Next: now.Add(3 * time.Minute)}, "hourly=2: the next in 3 min"},
		{volume.Scheduled{Next: now}, "hourly=2"},
		{volume.Scheduled{Err: errors.New("<the disk is broken>")}, "hourly=2: the last one could not be taken: <the disk is broken>"},
		{volume.Scheduled{Late: true}, "hourly=2: one is due for more than an hour"},
	} {
		tt.kept.Volume.Schedule = volume.Schedule{Hourly: 2}
		if got := describeSchedule(&tt.kept, now); got != tt.want {
			t.Errorf("%q, want %q", got, tt.want)
		}
	}
}

// Whoever names a claim or a directory must not be able to write on the page.
func TestEscapes(t *testing.T) {
	const evil = `<img src=x onerror=alert(1)>"'&`
	s := newStatus(t, []volume.Spec{
		{Name: "a", Path: evil, Size: 1 << 20, Claim: &volume.Claim{Namespace: evil, Name: "</td><script>alert(2)</script>"}},
	}, func(cfg *Config, e exporter) {
		e.used["a"] = 99
		log := slog.New(cfg.Events.Handler(slog.DiscardHandler)).With("by", evil)
		log.Warn(evil, "key", evil)
		cfg.Process.Quota = evil
		cfg.Findings = found(doctor.Result{Check: evil, Status: doctor.Failed, Says: evil, Fix: evil})
	})
	page := body(t, s) + get(t, s, http.MethodGet, "/volume/a").Body.String() + get(t, s, http.MethodGet, "/?filter="+url.QueryEscape(evil)).Body.String()
	if strings.Contains(page, "<img src=x") || strings.Contains(page, "<script>") {
		t.Error("what others have named is taken for HTML")
	}
	if n := strings.Count(page, "&lt;img src=x onerror=alert(1)&gt;"); n < 8 {
		t.Errorf("it is there %d times as text, want at least 8", n)
	}
	wants(t, page, "&lt;/td&gt;&lt;script&gt;alert(2)&lt;/script&gt;")
}

func TestVolumes(t *testing.T) {
	manifest := []byte(`{"storageClassName": "fast"}`)
	s := newStatus(t, []volume.Spec{
		{Name: "pvc-1", Size: 1 << 30, Claim: &volume.Claim{Namespace: "team", Name: "full"}, Manifest: manifest},
		{Name: "pvc-2", Size: 1 << 30, Claim: &volume.Claim{Namespace: "team", Name: "half"}},
		{Name: "kept", Size: 1 << 30, OnDelete: volume.RetainFiles},
	}, func(cfg *Config, e exporter) {
		e.used["pvc-1"], e.used["pvc-2"] = 97, 50
		mustDo(t, cfg.Store.Delete(t.Context(), "kept"))
	})
	v, err := s.cfg.Store.Get("pvc-1")
	mustDo(t, err)
	exported, _ := s.cfg.Exports.ByID(v.ID)
	s.samples.take(time.Now().Add(-10*time.Second), s.cfg.Served, s.cfg.Exports)
	conn := s.cfg.Served.Connect(netip.MustParseAddrPort("192.0.2.7:1000"))
	for range 100 {
		call := stats.Call{Volume: &exported.Served, Read: 1 << 20}
		conn.Begin(&call, 1)
		conn.End(&call, 0, 1)
	}
	s.samples.take(time.Now(), s.cfg.Served, s.cfg.Exports)

	view := s.view(t.Context(), time.Now())
	if len(view.Volumes) != 3 {
		t.Fatalf("%d volumes", len(view.Volumes))
	}
	full, half, kept := view.Volumes[0], view.Volumes[1], view.Volumes[2]
	if full.Claim != "team/full" || full.Class != "fast" || full.Use.Percent != 97 || full.Use.Class != "full" || full.State != "ready" ||
		full.Use.Size != "1 GiB" || len(full.Clients) != 1 || full.Clients[0].Address != "192.0.2.7" || !full.Clients[0].Here ||
		full.Calls != "10" || full.Read != "10 MiB" {
		t.Errorf("%+v", full)
	}
	if half.Claim != "team/half" || half.Use.Percent != 50 || half.Use.Class != "" || len(half.Clients) != 0 || half.Calls != "0" {
		t.Errorf("%+v", half)
	}
	if !strings.HasPrefix(kept.State, "retained") {
		t.Errorf("%+v", kept)
	}
	if len(view.Clients) != 1 || view.Clients[0].AllRead != "100 MiB" || view.Clients[0].Connections != 1 {
		t.Errorf("clients: %+v", view.Clients)
	}
	if len(view.Procedures) != 1 || view.Procedures[0].Name != "READ" {
		t.Errorf("procedures: %+v", view.Procedures)
	}
	wants(t, body(t, s), "team/full", `<rect class="part" width="97%"`, `<svg class="bar full"`, "192.0.2.7", "up for 3 h", "97 of 100 files")
}

func TestHealth(t *testing.T) {
	good, notice := doctor.Good("fine"), doctor.Warn("make it larger", "almost full")
	bad := doctor.Result{Check: "volume <v>", Status: doctor.Failed, Says: "it is gone", Fix: "put it back"}
	many := []doctor.Result{notice}
	for range problemsMax + 3 {
		many = append(many, bad)
	}
	for _, tt := range []struct {
		name  string
		found []doctor.Result
		wants []string
	}{
		{"well", []doctor.Result{good}, []string{"All is well."}},
		{"a warning", []doctor.Result{good, notice}, []string{"All works. There is something to know.", "<strong>check</strong>: almost full", "To do: make it larger", "<title>podnas"}},
		{"a failure comes first", []doctor.Result{notice, bad}, []string{"Something is wrong.", `it is gone <span class="fix">To do: put it back</span></div><div class="problem notice"><strong>check`, "volume &lt;v&gt;", "<title>Trouble: podnas"}},
		{"few are in sight", many, []string{`put it back</span></div><details id="problems"><summary>99 more problems</summary><div class="problem bad">`}},
		{"more than is listed", many, []string{"Something is wrong.", "and 4 more, &#39;podnas doctor&#39; has them all"}},
		{"commands to copy", []doctor.Result{{Check: "v", Status: doctor.Failed, Fix: "make it again ('podnas volume manifests v | kubectl apply -f -'), don't wait, or 'kubectl get pods'"}}, []string{
			`make it again (<code id="fix-`, `">kubectl exec -n storage podnas-0 -- podnas volume manifests v | kubectl apply -f -</code> <button type="button" class="copy" data-copies="fix-`,
			`aria-label="Copy the command kubectl get pods">Copy</button></span></div>`, `</button>), don&#39;t wait, or <code id="fix-`,
		}},
		// What is read out when it changes.
		{"the names", []doctor.Result{notice, bad, bad}, []string{`<p id="state" role="status" class="state bad">Something is wrong.<span class="unseen"> volume &lt;v&gt;, check</span></p>`}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			wants(t, body(t, newStatus(t, nil, func(c *Config, _ exporter) { c.Findings = found(tt.found...) })), tt.wants...)
		})
	}
}

// What is wrong with a volume is among the problems of the page that shows it, not of one some seconds later.
func TestHealthIsOfTheSameMoment(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var used map[string]int64
		s := newStatus(t, []volume.Spec{{Name: "v", Size: 1 << 20}}, func(cfg *Config, e exporter) {
			used = e.used
			check := doctor.One("volume v", func(context.Context) doctor.Result {
				if u, err := cfg.Store.Usage("v"); err != nil || u.Inodes > 90 {
					return doctor.Fail("remove files", "it is full: %v", err)
				}
				return doctor.Good("fine")
			})
			check.Live = true
			cfg.Findings = doctor.NewList([]doctor.Check{check})
		})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			s.cfg.Findings.Watch(ctx)
			close(done)
		}()
		synctest.Wait()
		for range 3 {
			used["v"] = 50
			wants(t, body(t, s), "All is well.", `<svg class="bar "`)
			used["v"] = 95
			wants(t, body(t, s), "Something is wrong.", `<svg class="bar full"`)
		}
		cancel()
		<-done
	})
}

// A check that hangs is said, and the page is there all the same.
func TestHangingCheck(t *testing.T) {
	for name, live := range map[string]bool{"from time to time": false, "for each page": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				hang := make(chan struct{})
				s := newStatus(t, nil, nil)
				check := doctor.One("disk", func(context.Context) doctor.Result {
					<-hang
					return doctor.Good("fine")
				})
				check.Live = live
				s.cfg.Findings = doctor.NewList([]doctor.Check{check})
				ctx, cancel := context.WithCancel(t.Context())
				done := make(chan struct{})
				go func() {
					s.cfg.Findings.Watch(ctx)
					close(done)
				}()
				time.Sleep(time.Second)
				wants(t, body(t, s), "The first checks are under way.")
				time.Sleep(doctor.Timeout)
				wants(t, body(t, s), "Something is wrong.", "<strong>disk</strong>: no answer for 1")
				close(hang)
				time.Sleep(time.Minute)
				wants(t, body(t, s), "All is well.")
				cancel()
				<-done
			})
		})
	}
}

func TestEvents(t *testing.T) {
	var events Events
	var out strings.Builder
	log := slog.New(events.Handler(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelWarn})))
	log.Debug("detail")
	log.With("a", 1).WithGroup("g").Info("made", "b", 2)
	for range 3 {
		log.Warn("again", "err", errors.New("no space"))
	}
	recent := events.Recent()
	if len(recent) != 2 || recent[0].Message != "again" || recent[0].Times != 3 || recent[0].Details != `err="no space"` || recent[1].Details != "a=1 g.b=2" {
		t.Errorf("%+v", recent)
	}
	if s := out.String(); strings.Contains(s, "made") || strings.Count(s, "again") != 3 {
		t.Errorf("the log has %q", s)
	}
	for i := range 3 * eventsMax {
		log.Info("n", "i", i, "long", strings.Repeat("x", 10*detailMax))
	}
	recent = events.Recent()
	if last := recent[len(recent)-1]; last.Message != "again" {
		t.Errorf("the warning was pushed out by what is for information: the oldest is %+v", last)
	}
	for i := range eventsMax {
		log.Warn("w", "i", i)
	}
	if n := len(slices.DeleteFunc(events.Recent(), func(e Event) bool { return e.Message != "n" })); n != eventsMax/2 {
		t.Errorf("%d of what is for information are left beside warnings", n)
	}
	if len(recent) != eventsMax || len(recent[0].Details) > 2*detailMax || !strings.HasPrefix(recent[0].Details, "i=299 ") {
		t.Errorf("%d events, the latest %q", len(recent), recent[0].Details)
	}
}

// What a client has chosen is one value, as in the log, and nothing that a browser or terminal takes for more than text.
func TestEventsOfAnAttacker(t *testing.T) {
	var events Events
	log := slog.New(events.Handler(slog.DiscardHandler))
	for value, want := range map[string]string{
		"/data":                            "path=/data client=10.0.0.66",
		"/größe":                           "path=/größe client=10.0.0.66",
		"":                                 `path="" client=10.0.0.66`,
		"/data client=10.0.0.7 status=OK":  `path="/data client=10.0.0.7 status=OK" client=10.0.0.66`,
		"/a\nb\u202egnihton\x1b[2J\xff\"c": `path="/a\nb\u202egnihton\x1b[2J\xff\"c" client=10.0.0.66`,
		"\u2028=":                          `path="\u2028=" client=10.0.0.66`,
	} {
		log.Info("mount: refused", "path", value, "client", "10.0.0.66")
		if got := events.Recent()[0].Details; got != want {
			t.Errorf("%q is shown as %s, want %s", value, got, want)
		}
	}
}

// The samples are bounded, and the charts have their last values at the right.
func TestSamples(t *testing.T) {
	served, table := stats.New([]string{"NULL", "READ"}, nil), &exports.Table{}
	conn := served.Connect(netip.MustParseAddrPort("192.0.2.7:1000"))
	var s samples
	if spans := s.spans(); len(spans) != 0 || s.recent().seconds != 0 {
		t.Errorf("of nothing: %v", spans)
	}
	begin := time.Now()
	for n := range 2 * samplesMax {
		for range n {
			var call stats.Call
			conn.Begin(&call, 1)
			conn.End(&call, 5, 1)
		}
		s.take(begin.Add(time.Duration(n)*time.Second), served, table)
	}
	spans := s.spans()
	last := spans[len(spans)-1]
	if len(spans) != samplesMax || last.perSecond(last.durations.Count) != 2*samplesMax-1 || last.errors != 2*samplesMax-1 {
		t.Errorf("%d spans, the last %+v", len(spans), last)
	}
	if r := s.recent(); r.seconds != recently {
		t.Errorf("of late is %g s", r.seconds)
	}
	// An idle server has no garbage of them to collect, but for the list of clients.
	if n := testing.AllocsPerRun(10, func() { s.take(time.Now(), served, table) }); n > 2 {
		t.Errorf("another sample takes %g allocations", n)
	}
}

func TestChart(t *testing.T) {
	c := newChart("Data", 1024, byteUnits(), line{Name: "read", values: []float64{0, 3 << 20, math.NaN(), 1 << 20}})
	if c.Max != "5 MiB" || c.Label() != "Data: read 1 MiB now" {
		t.Errorf("%s, %s", c.Max, c.Label())
	}
	if got, want := c.Path(c.Lines[0]), "M56 40.0L57 40.0L58 16.0M59 32.0L60 32.0"; got != want {
		t.Errorf("path %q, want %q", got, want)
	}
	if c.Half != "2.5 MiB" || c.Zero != "0 MiB" {
		t.Errorf("%s, %s", c.Half, c.Zero)
	}
	if got := fmt.Sprint(ticks()); got != "[{-5m 0 start} {-4m 20 middle} {-3m 40 middle} {-2m 60 middle} {-1m 80 middle} {now 100 end}]" {
		t.Errorf("time axis: %s", got)
	}
	if got, want := grid(), "M0 0V40M12 0V40M24 0V40M36 0V40M48 0V40M60 0V40M0 0H60M0 20H60M0 40H60"; got != want {
		t.Errorf("grid %q, want %q", got, want)
	}
	empty := newChart("Nothing", 0, timeUnits(), line{values: nil})
	if got := empty.Path(empty.Lines[0]); got != "" || empty.Lines[0].Now != "0 s" {
		t.Errorf("of nothing: %q, %q", got, empty.Lines[0].Now)
	}
}

func TestFormats(t *testing.T) {
	seconds := func(v float64) string { return timeUnits().of(v).format(v) }
	for want, got := range map[string]string{
		"0": formatRate(0), "<0.01": formatRate(0.001), "0.5": formatRate(0.5), "1234": formatRate(1234), "57k": formatRate(56789),
		"0 B": formatBytes(0), "999 B": formatBytes(999), "1 KiB": formatBytes(1024), "64 KiB": formatBytes(65536), "1.4 GiB": formatBytes(1.4 * (1 << 30)),
		"8.5 µs": seconds(8.5e-6), "120 µs": seconds(120e-6), "3.5 ms": seconds(3.5e-3), "12 s": seconds(12),
		"0.06 of 10 GiB": newBar(60<<20, 10<<30, volume.Mark).Used + " of " + newBar(60<<20, 10<<30, volume.Mark).Size,
		"now":            ago(0), "59 s": ago(59 * time.Second), "2 min": ago(125 * time.Second), "47 h": ago(47 * time.Hour), "3 days": ago(80 * time.Hour),
	} {
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

func mustDo(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

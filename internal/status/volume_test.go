package status

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/podnas/podnas/internal/doctor"
	"github.com/podnas/podnas/internal/volume"
	"github.com/podnas/podnas/provisioner"
	"github.com/podnas/podnas/server/stats"
)

// The page of a volume has what is about it, and nothing that is about another.
func TestVolumePage(t *testing.T) {
	s := newStatus(t, []volume.Spec{
		{Name: "pvc-1", Path: "team/one", Size: 1 << 30, Claim: &volume.Claim{Namespace: "team", Name: "one"}, Manifest: []byte(`{"storageClassName": "fast"}`)},
		{Name: "pvc-2", Size: 1 << 30, Claim: &volume.Claim{Namespace: "team", Name: "other"}},
	}, func(cfg *Config, e exporter) {
		e.used["pvc-1"], e.used["pvc-2"] = 90, 97
		cfg.Provisioner = &provisioner.Provisioner{Store: cfg.Store, Endpoint: provisioner.StaticEndpoint{IP: netip.MustParseAddr("192.0.2.1"), Port: 2049}}
		cfg.Findings = found(
			doctor.Result{Check: "volume team/one", Volume: "pvc-1", Status: doctor.Warning, Says: "90% full"},
			doctor.Result{Check: "volume team/other", Volume: "pvc-2", Status: doctor.Failed, Says: "97% full"},
		)
		log := slog.New(cfg.Events.Handler(slog.DiscardHandler))
		log.Info("by its name", "volume", "pvc-1")
		log.With("volume", "pvc-1").Info("by its logger")
		log.Info("by its path", "path", "/team/one", "client", "192.0.2.7")
		log.Info("by its claim", "claim", "team/one")
		log.Info("of the other", "volume", "pvc-2")
		log.Info("of none", "client", "pvc-1")
	})
	v, err := s.cfg.Store.Get("pvc-1")
	mustDo(t, err)
	exported, _ := s.cfg.Exports.ByID(v.ID)
	begin := time.Now().Add(-10 * time.Second)
	conn := s.cfg.Served.Connect(netip.MustParseAddrPort("192.0.2.7:1000"))
	for n := range 3 {
		s.samples.take(begin.Add(time.Duration(n)*5*time.Second), s.cfg.Served, s.cfg.Exports)
		for range 50 {
			call := stats.Call{Volume: &exported.Served, Read: 1 << 20}
			conn.Begin(&call, 1)
			conn.End(&call, 0, 1)
		}
	}
	w := get(t, s, http.MethodGet, "/volume/pvc-1")
	page := w.Body.String()
	if w.Code != http.StatusOK {
		t.Fatalf("%d: %s", w.Code, page)
	}
	wants(t, page, "<title>team/one: podnas</title>", "90% full", `aria-label="90% used"`, "fast", "team/one", "90 of 100", "192.0.2.7",
		"sudo mount -t nfs -o nfsvers=3,proto=tcp,port=2049,mountport=2049,mountproto=tcp,mountvers=3,nolock 192.0.2.1:/team/one /mnt",
		`aria-label="Calls per second: all 10 now"`, `aria-label="Data per second: read 10 MiB, written 0 MiB now"`,
		"by its name", "by its logger", "by its path", "by its claim")
	for _, foreign := range []string{"pvc-2", "team/other", "97%", "of the other", "of none"} {
		if strings.Contains(page, foreign) {
			t.Errorf("the page has %q, which is not about this volume", foreign)
		}
	}
	wants(t, page, `<code id="command-show">kubectl exec -n storage podnas-0 -- podnas volume show pvc-1</code>`)
	wants(t, page, `<strong>volume team/one</strong>: 90% full`, `<button type="button" class="copy" data-copies="command-mount" aria-label="Copy the command that mounts the volume">Copy</button>`)
	wants(t, body(t, s), `<a href="/volume/pvc-1"><b>team/one</b></a>`, `<a href="/volume/pvc-2"><b>team/other</b></a>`,
		`<strong><a href="/volume/pvc-2">volume team/other</a></strong>: 97% full`)
}

// A name leads to the live volume that has it, and not to the archived one that had it.
func TestNameOfKept(t *testing.T) {
	spec := volume.Spec{Name: "data", Size: 1 << 30, OnDelete: volume.ArchiveFiles}
	s := newStatus(t, []volume.Spec{spec}, nil)
	mustDo(t, s.cfg.Store.Delete(t.Context(), "data"))
	wants(t, get(t, s, http.MethodGet, "/volume/data").Body.String(), "archived ")
	spec.Path = "live"
	_, err := s.cfg.Store.Create(t.Context(), spec)
	mustDo(t, err)
	page := get(t, s, http.MethodGet, "/volume/data").Body.String()
	wants(t, page, "ready", "live")
	if strings.Contains(page, "archived") {
		t.Error("the page of the live volume is about the archived one")
	}
	ids := regexp.MustCompile(`<tr id="(volume-[^"]+)"`).FindAllStringSubmatch(body(t, s), -1)
	if len(ids) != 2 || ids[0][1] == ids[1][1] {
		t.Errorf("the rows of the two volumes have the ids %q, want two that differ", ids)
	}
}

// Volumes that are as full are in the order that people expect.
func TestOrder(t *testing.T) {
	var specs []volume.Spec
	for i, name := range []string{"team-10", "team-2", "team-1"} {
		specs = append(specs, volume.Spec{Name: fmt.Sprint("pvc-", i), Size: 1 << 20, Claim: &volume.Claim{Namespace: name, Name: "data"}})
	}
	var got []string
	for _, link := range regexp.MustCompile(`<b>(team-\d+)/data</b>`).FindAllStringSubmatch(body(t, newStatus(t, specs, nil)), -1) {
		got = append(got, link[1])
	}
	if fmt.Sprint(got) != "[team-1 team-2 team-10]" {
		t.Errorf("the order is %v", got)
	}
}

func TestNoSuchVolume(t *testing.T) {
	s := newStatus(t, []volume.Spec{{Name: "a", Size: 1 << 20}}, nil)
	for name, code := range map[string]int{"a": 200, "b": 404, "..": 404, "%3Cscript%3E": 404, "a%2Fb": 404, "%00": 404} {
		w := get(t, s, http.MethodGet, "/volume/"+name)
		if code == 404 && name != ".." { // which net/http redirects
			wants(t, w.Body.String(), "There is no volume ")
		}
		if w.Code != code && name != ".." || strings.Contains(w.Body.String(), "<script>") {
			t.Errorf("%s: %d, %s", name, w.Code, w.Body)
		}
		if p := w.Header().Get("Content-Security-Policy"); !strings.HasPrefix(p, "default-src 'none';") {
			t.Errorf("%s: policy %q", name, p)
		}
	}
	for _, method := range []string{"POST", "PUT", "DELETE"} {
		if w := get(t, s, method, "/volume/a"); w.Code != http.StatusMethodNotAllowed {
			t.Errorf("%s: %d", method, w.Code)
		}
	}
}

// A volume's page does not wait for an API server that hangs.
func TestMountNotKnown(t *testing.T) {
	s := newStatus(t, []volume.Spec{{Name: "a", Size: 1 << 20}}, func(cfg *Config, _ exporter) {
		cfg.Provisioner = &provisioner.Provisioner{Store: cfg.Store, Endpoint: hanging{}}
	})
	begin := time.Now()
	w := get(t, s, http.MethodGet, "/volume/a")
	wants(t, w.Body.String(), "unknown at the moment: no answer for")
	if took := time.Since(begin); took > viewLate {
		t.Errorf("it took %s", took)
	}
}

type hanging struct{}

func (hanging) Address(context.Context) (provisioner.Address, error) { select {} }

// However many volumes there are: the page has an end, those that matter are in sight,
// and a filter reaches all.
func TestManyVolumes(t *testing.T) {
	const many = volumesMax + 50
	var specs []volume.Spec
	for i := range many {
		specs = append(specs, volume.Spec{Name: fmt.Sprintf("v-%d", i), Size: 1 << 20, Claim: &volume.Claim{Namespace: "team", Name: fmt.Sprintf("c-%03d", i)}})
	}
	s := newStatus(t, specs, func(_ *Config, e exporter) {
		for i := range many {
			e.used[fmt.Sprintf("v-%d", i)] = int64(i % 40)
		}
		e.used["v-340"] = 96
	})
	busy, err := s.cfg.Store.Get("v-0") // empty, but busy
	mustDo(t, err)
	exported, _ := s.cfg.Exports.ByID(busy.ID)
	s.samples.take(time.Now().Add(-5*time.Second), s.cfg.Served, s.cfg.Exports)
	conn := s.cfg.Served.Connect(netip.MustParseAddrPort("192.0.2.7:1000"))
	call := stats.Call{Volume: &exported.Served}
	conn.Begin(&call, 1)
	conn.End(&call, 0, 1)
	s.samples.take(time.Now(), s.cfg.Served, s.cfg.Exports)

	page := body(t, s)
	shown, folded, ok := strings.Cut(page, `<details id="folded">`)
	if !ok || strings.Count(shown, `<a href="/volume/`) != foldFrom || strings.Count(page, `<a href="/volume/`) != volumesMax {
		t.Errorf("%d volumes in sight, %d in all", strings.Count(shown, `<a href="/volume/`), strings.Count(page, `<a href="/volume/`))
	}
	wants(t, shown, "team/c-340", "team/c-000")
	wants(t, folded, "330 more", "and 50 more: filter for them")
	for filter, want := range map[string][]string{
		"c-123":                        {"team/c-123"},
		"  TEAM   C-349 ":              {"team/c-349"}, // not among the first
		"v-7":                          nil,
		"192.0.2.7":                    {"team/c-000"},
		"nothing":                      {},
		"team c-12 ready":              nil,
		strings.Repeat("é", filterMax): {},
		`"><script>`:                   {},
	} {
		w := get(t, s, http.MethodGet, "/?filter="+url.QueryEscape(filter))
		found := w.Body.String()
		if w.Code != http.StatusOK || strings.Contains(found, "<script>") || strings.Contains(found, "<details") {
			t.Errorf("%q: %d", filter, w.Code)
		}
		n := strings.Count(found, `<a href="/volume/`)
		if want != nil && n != len(want) || want == nil && (n < 2 || n == many) {
			t.Errorf("%q: %d volumes", filter, n)
		}
		wants(t, found, append(want, `class="filter"`, fmt.Sprintf("%d of %d volumes", n, many), "Show all volumes")...)
	}
}

// A few volumes need no filter, and are not folded.
func TestFewVolumes(t *testing.T) {
	page := body(t, newStatus(t, []volume.Spec{{Name: "a", Size: 1 << 20}}, nil))
	if strings.Contains(page, "<form") || strings.Contains(page, "<details") {
		t.Error("there is a filter, or a fold")
	}
}

// Of many volumes that matter alike, some are shown, and all are there.
func TestFold(t *testing.T) {
	for n := range 2*foldFrom + 2 {
		volumes := make([]volumeView, n)
		for i := range volumes {
			volumes[i].Name, volumes[i].sort, volumes[i].bad = fmt.Sprint(i), i%3, i == 5
		}
		l := listOf(volumes, "")
		if len(l.Shown)+len(l.Folded) != n || len(l.Shown) != min(n, foldFrom) {
			t.Errorf("of %d, %d are shown and %d folded", n, len(l.Shown), len(l.Folded))
		}
		for i := range l.Folded {
			if l.Folded[i].bad {
				t.Errorf("of %d, the one with a problem is folded", n)
			}
		}
	}
}

func TestShares(t *testing.T) {
	space := volume.Space{Size: 1000, Free: 400}
	for _, tt := range []struct {
		name string
		use  diskUse
		want string
	}{
		{"all is counted", diskUse{volumes: 200, kept: 100}, "[volumes 200][of deleted volumes 100][others 300][free 400]"},
		{"nothing is kept", diskUse{volumes: 200}, "[volumes 200][others 400][free 400]"},
		{"kept, and not counted", diskUse{volumes: 200, keptUnknown: true}, "[volumes 200][others, and what is kept of deleted volumes 400][free 400]"},
		{"a scan goes on", diskUse{volumes: 200, partial: true}, "[volumes, which are being counted 200][others 400][free 400]"},
		{"not counted", diskUse{volumes: 200, uncounted: true}, "[used: who uses it is not counted 600][free 400]"},
		{"counted is more than used", diskUse{volumes: 550, kept: 100}, "[volumes 550][of deleted volumes 50][others 0][free 400]"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, percent := "", 0.0
			for _, s := range tt.use.shares(space) {
				got += fmt.Sprintf("[%s %d]", s.Name, s.Bytes)
				percent += s.Percent
			}
			if got != tt.want || percent != 100 {
				t.Errorf("%s, %g%%; want %s", got, percent, tt.want)
			}
		})
	}
	wants(t, body(t, newStatus(t, []volume.Spec{{Name: "a", Size: 1 << 20}}, nil)), `<svg class="bar shares"`, "volumes <b>", "others <b>", "free <b>")
}

package app

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/yaml"

	"github.com/podnas/podnas/internal/doctor"
	"github.com/podnas/podnas/internal/metrics"
	"github.com/podnas/podnas/internal/volume"
	"github.com/podnas/podnas/provisioner/controller"
	"github.com/podnas/podnas/server"
	"github.com/podnas/podnas/server/exports"
)

// collectors are those of a podnas in a cluster.
func newTestCollectors(t *testing.T) []prometheus.Collector {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	table, root := &exports.Table{}, t.TempDir()
	e := exporter{Table: table, Root: root, Engine: server.Choice{Engine: server.EngineGoNFS, Reason: "test"}, Log: log}
	store, err := volume.Open(volume.Config{Root: root, Exports: e, Log: log})
	mustDo(t, err)
	t.Cleanup(func() { mustDo(t, store.Close()) })
	nfs, err := server.New(server.Config{Engine: e.Engine, Exports: table, HandleKey: store.HandleKey(), Log: log})
	mustDo(t, err)
	return metrics.New(metrics.Config{
		Server: nfs, Exports: table, Store: store, Report: (&controller.Reconciler{}).Report, Findings: doctor.NewList(nil), Log: log,
	})
}

// metricNames are the names of all that is told, also of what there is nothing of
// now, with the suffixes that histograms have: by the name without.
func metricNames(t *testing.T) map[string]string {
	t.Helper()
	fqName := regexp.MustCompile(`^Desc\{fqName: "([a-z0-9_]+)"`)
	names := map[string]string{}
	for _, c := range newTestCollectors(t) {
		descs := make(chan *prometheus.Desc)
		go func() {
			c.Describe(descs)
			close(descs)
		}()
		for d := range descs {
			found := fqName.FindStringSubmatch(d.String())
			if found == nil {
				t.Fatalf("what is the name in %s?", d)
			}
			name := found[1]
			names[name] = name
			if strings.HasSuffix(name, "_seconds") && !strings.Contains(name, "timestamp") {
				for _, suffix := range []string{"_bucket", "_sum", "_count"} {
					names[name+suffix] = name
				}
			}
		}
	}
	if len(names) < 50 {
		t.Fatalf("only %d metrics: %v", len(names), names)
	}
	return names
}

// metricName is what a name of ours looks like in a text.
var metricName = regexp.MustCompile(`\b(podnas|controller)_[a-z0-9_]+[a-z]\b`)

// Every metric that the alerts and the dashboard ask for is one that podnas tells.
func TestMonitoringAsksForWhatThereIs(t *testing.T) {
	names := metricNames(t)
	var rules struct {
		Spec struct {
			Groups []struct {
				Rules []struct {
					Alert, Expr string
					Labels      map[string]string
					Annotations map[string]string
				}
			}
		}
	}
	mustDo(t, yaml.Unmarshal([]byte(read(t, "../../deploy/helm/podnas/monitoring/rules.yaml")), &rules))
	marks := map[string]int{"PodnasDiskAlmostFull": volume.DiskFillingPercent, "PodnasVolumeAlmostFull": volume.FullPercent}
	var exprs []string
	doc := read(t, "../../docs/monitoring.md")
	for _, group := range rules.Spec.Groups {
		for _, rule := range group.Rules {
			exprs = append(exprs, rule.Expr)
			if rule.Annotations["summary"] == "" || rule.Annotations["description"] == "" || rule.Labels["severity"] == "" {
				t.Errorf("alert %s does not say what it is", rule.Alert)
			}
			if mark, has := marks[rule.Alert]; has && strings.Count(rule.Expr, fmt.Sprintf(">= 0.%d", mark)) != 2 {
				t.Errorf("%s is not at the %d%% that podnas doctor tells at: %s", rule.Alert, mark, rule.Expr)
			}
			if !strings.Contains(doc, "### "+rule.Alert+"\n") {
				t.Errorf("docs/monitoring.md does not explain %s", rule.Alert)
			}
		}
	}
	var dashboard struct {
		Panels []struct {
			Title   string
			Targets []struct{ Expr string }
		}
		Templating struct{ List []struct{ Definition string } }
	}
	mustDo(t, json.Unmarshal([]byte(read(t, "../../deploy/helm/podnas/monitoring/dashboard.json")), &dashboard))
	for _, p := range dashboard.Panels {
		if len(p.Targets) == 0 {
			t.Errorf("panel %q asks for nothing", p.Title)
		}
		for _, target := range p.Targets {
			exprs = append(exprs, target.Expr)
		}
	}
	for _, v := range dashboard.Templating.List {
		if v.Definition != "" {
			exprs = append(exprs, v.Definition)
		}
	}
	if len(exprs) < 30 {
		t.Fatalf("only %d expressions", len(exprs))
	}
	for _, expr := range exprs {
		asked := metricName.FindAllString(expr, -1)
		if len(asked) == 0 {
			t.Errorf("%q asks for nothing of podnas", expr)
		}
		for _, name := range asked {
			if names[name] == "" {
				t.Errorf("%q asks for %s, which is not there", expr, name)
			}
		}
	}
}

// docs/metrics.md has every metric, and no other.
func TestMetricsAreDocumented(t *testing.T) {
	names := metricNames(t)
	documented := map[string]bool{}
	row := regexp.MustCompile("(?m)^\\| `([a-z0-9_]+)")
	for _, found := range row.FindAllStringSubmatch(read(t, "../../docs/metrics.md"), -1) {
		documented[found[1]] = true
	}
	all := map[string]bool{}
	for _, name := range names {
		all[name] = true
	}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if !documented[name] {
			t.Errorf("%s is not in docs/metrics.md", name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(documented)) {
		if !all[name] {
			t.Errorf("docs/metrics.md has %s, which is not told", name)
		}
	}
}

// What is told can be registered together, and is well-formed.
func TestRegistry(t *testing.T) {
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(newTestCollectors(t)...)
	families, err := registry.Gather()
	mustDo(t, err)
	if len(families) < 20 {
		t.Errorf("only %d metrics", len(families))
	}
}

func read(t *testing.T, name string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.FromSlash(name))
	mustDo(t, err)
	return string(data)
}

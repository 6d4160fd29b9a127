//go:build cluster

package cluster_test

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"
)

// page fetches what the process serves over HTTP.
func (p *podnas) page(path string) string {
	p.t.Helper()
	resp, err := http.Get("http://" + p.http + path)
	if err != nil {
		p.t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		p.t.Fatalf("GET %s: %s, %v", path, resp.Status, err)
	}
	return string(body)
}

// What is done for claims is told once in the log, and by the metrics and the page.
func TestTold(t *testing.T) {
	n := newTenant(t)
	p := newPodnas(t, n.provisioner, local)
	p.start()
	class := n.class("", nil)
	n.claim("source", class, "2Mi", nil)
	source := n.bound("source")
	writeFile(t, p.root+"/"+source.Name+"/file", "data")
	n.claim("copy", class, "2Mi", copyOf("source"))
	n.bound("copy")
	n.claim("too-large", class, "1Ei", nil)
	n.failure("too-large")
	const retries = 5 * time.Second // the library tries after one, and after two more
	time.Sleep(retries)

	text, err := os.ReadFile(p.log)
	if err != nil {
		t.Fatal(err)
	}
	log := string(text)
	if strings.Contains(log, "level=ERROR") || strings.Contains(log, "Unhandled Error") {
		t.Errorf("the log has errors:\n%s", log)
	}
	if got := strings.Count(log, fmt.Sprintf("claim=%s/too-large", n.name)); got != 1 {
		t.Errorf("the log tells of the claim that is too large %d times, want once:\n%s", got, log)
	}

	metrics := p.page("/metrics")
	for _, want := range []string{
		fmt.Sprintf(`controller_persistentvolumeclaim_provision_total{class=%q} 2`, class),
		fmt.Sprintf(`controller_persistentvolumeclaim_provision_failed_total{class=%q} `, class),
		`podnas_volume_operations_total{operation="create"} 1`,
		`podnas_volume_operations_total{operation="copy"} 1`,
		`podnas_stands_aside 0`,
		fmt.Sprintf(`podnas_volume_calls_total{claim="source",namespace=%q,volume=%q} 0`, n.name, source.Name),
	} {
		if !strings.Contains(metrics, want) {
			t.Errorf("the metrics lack %s", want)
		}
	}
	page := p.page("/")
	for _, want := range []string{n.name + "/source", n.name + "/copy", source.Name, ">" + class + "<", "get a volume yet", "up for "} {
		if !strings.Contains(page, want) {
			t.Errorf("the page lacks %q", want)
		}
	}
	if t.Failed() {
		t.Logf("metrics:\n%s", metrics)
	}
}

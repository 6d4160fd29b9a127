//go:build e2e

package e2e

import (
	"io"
	"net/http"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"
)

// forwarded is where README.md's port-forward leads to the pod's HTTP port.
const forwarded = "http://127.0.0.1:8080"

// statusPage looks at the page of the running pod as README.md says, at its metrics and
// its probes: they tell of the claim that the upgrade has left.
func (w walkthrough) statusPage(t *testing.T) {
	v := boundVolume(t, "kept")
	row := regexp.MustCompile(`(?s)<tr[^>]*><th[^>]* class="name"><a href="/volume/` + v.Name + `"><b>default/kept</b></a><small>` + v.Name + `</small></th>(.*?)</tr>`)
	shows := regexp.MustCompile(`(?s)>10(\.\d+)? of 16 MiB<.*>squashed<.*>ready<.*class="client here"`)
	page, metrics, probes := "", "", ""
	inKept(t, "touch /kept/file") // who is connected is who made a call of late
	deadline := time.Now().Add(time.Minute)
	w.watch(t, "README.md", "page", func(printed string) bool {
		if !strings.Contains(printed, "Forwarding from") {
			return false
		}
		page = get(t, "/")
		// What is used, by whom, and what is wrong is gathered every few seconds; a pod that
		// has just become ready was not when it was looked at.
		wrong := strings.Contains(page, "Something is wrong")
		if found := row.FindString(page); (wrong || !shows.MatchString(found)) && time.Now().Before(deadline) {
			return false
		}
		metrics, probes = get(t, "/metrics"), get(t, "/healthz")+get(t, "/readyz")
		return true
	})
	if file := os.Getenv("PODNAS_PAGE"); file != "" {
		if err := os.WriteFile(file, []byte(page), 0o644); err != nil {
			t.Error(err)
		}
	}
	if found := row.FindString(page); !shows.MatchString(found) {
		t.Errorf("the page says of the volume\n%s\nwant %s; the whole:\n%s", found, shows, page)
	}
	if !strings.Contains(page, "default/shared") || strings.Contains(page, "Something is wrong") {
		t.Errorf("the page lacks the other claim, or something is wrong:\n%s", page)
	}
	ofVolume := `\{[^}]*volume="` + v.Name + `"[^}]*\} `
	for _, want := range []string{
		`podnas_volume_size_bytes` + ofVolume + `1\.6777216e\+07\n`,
		`podnas_volume_used_bytes` + ofVolume + `1\.0[45]\d*e\+07\n`,
		`podnas_volume_clients` + ofVolume + `1\n`,
		`podnas_build_info\{`,
	} {
		if !regexp.MustCompile(want).MatchString(metrics) {
			t.Errorf("the metrics lack %s:\n%s", want, metrics)
		}
	}
	if probes != "ok\nok\n" {
		t.Errorf("the probes say %q", probes)
	}
}

// get fetches a path from the pod, which has to answer it well.
func get(t *testing.T, path string) string {
	t.Helper()
	answer, err := http.Get(forwarded + path)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err != nil || answer.StatusCode != http.StatusOK {
		t.Fatalf("%s: %s (%v)\n%s", path, answer.Status, err, body)
	}
	return string(body)
}

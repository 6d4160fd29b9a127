package standalone

import (
	"strings"
	"testing"

	"github.com/podnas/podnas/internal/doctor"
)

// What is wrong is found by the next scan, and gone by the one after it is mended.
func TestFindings(t *testing.T) {
	b := newBench(t)
	want := func(when string, wants ...string) {
		t.Helper()
		var got []string
		for _, r := range b.Findings() {
			if r.Status != doctor.OK {
				got = append(got, string(r.Status)+" "+r.Check)
			}
			if (r.Status == doctor.OK) != (r.Fix == "") {
				t.Errorf("%s: %+v", when, r)
			}
		}
		if strings.Join(got, ", ") != strings.Join(wants, ", ") {
			t.Errorf("%s: %q, want %q", when, got, wants)
		}
	}
	want("before the first scan")
	b.write("data.yaml", claimYAML("data", "", "1Mi"))
	b.write("more.yaml", claimYAML("huge", "", "1Ei")+"---\n"+claimYAML("foreign", "storageClassName: foreign", "1Mi")+"---\n"+claimYAML("lost", "storageClassName: none", "1Mi"))
	b.scans(2)
	want("two that can't be fulfilled, and one that is not ours", "failed claim default/huge", "failed claim default/lost")
	if r := b.Findings()[0]; !strings.Contains(r.Fix, "more.yaml") {
		t.Errorf("where it stands is not told: %+v", r)
	}
	b.write("more.yaml", claimYAML("huge", "", "1Mi"))
	b.scans(1)
	want("one is mended, one is gone")

	b.write("data.yaml", "kind: [broken")
	b.scans(1)
	want("a file that is broken", "failed file data.yaml", "warning folder "+b.Claims)
	b.write("data.yaml", claimYAML("data", "", "1Mi"))
	b.scans(1)
	want("it is mended")

	claims := b.Claims
	b.Claims += "/missing"
	b.scans(1)
	want("no folder", "failed folder "+b.Claims)
	b.Claims = claims
}

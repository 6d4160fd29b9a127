package standalone

import (
	"strings"
	"testing"
)

// What the API server refuses is refused here, with the file, the claim, the field and
// the cause.
func TestRefusedAsByACluster(t *testing.T) {
	valid := claimYAML("data", "", "1Mi")
	for _, tt := range []struct {
		name, old, with string
		want            string
	}{
		{"a name with capitals", "name: data", "name: Data", "metadata.name"},
		{"a name with a slash", "name: data", `name: "../data"`, "metadata.name"},
		{"no name", "name: data", "labels: {}", "metadata.name"},
		{"a namespace that is none", "name: data", "name: data, namespace: a.b", "metadata.namespace"},
		{"an unknown access mode", "ReadWriteMany", "ReadWriteEverywhere", "spec.accessModes[0]"},
		{"no access mode", "accessModes: [ReadWriteMany]", "", "spec.accessModes"},
		{"modes that exclude each other", "[ReadWriteMany]", "[ReadWriteMany, ReadWriteOncePod]", "spec.accessModes"},
		{"an unknown volume mode", "resources:", "volumeMode: Tape\n  resources:", "spec.volumeMode"},
		{"no size", "requests: {storage: 1Mi}", "requests: {}", "spec.resources.requests.storage"},
		{"size 0", "1Mi", "0", "spec.resources.requests.storage"},
		{"a negative size", "1Mi", "-1Gi", "spec.resources.requests.storage"},
		{"a size in words", "1Mi", "lots", "quantities must match"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := newBench(t)
			b.write("data.yaml", strings.Replace(valid, tt.old, tt.with, 1))
			b.scans(3)
			if n := len(b.store.List()); n > 0 {
				t.Errorf("made %d volumes", n)
			}
			if n := strings.Count(b.logs.String(), tt.want); n != 1 || !strings.Contains(b.logs.String(), "data.yaml") || strings.Contains(b.logs.String(), `\n`) {
				t.Errorf("%s is told %d times:\n%s", tt.want, n, &b.logs)
			}
			b.write("data.yaml", valid)
			b.scans(2)
			if len(b.store.List()) != 1 || !strings.Contains(b.logs.String(), "the problem is solved") {
				t.Errorf("when it is mended: %v; log:\n%s", b.store.List(), &b.logs)
			}
		})
	}
}

// That there is no space is told after another problem, too, and when it is over.
func TestNoSpaceAfterAnotherProblem(t *testing.T) {
	b := newBench(t)
	b.write("data.yaml", claimYAML("data", "storageClassName: nowhere", "1Mi"))
	b.scans(2)
	b.write("data.yaml", claimYAML("data", "", "4Ei"))
	b.scans(3)
	if n := strings.Count(b.logs.String(), "is free on the disk"); n != 1 {
		t.Errorf("told %d times:\n%s", n, &b.logs)
	}
	b.write("data.yaml", claimYAML("data", "", "1Mi"))
	b.scans(3)
	if n := strings.Count(b.logs.String(), "claim default/data: the problem is solved"); n != 1 {
		t.Errorf("that it is solved is told %d times:\n%s", n, &b.logs)
	}
}

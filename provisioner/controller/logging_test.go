package controller

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
	library "sigs.k8s.io/sig-storage-lib-external-provisioner/v8/controller"

	"github.com/podnas/podnas/provisioner/internal/fixture"
)

// The library tries again and again; the log has each reason once.
func TestEachReasonIsLoggedOnce(t *testing.T) {
	var out bytes.Buffer
	p := newProvisioner(t)
	p.Log = slog.New(slog.NewTextHandler(&out, nil))
	logging := &loggingProvisioner{Provisioner: p, permission: &permission{client: fake.NewClientset()}}
	options := library.ProvisionOptions{StorageClass: class(), PVName: "pvc-1", PVC: fixture.Claim("1Ei")}
	for range 3 {
		if _, _, err := logging.Provision(t.Context(), options); err == nil {
			t.Fatal("1Ei was provisioned")
		}
	}
	if lines := strings.Count(out.String(), "\n"); lines != 1 || !strings.Contains(out.String(), "level=WARN") || !strings.Contains(out.String(), "claim=ns/data") {
		t.Errorf("%d lines: %s", lines, &out)
	}
	out.Reset()
	// Another instance's volume is none of ours, and nothing to tell.
	if err := logging.Delete(t.Context(), &v1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "theirs"}}); err == nil {
		t.Error("deleted another's volume")
	}
	if out.Len() > 0 {
		t.Errorf("told: %s", &out)
	}
}

package checkup

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/podnas/podnas/internal/doctor"
	"github.com/podnas/podnas/internal/volume"
	"github.com/podnas/podnas/provisioner"
	"github.com/podnas/podnas/provisioner/controller"
)

// What needs an API server is in test/cluster.

type brokenEndpoint struct{}

func (brokenEndpoint) Address(context.Context) (provisioner.Address, error) {
	return provisioner.Address{}, errors.New("no Service")
}

func TestAddress(t *testing.T) {
	e, err := provisioner.ParseStaticEndpoint("192.0.2.10", 20490)
	mustDo(t, err)
	if r := address(t.Context(), e); r.Status != doctor.OK || !strings.Contains(r.Says, "192.0.2.10, port 20490") {
		t.Errorf("%+v", r)
	}
	if r := address(t.Context(), brokenEndpoint{}); r.Status != doctor.Failed || r.Says != "no Service" || r.Fix == "" {
		t.Errorf("%+v", r)
	}
}

func TestJudgeClock(t *testing.T) {
	for _, tt := range []struct {
		ahead, took time.Duration
		status      doctor.Status
		says        string
	}{
		{0, 0, doctor.OK, "agree"},
		{1400 * time.Millisecond, 10 * time.Millisecond, doctor.OK, "agree"}, // dates have whole seconds
		{-4 * time.Second, 8 * time.Second, doctor.OK, "agree"},              // a slow answer says no more
		{5 * time.Second, 10 * time.Millisecond, doctor.Warning, "5s ahead of"},
		{-5 * time.Second, 10 * time.Millisecond, doctor.Warning, "5s behind"},
		{-time.Hour, time.Second, doctor.Failed, "1h0m0s behind"},
		{30 * time.Second, time.Second, doctor.Failed, "30s ahead of"},
	} {
		if r := judgeClock(tt.ahead, tt.took); r.Status != tt.status || !strings.Contains(r.Says, tt.says) || (r.Fix == "") != (r.Status == doctor.OK) {
			t.Errorf("%s ahead, asked for %s: %+v, want %s with %q", tt.ahead, tt.took, r, tt.status, tt.says)
		}
	}
}

func TestClass(t *testing.T) {
	retain, yes := v1.PersistentVolumeReclaimRetain, true
	noSquash := func(o volume.Options) error {
		if o.RootSquash {
			return errors.New("squashing users takes the native engine")
		}
		return nil
	}
	for _, tt := range []struct {
		name   string
		class  storagev1.StorageClass
		status doctor.Status
		says   string
	}{
		{"plain", storagev1.StorageClass{}, doctor.OK, "volumes are deleted with their claims, claims can't be expanded"},
		{"retain", storagev1.StorageClass{ReclaimPolicy: &retain, AllowVolumeExpansion: &yes}, doctor.OK, "volumes are kept when their claims are deleted"},
		{"parameter", storagev1.StorageClass{Parameters: map[string]string{"rootSquish": "true"}}, doctor.Failed, "did you mean rootSquash?"},
		{"value", storagev1.StorageClass{Parameters: map[string]string{"mode": "rwx"}}, doctor.Failed, "mode"},
		{"engine", storagev1.StorageClass{Parameters: map[string]string{"rootSquash": "true"}}, doctor.Failed, "native engine"},
		{"version", storagev1.StorageClass{MountOptions: []string{"nfsvers=4.0"}}, doctor.Failed, "nfsvers=4.0"},
		{"soft", storagev1.StorageClass{MountOptions: []string{"noatime,soft"}}, doctor.Warning, "writes are lost"},
		{"lock", storagev1.StorageClass{MountOptions: []string{"lock"}}, doctor.Warning, "lock protocol"},
	} {
		results := (&Cluster{Provisioner: &provisioner.Provisioner{}, Check: noSquash}).class(&tt.class)
		if len(results) != 1 || results[0].Status != tt.status || !strings.Contains(results[0].Says, tt.says) || (results[0].Fix == "") != (tt.status == doctor.OK) {
			t.Errorf("%s: %+v, want %s with %q", tt.name, results, tt.status, tt.says)
		}
	}
}

func TestCompared(t *testing.T) {
	c := &Cluster{Reconciler: &controller.Reconciler{}}
	want(t, []doctor.Result{named("cluster", c.compared()[0])}, "cluster", doctor.Warning, "not compared", "log")
	if got := findings([]volume.Finding{{Volume: "v", Path: "p", Problem: "lost", Fix: "find it"}, {Path: "p", Problem: "odd"}}); len(got) != 2 ||
		got[0] != (doctor.Result{Check: "volume v", Volume: "v", Status: doctor.Failed, Says: "lost", Fix: "find it"}) || got[1].Check != "p" {
		t.Errorf("%+v", got)
	}
}

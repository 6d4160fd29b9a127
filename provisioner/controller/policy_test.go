package controller

import (
	"errors"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	k8stesting "k8s.io/client-go/testing"
	library "sigs.k8s.io/sig-storage-lib-external-provisioner/v8/controller"

	"github.com/podnas/podnas/provisioner/internal/fixture"
)

// A claim whose PersistentVolume the API server would refuse gets no volume, and is told
// why. What was allowed once is not asked again. What a real policy says is in
// test/cluster.
func TestPermission(t *testing.T) {
	client := fake.NewClientset()
	asked := 0
	answer := apierrors.NewForbidden(v1.Resource("persistentvolumes"), "", errors.New("the policy says no"))
	client.PrependReactor("create", "persistentvolumes", func(k8stesting.Action) (bool, runtime.Object, error) {
		asked++
		if answer != nil {
			return true, nil, answer
		}
		return true, nil, nil
	})
	p := newProvisioner(t)
	logging := &loggingProvisioner{Provisioner: p, permission: &permission{client: client, name: "example.com/nas"}}
	options := library.ProvisionOptions{StorageClass: class(), PVName: "pvc-1", PVC: fixture.Claim("1Mi")}
	_, _, err := logging.Provision(t.Context(), options)
	for _, want := range []string{"example.com/nas", "--provisioner", "the policy says no"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("refused: %v, want it to say %q", err, want)
		}
	}
	if got := p.Store.List(); len(got) != 0 {
		t.Errorf("it was refused, and made are %v", got)
	}
	answer = nil
	for range 2 {
		if _, _, err := logging.Provision(t.Context(), options); err != nil {
			t.Error(err)
		}
	}
	if asked != 2 {
		t.Errorf("asked %d times, want once refused and once allowed", asked)
	}
	// An API server that does not answer now must not be in the way: who saves the
	// volume asks it again and again.
	client.PrependReactor("create", "persistentvolumes", func(k8stesting.Action) (bool, runtime.Object, error) {
		return true, nil, errors.New("timeout")
	})
	if err := MayProvision(t.Context(), client, "example.com/nas"); err != nil {
		t.Error(err)
	}
	if _, err := MayMakeAny(t.Context(), client, "example.com/nas"); err == nil {
		t.Error("it is not known what may be made, and that is not said")
	}
}

package controller

import (
	"log/slog"
	"net/netip"
	"testing"

	storagev1 "k8s.io/api/storage/v1"

	"github.com/podnas/podnas/provisioner"
	"github.com/podnas/podnas/provisioner/internal/fixture"
)

func newProvisioner(t *testing.T) *provisioner.Provisioner {
	t.Helper()
	store, _ := fixture.Store(t)
	return &provisioner.Provisioner{
		Store:    store,
		Endpoint: provisioner.StaticEndpoint{IP: netip.MustParseAddr("10.96.0.9"), Port: 2049},
		Log:      slog.New(slog.DiscardHandler),
	}
}

func class() *storagev1.StorageClass { return fixture.Class(provisioner.DefaultName) }

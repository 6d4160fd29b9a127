package controller

import (
	"github.com/prometheus/client_golang/prometheus"
	library "sigs.k8s.io/sig-storage-lib-external-provisioner/v8/controller/metrics"
)

// Metrics returns what the library counts: claims provisioned, and volumes deleted.
func Metrics() []prometheus.Collector {
	m := library.M // is global in the process
	return []prometheus.Collector{
		m.PersistentVolumeClaimProvisionTotal,
		m.PersistentVolumeClaimProvisionFailedTotal,
		m.PersistentVolumeClaimProvisionDurationSeconds,
		m.PersistentVolumeDeleteTotal,
		m.PersistentVolumeDeleteFailedTotal,
		m.PersistentVolumeDeleteDurationSeconds,
	}
}

//go:build cluster

package cluster_test

import (
	"context"
	"log/slog"
	"net/netip"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
	"sigs.k8s.io/sig-storage-lib-external-provisioner/v8/controller"
)

// benchClaims is how many claims come at once.
const benchClaims = 1000

// BenchmarkBind binds many claims at once: by podnas, with the limits on its calls
// and its workers as they are by default, and by a provisioner that does nothing
// and has no limit, which shows what this API server can do.
//
//	go test -tags cluster -run '^$' -bench Bind -benchtime 1x ./test/cluster
func BenchmarkBind(b *testing.B) {
	b.Run("podnas", func(b *testing.B) {
		bindAll(b, func(n *tenant) { newPodnas(b, n.provisioner, local).start() })
	})
	b.Run("nothing", func(b *testing.B) {
		bindAll(b, func(n *tenant) { startNothing(b, n.provisioner) })
	})
}

func bindAll(b *testing.B, start func(*tenant)) {
	for range b.N {
		n := newTenant(b)
		start(n)
		class := n.class("", nil)
		begin := time.Now()
		n.burst(benchClaims, class)
		made := time.Since(begin)
		n.allBound(10*time.Minute, benchClaims)
		all := time.Since(begin)
		b.ReportMetric(made.Seconds(), "s/made")
		b.ReportMetric(all.Seconds(), "s/bound")
		b.ReportMetric(benchClaims/all.Seconds(), "claims/s")
		b.StopTimer()
		n.deleteClaims()
		eventually(b, 5*time.Minute, "the volumes are gone", func() bool { return len(n.volumes()) == 0 })
		b.StartTimer()
	}
}

// nothing is a provisioner that makes PersistentVolumes and no volumes.
type nothing struct{ address netip.Addr }

func (p nothing) Provision(_ context.Context, options controller.ProvisionOptions) (*corev1.PersistentVolume, controller.ProvisioningState, error) {
	return &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: options.PVName},
		Spec: corev1.PersistentVolumeSpec{
			PersistentVolumeReclaimPolicy: *options.StorageClass.ReclaimPolicy,
			AccessModes:                   options.PVC.Spec.AccessModes,
			Capacity:                      options.PVC.Spec.Resources.Requests,
			PersistentVolumeSource: corev1.PersistentVolumeSource{
				NFS: &corev1.NFSVolumeSource{Server: p.address.String(), Path: "/" + options.PVName},
			},
		},
	}, controller.ProvisioningFinished, nil
}

func (nothing) Delete(context.Context, *corev1.PersistentVolume) error { return nil }

// startNothing runs it until the benchmark ends.
func startNothing(b *testing.B, name string) {
	b.Helper()
	// It logs, in this process, in the middle of what the benchmark prints.
	klog.SetSlogLogger(slog.New(slog.DiscardHandler))
	config, err := clientcmd.BuildConfigFromFlags("", cluster.kubeconfig)
	if err != nil {
		b.Fatal(err)
	}
	config.QPS = -1
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	b.Cleanup(cancel)
	c := controller.NewProvisionController(client, name, nothing{netip.MustParseAddr("192.0.2.1")},
		controller.LeaderElection(false), controller.Threadiness(50), controller.MetricsPort(0))
	go c.Run(ctx)
}

//go:build cluster

package cluster_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// burstSize is how many claims come at once.
const burstSize = 200

func TestBurst(t *testing.T) {
	n := newTenant(t)
	p := newPodnas(t, n.provisioner, local)
	p.start()
	class := n.class("", nil)
	begin := time.Now()
	n.burst(burstSize, class)
	made := time.Since(begin)
	n.allBound(3*time.Minute, burstSize)
	t.Logf("%d claims made in %s, all bound after %s", burstSize, made.Round(time.Millisecond), time.Since(begin).Round(time.Millisecond))
	checkOneOfEach(t, n, p)

	begin = time.Now()
	n.deleteClaims()
	checkNothingLeft(t, n, p)
	t.Logf("nothing left %s after the first was deleted", time.Since(begin).Round(time.Millisecond))
}

// podnas dies in the middle of whatever it does, again and again.
func TestBurstWithCrashes(t *testing.T) {
	n := newTenant(t)
	p := newPodnas(t, n.provisioner, local)
	p.start()
	n.burst(burstSize, n.class("", nil))
	for _, made := range []int{10, 60, 120} {
		eventually(t, time.Minute, fmt.Sprintf("%d volumes are made", made), func() bool { return len(p.volumes()) >= made })
		p.kill()
		t.Logf("killed with %d directories, %d of %d claims bound", len(p.volumes()), n.countBound(), burstSize)
		p.start()
	}
	n.allBound(4*time.Minute, burstSize)
	checkOneOfEach(t, n, p)

	n.deleteClaims()
	for _, left := range []int{190, 100} {
		eventually(t, time.Minute, fmt.Sprintf("%d volumes are left", left), func() bool { return len(p.volumes()) <= left })
		p.kill()
		t.Logf("killed with %d directories left", len(p.volumes()))
		p.start()
	}
	checkNothingLeft(t, n, p)
}

// The API server dies in the middle of a burst, and requests with it whose
// outcome nobody learns.
func TestBurstWithAPIServerRestart(t *testing.T) {
	n := newTenant(t)
	p := newPodnas(t, n.provisioner, local)
	p.start()
	n.burst(burstSize, n.class("", nil))
	eventually(t, time.Minute, "10 volumes are made", func() bool { return len(p.volumes()) >= 10 })
	if err := cluster.plane.RestartAPIServer(t.Context(), 2*time.Second); err != nil {
		t.Fatal(err)
	}
	t.Logf("restarted with %d directories, %d of %d claims bound", len(p.volumes()), n.countBound(), burstSize)
	n.allBound(4*time.Minute, burstSize)
	checkOneOfEach(t, n, p)
}

// checkOneOfEach checks that every claim is bound to its own volume, and that
// there is no other volume, directory or record.
func checkOneOfEach(t *testing.T, n *tenant, p *podnas) {
	t.Helper()
	claims, ok := n.claims()
	if !ok {
		t.Fatal("cannot list claims")
	}
	byName := map[string]corev1.PersistentVolume{}
	var want []string
	for _, v := range n.volumes() {
		byName[v.Name] = v
		want = append(want, v.Name)
	}
	for _, c := range claims {
		v, found := byName[c.Spec.VolumeName]
		if !found || v.Spec.ClaimRef == nil || v.Spec.ClaimRef.UID != c.UID || v.Status.Phase != corev1.VolumeBound {
			t.Errorf("claim %s: its volume is %q, which is %s for %+v", c.Name, c.Spec.VolumeName, v.Status.Phase, v.Spec.ClaimRef)
		}
	}
	if len(claims) != burstSize || len(want) != burstSize {
		t.Errorf("%d claims and %d volumes, want %d of each", len(claims), len(want), burstSize)
	}
	slices.Sort(want)
	if got := p.volumes(); !slices.Equal(got, want) {
		t.Errorf("%d directories, want the %d volumes'", len(got), len(want))
	}
	if got := p.state("volumes"); len(got) != len(want) {
		t.Errorf("%d records, want %d", len(got), len(want))
	}
	if got := p.state("trash"); len(got) != 0 {
		t.Errorf("the trash has %q, want nothing", got)
	}
}

// checkNothingLeft waits until every volume is gone from the cluster and from
// the disk.
func checkNothingLeft(t *testing.T, n *tenant, p *podnas) {
	t.Helper()
	eventually(t, 3*time.Minute, "all PersistentVolumes are gone", func() bool { return len(n.volumes()) == 0 })
	if got := p.volumes(); len(got) != 0 {
		t.Errorf("the disk still has %d directories, such as %s", len(got), got[0])
	}
	if got := p.state("volumes"); len(got) != 0 {
		t.Errorf("the disk still has %d records, such as %s", len(got), got[0])
	}
	eventually(t, time.Minute, "the trash is empty", func() bool { return len(p.state("trash")) == 0 })
}

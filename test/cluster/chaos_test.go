//go:build cluster

package cluster_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// chaosTime is how long claims come and go while podnas is killed.
const chaosTime = 20 * time.Second

// podnas is killed at random moments while claims are made, copied, expanded and
// deleted. What is left then is right: each claim has its volume and its size, no
// volume is there twice, and one that nobody has is told and not removed.
func TestChaos(t *testing.T) {
	n := newTenant(t)
	p := newPodnas(t, n.provisioner, local)
	p.start()
	n.class("", expandable)
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)

	acted := make(chan int)
	go func() { acted <- n.act(rand.New(rand.NewPCG(seed, 1))) }()
	killer := rand.New(rand.NewPCG(seed, 2))
	kills := 0
	for end := time.Now().Add(chaosTime); time.Now().Before(end); kills++ {
		time.Sleep(time.Duration(killer.IntN(600)) * time.Millisecond)
		p.kill()
		p.start()
	}
	t.Logf("%d operations, %d kills", <-acted, kills)

	// A claim for a copy of a deleted claim waits for ever.
	n.deleteHopeless()
	eventually(t, 2*time.Minute, "every claim is bound and has its size", func() bool {
		claims, ok := n.claims()
		return ok && !slices.ContainsFunc(claims, func(c corev1.PersistentVolumeClaim) bool {
			return c.Status.Phase != corev1.ClaimBound || wants(&c) != c.Status.Capacity.Storage().Value()
		})
	})
	claims, _ := n.claims()
	eventually(t, 2*time.Minute, "there are as many PersistentVolumes as claims", func() bool { return len(n.volumes()) == len(claims) })
	eventually(t, time.Minute, "the trash is empty", func() bool { return len(p.state("trash")) == 0 })

	sizes := map[string]int64{}
	for _, c := range claims {
		if _, twice := sizes[c.Spec.VolumeName]; twice {
			t.Errorf("volume %s has two claims", c.Spec.VolumeName)
		}
		sizes[c.Spec.VolumeName] = wants(&c)
	}
	paths, projects := map[string]string{}, map[uint32]string{}
	for _, v := range n.volumes() {
		r := p.record(v.Name)
		if want := sizes[v.Name]; r.Size != want || v.Spec.Capacity.Storage().Value() != want {
			t.Errorf("volume %s has %d bytes on the disk and %s in the cluster, want %d", v.Name, r.Size, v.Spec.Capacity.Storage(), want)
		}
		if other := paths[v.Spec.NFS.Path]; other != "" || v.Spec.NFS.Path != "/"+r.Path {
			t.Errorf("volume %s is at %s, on the disk at %s; there is %q too", v.Name, v.Spec.NFS.Path, r.Path, other)
		}
		if other := projects[r.Project]; other != "" && r.Project != 0 {
			t.Errorf("volumes %s and %s share project %d", v.Name, other, r.Project)
		}
		paths[v.Spec.NFS.Path], projects[r.Project] = v.Name, v.Name
	}
	p.checkOrphans(sizes)
}

// wants is how many bytes a claim asks for.
func wants(c *corev1.PersistentVolumeClaim) int64 { return c.Spec.Resources.Requests.Storage().Value() }

// act makes, copies, expands and deletes claims for chaosTime, and returns how
// often. That the API server refuses some of it is part of the game.
func (n *tenant) act(random *rand.Rand) int {
	api := cluster.client.CoreV1().PersistentVolumeClaims(n.name)
	done := 0
	for end := time.Now().Add(chaosTime); time.Now().Before(end); done++ {
		time.Sleep(time.Duration(random.IntN(60)) * time.Millisecond)
		claims, ok := n.claims()
		if !ok {
			continue
		}
		name := fmt.Sprintf("claim-%d", done)
		if len(claims) < 5 {
			_ = n.tryClaim(name, n.name, "1Mi", nil)
			continue
		}
		chosen := claims[random.IntN(len(claims))]
		switch random.IntN(5) {
		case 0, 1:
			_ = n.tryClaim(name, n.name, "1Mi", nil)
		case 2:
			_ = n.tryClaim(name, n.name, chosen.Spec.Resources.Requests.Storage().String(), copyOf(chosen.Name))
		case 3:
			_ = n.tryGrow(chosen.Name, fmt.Sprint(wants(&chosen)+1<<20))
		case 4:
			_ = api.Delete(n.t.Context(), chosen.Name, metav1.DeleteOptions{})
		}
	}
	return done
}

// deleteHopeless deletes the claims that can't be bound: copies of what is gone, or is
// about to go, or has grown past them.
func (n *tenant) deleteHopeless() {
	n.t.Helper()
	for again := true; again; {
		again = false
		claims, ok := n.claims()
		if !ok {
			n.t.Fatal("the claims can't be listed")
		}
		byName := map[string]*corev1.PersistentVolumeClaim{}
		for i := range claims {
			byName[claims[i].Name] = &claims[i]
		}
		for _, c := range claims {
			if c.Status.Phase == corev1.ClaimBound || c.Spec.DataSource == nil || c.DeletionTimestamp != nil {
				continue
			}
			source := byName[c.Spec.DataSource.Name]
			if source == nil || source.DeletionTimestamp != nil || wants(source) > wants(&c) {
				n.deleteClaim(c.Name)
				again = true
			}
		}
	}
}

// checkOrphans checks that what is on the disk beyond the volumes of the cluster is
// told, once it is no longer young.
func (p *podnas) checkOrphans(known map[string]int64) {
	p.t.Helper()
	p.stop()
	var orphans []string
	for _, file := range p.state("volumes") {
		name := strings.TrimSuffix(file, ".json")
		if _, ok := known[name]; ok {
			continue
		}
		orphans = append(orphans, name)
		old := p.record(name).Created.Format(time.RFC3339)
		p.edit(p.root+"/.podnas/volumes/"+file, old, time.Now().UTC().Add(-time.Hour).Format(time.RFC3339))
	}
	p.t.Logf("%d volumes, %d nobody has", len(known)+len(orphans), len(orphans))
	if got := p.volumes(); len(got) != len(known)+len(orphans) {
		p.t.Errorf("%d directories for %d records", len(got), len(known)+len(orphans))
	}
	p.start()
	for _, name := range orphans {
		eventually(p.t, 10*time.Second, "volume "+name+" is told", func() bool {
			return strings.Contains(p.logged(), "volume="+name+" path="+name+" fix=")
		})
	}
}

//go:build cluster

package cluster_test

import (
	"bufio"
	"fmt"
	"os"
	"testing"
	"time"
)

// idleFor is longer than podnas takes to find that it has nothing to do.
const idleFor = 75 * time.Second

// BenchmarkMemory tells the resident set of a podnas with 200 volumes, when it has just
// made them and when it is idle, and the same after a restart.
//
//	go test -tags cluster -run '^$' -bench Memory -benchtime 1x ./test/cluster
func BenchmarkMemory(b *testing.B) {
	for range b.N {
		n := newTenant(b)
		p := newPodnas(b, n.provisioner, local)
		p.start()
		n.burst(burstSize, n.class("", nil))
		n.allBound(5*time.Minute, burstSize)
		p.reportMemory(b, "made")
		time.Sleep(idleFor)
		p.reportMemory(b, "idle")
		p.stop()
		p.start()
		p.reportMemory(b, "restarted")
		time.Sleep(idleFor)
		p.reportMemory(b, "restarted-idle")
		b.StopTimer()
		n.deleteClaims()
		eventually(b, 5*time.Minute, "the volumes are gone", func() bool { return len(n.volumes()) == 0 })
		b.StartTimer()
	}
}

// reportMemory reports the resident set of the process, and what of it are no pages of
// files.
func (p *podnas) reportMemory(b *testing.B, when string) {
	b.Helper()
	f, err := os.Open(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
	if err != nil {
		b.Fatal(err)
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		for field, unit := range map[string]string{"VmRSS": "MiB/", "RssAnon": "MiB-anon/"} {
			var kib float64
			if n, _ := fmt.Sscanf(lines.Text(), field+": %f kB", &kib); n == 1 {
				b.ReportMetric(kib/1024, unit+when)
			}
		}
	}
}

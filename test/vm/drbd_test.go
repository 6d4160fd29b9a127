//go:build vm

package vm_test

import (
	"strconv"
	"strings"
	"testing"
	"time"
)

// drbdDisk is a disk that DRBD 8.4, which Linux has, replicates between the nodes. It has no quorum: DRBD 9 has.
type drbdDisk struct{}

// prepare makes the node's half, which is empty: what the other node has is copied to it.
func (drbdDisk) prepare(v *movableNode) {
	v.t.Helper()
	v.mustSh(withTools + `
		umount /xfs
		dd if=/dev/zero of=/dev/ubda bs=1M count=1 2>/dev/null
		mkdir -p /etc/drbd.d /var/lib/drbd /var/lock /lib/drbd
		cp -r $DISKS/lib/drbd/. $DISKS/usr/lib/drbd/. /lib/drbd/ 2>/dev/null || true
		cat >/etc/drbd.conf <<-END
			global { usage-count no; }
			resource podnas {
				net { protocol C; ping-int 1; ping-timeout 20; }
				disk { c-plan-ahead 0; resync-rate 200M; c-min-rate 0; }
				device /dev/drbd0; disk /dev/ubda; meta-disk internal;
				on guest1 { address 10.9.1.2:7789; }
				on guest2 { address 10.9.2.2:7789; }
			}
		END
		modprobe drbd
		drbdadm create-md --force podnas
		drbdadm up podnas`)
}

// attach makes the node the primary, when it has all of the disk, and its peer is secondary or gone.
func (drbdDisk) attach(v *movableNode) {
	v.t.Helper()
	v.mustSh(withTools + `
		for try in $(seq 600); do
			drbdadm primary podnas 2>/dev/null && break
			sleep 0.1
		done
		grep -q 'ro:Primary' /proc/drbd
		ln -sfn /dev/drbd0 /run/disk`)
}

func (drbdDisk) detach(v *movableNode) {
	v.t.Helper()
	v.mustSh(withTools + "drbdadm secondary podnas")
}

// drbd is the line of the kernel about the disk.
func (v *movableNode) drbd() string {
	v.t.Helper()
	return strings.TrimSpace(v.mustSh("grep ' 0: ' /proc/drbd"))
}

// TestDRBD moves podnas between two nodes that replicate their disk, as TestSAN does with one that both reach, and shows
// what DRBD refuses, and what it doesn't without a quorum.
func TestDRBD(t *testing.T) {
	nodes := [2]*movableNode{newMovableNode(t, nodeA, drbdDisk{}, "-x", "400M"), newMovableNode(t, nodeB, drbdDisk{}, "-x", "400M")}
	a, b := nodes[0], nodes[1]
	client, other := newGuest(t, clientGuest), newGuest(t, storageGuest)
	for _, g := range []*guest{a.guest, b.guest, client, other} {
		if err := g.boot(); err != nil {
			t.Fatal(err)
		}
	}
	a.prepare()
	b.prepare()
	connected := func(v *movableNode) func() bool {
		return func() bool { return strings.Contains(v.drbd(), "cs:Connected") }
	}
	eventually(t, "the halves are connected", connected(a))
	a.mustSh(withTools + "drbdadm new-current-uuid --clear-bitmap podnas") // both are empty
	halfCopied(t, b)
	load := startMoving(t, a, client, other)
	step(t, "SecondPrimaryRefused", func(t *testing.T) {
		if out, err := b.sh(withTools + "drbdadm primary podnas"); err == nil || !strings.Contains(err.Error(), "Multiple primaries not allowed") {
			t.Errorf("a second primary: %v, %q", err, out)
		}
	})
	step(t, "Moved", func(t *testing.T) { moved(t, load, a, b) })
	halfCopied(t, a)
	step(t, "Killed", func(t *testing.T) { killed(t, load, b, a, 0) })
	halfCopied(t, b)
	step(t, "Partition", func(t *testing.T) { partition(t, load, a, b) })
}

// halfCopied waits until the half of a node that was empty is the same as the other.
func halfCopied(t *testing.T, v *movableNode) {
	t.Helper()
	began := time.Now()
	for !strings.Contains(v.drbd(), "ds:UpToDate/UpToDate") {
		if time.Since(began) > 6*time.Minute {
			t.Fatalf("an empty half is not copied: %s", v.drbd())
		}
		time.Sleep(time.Second)
	}
	t.Logf("an empty half was copied in %.0f s", time.Since(began).Seconds())
}

// partition cuts the nodes' halves off from each other. DRBD without a quorum lets the second be primary then, while podnas on the
// first goes on: what is written from then on is in one half alone, and DRBD sees that when they meet again.
func partition(t *testing.T, load *moveLoad, a, b *movableNode) {
	a.mustSh("ip route add blackhole $1", b.addr())
	cut := time.Now()
	eventually(t, "both halves see that they are alone", func() bool {
		return strings.Contains(a.drbd(), "cs:WFConnection") && strings.Contains(b.drbd(), "cs:WFConnection")
	})
	alone := time.Now()
	load.written["4.2"].after(t, "podnas's clients go on", alone)
	t.Logf("alone %.1f s after the cut; the longest pause of version 4.2 was %v", alone.Sub(cut).Seconds(), load.written["4.2"].pause(cut))
	b.disk.attach(b)
	b.mountDisk()
	acked := max(load.written["3"].count(), load.written["4.2"].count())
	size, err := strconv.Atoi(strings.TrimSpace(b.mustSh("stat -c %s $1/root/*/log | sort -n | tail -n 1", diskAt)))
	if err != nil || size >= acked*movedRecordSize {
		t.Errorf("the other half has %d bytes of %d acknowledged records, %v; it can't have all", size, acked, err)
	}
	t.Logf("BOTH are primary: %q and %q. The other half lacks %d acknowledged records", a.drbd(), b.drbd(), acked-size/movedRecordSize)
	if !a.ready() {
		t.Error("podnas is not ready, whose disk is its own as far as DRBD without a quorum tells")
	}
	b.mustSh("umount $1", diskAt)
	b.disk.detach(b)
	a.mustSh("ip route del blackhole $1", b.addr())
	eventually(t, "DRBD refuses to join the halves", func() bool {
		return strings.Contains(a.drbd()+b.drbd(), "cs:StandAlone")
	})
	t.Logf("when they meet again: %q and %q", a.drbd(), b.drbd())
	load.check(t, time.Now()) // by podnas, which has not moved
}

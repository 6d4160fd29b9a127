//go:build vm

package vm_test

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"
)

const sanIQN = "iqn.2026-01.io.podnas:san"

// san is the storage machine.
type san struct{ *guest }

// export makes the disk, a file, and lets any initiator in.
func (s *san) export() {
	s.t.Helper()
	here, err := os.Getwd() // the guest has this machine's files
	if err != nil {
		s.t.Fatal(err)
	}
	s.mustSh(`bash "$1" "$2" "$3" 768`, filepath.Join(here, "san.sh"), sanIQN, s.addr())
}

// start and stop are those of the target: it ends all sessions, and takes none.
func (s *san) start() { s.enable("1") }
func (s *san) stop()  { s.enable("0") }

func (s *san) enable(to string) {
	s.t.Helper()
	s.mustSh(`echo $2 >/sys/kernel/config/target/iscsi/$1/tpgt_1/enable`, sanIQN, to)
}

// iscsiDisk is the disk that the storage machine exports.
type iscsiDisk struct{}

func (iscsiDisk) prepare(v *movableNode) {
	v.t.Helper()
	v.mustSh(withTools + `
		mkdir -p /etc/iscsi /run/lock/iscsi /var/lib/iscsi/ifaces
		echo InitiatorName=iqn.2026-01.io.podnas:$(cat /proc/sys/kernel/hostname) >/etc/iscsi/initiatorname.iscsi
		echo >/etc/iscsi/iscsid.conf
		modprobe iscsi_tcp
		modprobe sd_mod
		iscsid`)
}

// attach logs into the target.
func (iscsiDisk) attach(v *movableNode) {
	v.t.Helper()
	v.mustSh(withTools+`
		iscsiadm -m discovery -t st -p $2
		iscsiadm -m node -T $1 -p $2 -l
		for try in $(seq 100); do
			disk=$(ls /sys/class/iscsi_session/session*/device/target*/*/block 2>/dev/null | tail -n 1)
			[ -z "$disk" ] || [ ! -b /dev/$disk ] || break
			sleep 0.05
		done
		ln -sfn /dev/$disk /run/disk`, sanIQN, "10.9.0.2")
}

func (iscsiDisk) detach(v *movableNode) {
	v.t.Helper()
	v.mustSh(withTools+"iscsiadm -m node -T $1 -u", sanIQN)
}

// TestSAN moves podnas between two nodes with a disk that a SAN exports to both by iSCSI, while a client in a guest of its
// own writes, syncs and locks: when it is told to move, when its node is killed, and when the SAN is away under it.
// The times that it logs are those of docs/internals/failovers.md.
func TestSAN(t *testing.T) {
	storage := &san{newGuest(t, storageGuest)}
	storage.args = []string{"-x", "1G"}
	a, b := newMovableNode(t, nodeA, iscsiDisk{}), newMovableNode(t, nodeB, iscsiDisk{})
	client := newGuest(t, clientGuest)
	for _, g := range []*guest{storage.guest, a.guest, b.guest, client} {
		if err := g.boot(); err != nil {
			t.Fatal(err)
		}
	}
	storage.export()
	a.prepare()
	b.prepare()
	load := startMoving(t, a, client, storage.guest)
	step(t, "Moved", func(t *testing.T) { moved(t, load, a, b) })
	step(t, "Killed", func(t *testing.T) { killed(t, load, b, a, 0) })
	step(t, "KilledFor45s", func(t *testing.T) { killed(t, load, a, b, 45*time.Second) })
	step(t, "TargetAwayFor15s", func(t *testing.T) { targetAway(t, load, storage, b, 15*time.Second) })
	step(t, "TargetAwayFor45s", func(t *testing.T) { targetAway(t, load, storage, b, 45*time.Second) })
	step(t, "TargetAwayForTooLong", func(t *testing.T) { targetGone(t, load, storage, b) })
}

// targetAway stops the target for a time, and wants no answer meanwhile but in the heartbeat's first 5 seconds. The client's
// connections live through that, unless it is longer than 30 s.
func targetAway(t *testing.T, load *moveLoad, storage *san, v *movableNode, away time.Duration) {
	connected := v.connections(load.client)
	stopped := time.Now()
	storage.stop()
	time.Sleep(time.Until(stopped.Add(7 * time.Second)))
	before := load.answered.count()
	if v.ready() {
		t.Errorf("podnas is ready 7 s after its disk has gone")
	}
	t.Logf("the last answer came %.1f s after the target's end", load.answered.last().Sub(stopped).Seconds())
	time.Sleep(time.Until(stopped.Add(away)))
	if after := load.answered.count(); after != before {
		t.Errorf("%d answers while the disk is away", after-before)
	}
	storage.start()
	back := time.Now()
	load.tell(t, back, map[string]time.Time{"the target's end": stopped, "its return": back})
	v.waitReady()
	t.Logf("ready %.1f s after the target's return", time.Since(back).Seconds())
	kept := slices.DeleteFunc(v.connections(load.client), func(c string) bool { return !slices.Contains(connected, c) })
	if closes := away > 30*time.Second; closes && len(kept) > 0 || !closes && len(kept) != len(connected) {
		t.Errorf("of the client's connections %q, %q are left", connected, kept)
	}
	load.check(t, back)
}

// targetGone has the node give up the disk: the file system shuts down, and only a new mount helps.
func targetGone(t *testing.T, load *moveLoad, storage *san, v *movableNode) {
	v.mustSh(withTools + `for f in /sys/class/iscsi_session/session*/recovery_tmo; do echo 10 >$f; done`)
	stopped := time.Now()
	storage.stop()
	time.Sleep(25 * time.Second)
	before := load.answered.count()
	storage.start()
	time.Sleep(10 * time.Second)
	if after := load.answered.count(); after != before || v.ready() {
		t.Errorf("%d answers from a file system that has shut down; ready: %v", after-before, v.ready())
	}
	t.Logf("the finding: %s", v.mustSh(`$PODNAS doctor --root $1/root 2>&1 | grep -a disk || true`, diskAt))
	restarted := time.Now()
	v.mustSh(`kill -KILL $(cat /run/podnas.pid); while [ -e /proc/$(cat /run/podnas.pid) ]; do sleep 0.05; done`)
	v.mustSh(`umount $1`, diskAt)
	v.mountDisk()
	v.serve()
	v.waitReady()
	load.tell(t, restarted, map[string]time.Time{"the target's end": stopped, "the new pod's begin": restarted})
	load.check(t, restarted)
}

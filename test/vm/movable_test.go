//go:build vm

package vm_test

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/podnas/podnas/nfs/mount3"
	"github.com/podnas/podnas/nfs/rpc"
)

// What is in the network of TestSAN, TestHA and TestDRBD: a storage machine, two nodes, a client. The storage machine is also the
// second client, which must not get what the first one has locked.
const (
	storageGuest = iota
	nodeA
	nodeB
	clientGuest
)

const (
	// movableIP is the address that volumes are mounted from, as that of a Service: it leads to the node that has podnas.
	movableIP   = "10.96.0.1"
	diskAt      = "/run/movable" // where a node mounts the disk
	movablePort = ":20490"
	movableHTTP = ":20491"
	withTools   = "PATH=$PATH:$DISKS/usr/sbin:$DISKS/sbin:$DISKS/usr/bin:$DISKS/bin LD_LIBRARY_PATH=$DISKS/usr/lib/x86_64-linux-gnu:$DISKS/lib/x86_64-linux-gnu\nexport PATH LD_LIBRARY_PATH\n"
)

// sh runs a script in the guest.
func (g *guest) sh(script string, args ...string) (string, error) {
	return g.run("", "/bin/sh", append([]string{"-ec", script, "sh"}, args...)...)
}

func (g *guest) mustSh(script string, args ...string) string {
	g.t.Helper()
	out, err := g.sh(script, args...)
	if err != nil {
		g.t.Fatal(err)
	}
	return out
}

// movableNode is a node that can have the disk, and podnas on it.
type movableNode struct {
	*guest
	disk   movableDisk
	shared string // a folder that outlives it, with podnas's log
	claims string // the folder of claims
	flags  string // of podnas: which disk it has
}

// movableDisk is an engine whose disk one of two nodes has.
type movableDisk interface {
	// prepare does what a booted node needs once.
	prepare(v *movableNode)
	// attach gives the node the disk, as /run/disk.
	attach(v *movableNode)
	// detach takes it from the node, where it isn't mounted.
	detach(v *movableNode)
}

func newMovableNode(t *testing.T, n int, disk movableDisk, args ...string) *movableNode {
	t.Helper()
	v := &movableNode{newGuest(t, n), disk, t.TempDir(), diskAt + "/claims", "--root " + diskAt + "/root"}
	v.args = []string{"-s", v.shared, "-e", "DISKS=" + os.Getenv("DISKS"), "-e", "PODNAS=" + os.Getenv("PODNAS")}
	v.args = append(v.args, args...)
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("podnas on %s said:\n%s", v.name, v.said())
		}
	})
	return v
}

// said is the log of podnas on this node.
func (v *movableNode) said() string {
	b, _ := os.ReadFile(filepath.Join(v.shared, "podnas.log")) // there may be none
	return string(b)
}

// prepare makes a booted node one that can have podnas.
func (v *movableNode) prepare() {
	v.t.Helper()
	v.mustSh("ip addr add $1/32 dev lo; mkdir -p $2", movableIP, diskAt)
	v.disk.prepare(v)
}

func (v *movableNode) mountDisk() {
	v.t.Helper()
	v.mustSh(`mount -t xfs -o prjquota $(readlink /run/disk) $1; mkdir -p $1/root $1/claims`, diskAt)
}

// unmount gives the disk back, as kubelet does when the pod is gone.
func (v *movableNode) unmount() {
	v.t.Helper()
	v.mustSh("umount $1", diskAt)
	v.disk.detach(v)
}

// serve starts podnas.
func (v *movableNode) serve() {
	v.t.Helper()
	v.mustSh(`setsid $PODNAS serve --standalone $7 --claims $1 --claim-grace 0s --listen $2 --http $3 \
			--server-address $4 --handles $5 </dev/null >>$6/podnas.log 2>&1 &
		echo $! >/run/podnas.pid`, v.claims, movablePort, movableHTTP, movableIP, cmp.Or(os.Getenv("FINDER"), "auto"), v.shared, v.flags)
}

// end ends podnas as kubelet does.
func (v *movableNode) end() {
	v.t.Helper()
	v.mustSh(`pid=$(cat /run/podnas.pid); kill -TERM $pid; while [ -e /proc/$pid ]; do sleep 0.05; done`)
}

func (v *movableNode) ready() bool { return readyAt(v.addr() + movableHTTP) }

// waitReady waits until podnas says that it is ready.
func (v *movableNode) waitReady() {
	v.t.Helper()
	eventually(v.t, "podnas is ready on "+v.name, v.ready)
}

// connections lists those that a client has to podnas here.
func (v *movableNode) connections(client *guest) []string {
	v.t.Helper()
	var found []string
	own, theirs := fmt.Sprintf(":%04X", 20490), fmt.Sprintf("%02X%02X%02X%02X:", 2, client.n, 9, 10) // as the kernel prints 10.9.N.2
	for line := range strings.Lines(v.mustSh("cat /proc/net/tcp /proc/net/tcp6")) {
		fields := strings.Fields(line)
		if len(fields) > 9 && strings.HasSuffix(fields[1], own) && strings.Contains(fields[2], theirs) && fields[3] == "01" { // established
			found = append(found, fields[2]+" "+fields[9]) // with the socket's number, as clients use their port again
		}
	}
	if len(found) == 0 {
		v.t.Errorf("%s has no connection to podnas on %s", client.name, v.name)
	}
	return found
}

// leads lets the service's address lead to a node; with nil to none, as while the node that it leads to is dead.
func leads(t *testing.T, v *movableNode) {
	t.Helper()
	args := []string{"route", "replace", "blackhole", movableIP}
	if v != nil {
		// A blackhole does not replace a route, but is beside it.
		_ = exec.Command("ip", "route", "del", "blackhole", movableIP).Run() // there may be none
		args = []string{"route", "replace", movableIP, "via", v.addr()}
	} else {
		_ = exec.Command("ip", "route", "del", movableIP).Run()
	}
	if out, err := exec.Command("ip", args...).CombinedOutput(); err != nil {
		t.Fatalf("ip %q: %v\n%s", args, err, out)
	}
}

// claimOn makes a claim on the disk of a node where podnas runs, and returns its volume.
func (v *movableNode) claimOn(name, version string) persistentVolume {
	v.t.Helper()
	text := fmt.Sprintf(class, name, "Delete") + "mountOptions: [nfsvers=" + version + "]\n---\n" + fmt.Sprintf(claim, name, name, "64Mi")
	if _, err := v.run(text, "/bin/sh", "-ec", "cat >$0/$1.yaml", v.claims, name); err != nil {
		v.t.Fatal(err)
	}
	var pv persistentVolume
	eventually(v.t, "a volume for claim "+name, func() bool {
		files, err := v.sh(`grep -lx "    name: $2" $1/provisioned/*.yaml`, v.claims, name)
		if err != nil {
			return false
		}
		found, err := v.sh("cat $1", strings.TrimSpace(files))
		return err == nil && yaml.Unmarshal([]byte(found), &pv) == nil && pv.Spec.ClaimRef.Name == name
	})
	return pv
}

// mountAt mounts a volume in a folder of the guest's own.
func (g *guest) mountAt(pv persistentVolume, name string) {
	g.t.Helper()
	at := filepath.Join(guestMnt, name)
	pv.Spec.NFS.Server = movableIP
	command := mountCommand(g.t.Context(), pv, at).Args
	if _, err := g.run("", "mkdir", "-p", at); err != nil {
		g.t.Fatal(err)
	}
	if _, err := g.run("", command[0], command[1:]...); err != nil {
		g.t.Fatal(err)
	}
}

// answers asks for the volume's root on a connection of its own, and returns nil when there is an answer.
func answers(ctx context.Context, pv persistentVolume) error {
	client, err := rpc.Dial(ctx, movableIP+movablePort)
	if err != nil {
		return err
	}
	defer client.Close()
	_, err = client.Call(ctx, mount3.Program, mount3.Version, mount3.ProcMnt, &mount3.PathArgs{Path: []byte(pv.Spec.NFS.Path)})
	return err
}

// kill9 kills the node's kernel while the service leads to it.
func (v *movableNode) kill9() time.Time {
	v.t.Helper()
	leads(v.t, nil)
	died := time.Now()
	v.guest.kill()
	return died
}

func (v *movableNode) bootAgain() {
	v.t.Helper()
	if err := v.boot(); err != nil {
		v.t.Fatal(err)
	}
	v.prepare()
}

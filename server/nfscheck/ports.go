// Package nfscheck has the checks of podnas doctor that speak NFS: whether a server
// answers on its ports (ports.go), whether a mount of a volume would work, from the
// wire (mount.go, files.go) and on this machine (node.go), and whether one that is
// there does (mountpoint.go).
package nfscheck

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"syscall"

	"github.com/podnas/podnas/doctor"
	"github.com/podnas/podnas/server/mount3"
	"github.com/podnas/podnas/server/nfs3"
	"github.com/podnas/podnas/server/oncrpc"
)

// Ports asks a server of podnas, on its one port, for NFS and MOUNT.
func Ports(ctx context.Context, address string) doctor.Result {
	client, err := oncrpc.Dial(ctx, address)
	if err != nil {
		return doctor.Fail(connectFix(err), "can't connect to %s: %v", address, reason(err))
	}
	defer client.Close()
	for _, p := range programs() {
		if _, err := client.Call(ctx, p.number, p.version, 0, nil); err != nil {
			return doctor.Fail("see podnas's log; the liveness probe restarts a podnas that hangs", "%s does not answer on %s: %v", p.name, address, reason(err))
		}
	}
	return doctor.Good("NFS and MOUNT answer on %s", address)
}

type program struct {
	name            string
	number, version uint32
}

func programs() []program {
	return []program{{"NFS", nfs3.Program, nfs3.Version}, {"MOUNT", mount3.Program, mount3.Version}}
}

// reason is an error in a few words: the address is said already.
func reason(err error) error {
	var op *net.OpError
	switch {
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, os.ErrDeadlineExceeded):
		return fmt.Errorf("no answer in time")
	case errors.As(err, &op) && op.Op == "dial":
		return op.Err
	}
	return err
}

// connectFix says what to do where no connection is made.
func connectFix(err error) string {
	var dns *net.DNSError
	var timeout net.Error
	switch {
	case errors.As(err, &dns):
		return "use the IP address: that of the PersistentVolume (kubectl get pv NAME -o jsonpath='{.spec.nfs.server}'); nodes can't resolve names of Services"
	case errors.Is(err, syscall.ECONNREFUSED):
		return "nothing listens there: see that podnas's pod is ready (kubectl -n podnas get pods,endpointslices), and that the port is right (--options=port=N, from the PersistentVolume's mountOptions)"
	case errors.Is(err, syscall.EHOSTUNREACH), errors.Is(err, syscall.ENETUNREACH):
		return "there is no way to this address from here: a ClusterIP is known on the nodes and in the pods of its cluster alone; on a node see that kube-proxy, or what stands for it, runs"
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &timeout) && timeout.Timeout():
		return "something on the way drops packets: a NetworkPolicy in podnas's namespace that does not let the nodes in (their addresses, not those of pods, are what mounts come from), or a firewall between nodes; or podnas's node is down"
	}
	return "see that podnas's pod is ready (kubectl -n podnas get pods,endpointslices) and can be reached from here"
}

// Package nfscheck has the checks of podnas doctor that are about NFS: whether a server
// answers on its ports (ports.go); whether a volume can be mounted, tested by NFS calls
// (mount.go, steps.go; mount3.go and mount4.go by version); whether this machine can mount NFS (node.go); and whether an
// existing mount works (mountpoint.go).
package nfscheck

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"syscall"

	"github.com/podnas/podnas/internal/doctor"
	"github.com/podnas/podnas/nfs/mount3"
	"github.com/podnas/podnas/nfs/nfs3"
	"github.com/podnas/podnas/nfs/rpc"
)

// Ports checks whether podnas's server answers NFS and MOUNT calls on its port. dial
// connects to it.
func Ports(ctx context.Context, dial func(context.Context, string) (*rpc.Client, error), address string) doctor.Result {
	client, err := dial(ctx, address)
	if err != nil {
		return doctor.Fail(connectFix(err), "can't connect to %s: %v", address, reason(err))
	}
	defer client.Close()
	for _, p := range programs() {
		if _, err := client.Call(ctx, p.number, p.version, 0, nil); err != nil {
			return doctor.Fail("read podnas's log; in a cluster the liveness probe restarts a podnas that hangs", "%s does not answer on %s: %v", p.name, address, reason(err))
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

// reason shortens an error, whose address the message already contains.
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

// connectFix says what to do about a failed connection.
func connectFix(err error) string {
	var dns *net.DNSError
	var timeout net.Error
	switch {
	case errors.As(err, &dns):
		return "use the IP address; in a cluster take it from the PersistentVolume (kubectl get pv NAME -o jsonpath='{.spec.nfs.server}'), because nodes can't resolve names of Services"
	case errors.Is(err, syscall.ECONNREFUSED):
		return "nothing listens there: check that podnas is running (in a cluster: kubectl -n podnas get pods,endpointslices), and that this is the port of the PersistentVolume's mountOptions (port=N)"
	case errors.Is(err, syscall.EHOSTUNREACH), errors.Is(err, syscall.ENETUNREACH):
		return "this address is unreachable from here. A ClusterIP is reachable only from the nodes and pods of its cluster; on a node, check that kube-proxy or its replacement is running"
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &timeout) && timeout.Timeout():
		return "packets are dropped: by a NetworkPolicy in podnas's namespace that does not allow the nodes (mounts come from their addresses, not from those of pods), by a firewall between nodes, or because podnas's machine is down"
	}
	return "check that podnas is running (in a cluster: kubectl -n podnas get pods,endpointslices) and reachable from here"
}

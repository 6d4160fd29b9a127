package main

import (
	"bufio"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/podnas/podnas/provisioner/failover"
)

const failoverLong = `Bring podnas up on another node when NODE, on which it runs, is dead. Kubernetes alone starts no second
pod while it can't know whether the first one still writes to the disk. You can: look, or cut the power. Then this

  - checks that NODE is NotReady and has podnas's pod, and what its disk is: some disks keep the old node away by
    themselves, others do not, and one that is in NODE can't be had elsewhere;
  - asks whether NODE is off (in a script: --it-is-off). A node that is only cut off from the network is NOT off;
  - looks at NODE again, and changes nothing if it has come back or was started again meanwhile;
  - sets the taint node.kubernetes.io/out-of-service on NODE, with which Kubernetes detaches its volumes and
    deletes all its pods, and deletes podnas's pod there;
  - tells what the next pod waits for, until it serves.

Where two podnas share a disk (deploy/overlays/ha) the standby takes over by itself. Then this says so, and does the same
for the pod on NODE, so that there is a standby again.

A call that was interrupted is made again, and goes on. If somebody has deleted podnas's pod by force before, and its disk is
still attached to NODE, this has it detached. When NODE was started again, --over takes the taint away;
it refuses if NODE was not restarted since.

You need the rights to get, list and update nodes, get statefulsets, persistentvolumeclaims and persistentvolumes, and to get
and delete pods; volumeattachments, events and the node's Lease in kube-node-lease are looked at if you may. It runs on
your own machine, as the user of your kubeconfig: podnas's pod is on the dead node.

Exit codes: 0 podnas serves again; 1 failed, or it does not serve yet; 2 invalid request; 4 refused: nothing was changed,
or what was has been taken back; 130 interrupted.`

const failoverExamples = `  # node3 is dead, and I have cut its power
  kubectl podnas failover node3

  # In a script, after a fence agent has done that
  kubectl podnas failover node3 --it-is-off --timeout=5m

  # It is back
  kubectl podnas failover node3 --over`

func newFailoverCommand() *cobra.Command {
	var from outsideFlags
	var isOff, over bool
	var timeout time.Duration
	cmd := &cobra.Command{
		Use:     "failover NODE",
		Short:   "Bring podnas up on another node when its node is dead",
		Long:    failoverLong,
		Example: failoverExamples,
		Args:    exactly("NODE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case over && isOff:
				return &usageError{errors.New("--over is for a node that is back, and --it-is-off for one that is not")}
			case timeout <= 0:
				return &usageError{fmt.Errorf("--timeout %s: it has to be longer", timeout)}
			}
			_, client, err := from.server.connect("podnas")
			if err != nil {
				return err
			}
			f := &failover.Failover{
				Client: client, Namespace: from.namespace, Name: from.name, Node: args[0], IsOff: isOff, Timeout: timeout,
				Say: func(format string, args ...any) { fmt.Fprintf(cmd.OutOrStdout(), format+"\n", args...) },
			}
			if isTerminal(cmd.InOrStdin()) {
				f.Ask = func(question string) error {
					return confirm(bufio.NewReader(cmd.InOrStdin()), cmd.ErrOrStderr(), question, "--it-is-off")
				}
			}
			if over {
				return f.End(cmd.Context())
			}
			return f.Run(cmd.Context())
		},
	}
	f := cmd.Flags()
	f.SortFlags = false
	f.BoolVar(&isOff, "it-is-off", false, "NODE is off: do not ask")
	f.BoolVar(&over, "over", false, "NODE is back: take the taint away")
	f.DurationVar(&timeout, "timeout", 10*time.Minute, "how long to wait until podnas serves again, from the answer on")
	from.add(f)
	return cmd
}

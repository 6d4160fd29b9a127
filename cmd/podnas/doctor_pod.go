package main

import (
	"github.com/spf13/cobra"

	"github.com/podnas/podnas/provisioner/checkup"
)

const doctorPodLong = `Say why podnas's pod does not run or is not ready, and what to do, when you can't use 'kubectl
exec'. This changes nothing.

It reads the StatefulSet, its pods, the claims of its disk, the StorageClasses, the Service and the events
of the namespace from the API server, as the user of your kubeconfig. The ClusterRole view is
enough, except for StorageClasses, which are cluster-wide; missing rights are reported. Nodes are
looked at if you may list them; without that a dead one is known by its pod alone, and one that is
back after a failover is not told of. You need no right to read logs: the pod's status contains
the last lines of a podnas that has ended.

Exit codes: 0 it runs and is ready; 1 a check failed, or you lack a right; 6 podnas is not
running; 7 it runs, with warnings.`

const doctorPodExamples = `  # Why does podnas not start?
  podnas doctor pod

  # In another cluster and namespace, with another release name
  podnas doctor pod --context=edge --namespace=storage --name=team-podnas

  # With only Docker installed
  docker run --rm --network=host -v ~/.kube:/root/.kube:ro -e KUBECONFIG=/root/.kube/config \
    ghcr.io/podnas/podnas:v0.1.0-dev doctor pod`

func newDoctorPodCommand() *cobra.Command {
	var from outsideFlags
	var output string
	cmd := &cobra.Command{
		Use:     "pod",
		Short:   "Say why podnas's pod does not run, with data from the API server",
		Long:    doctorPodLong,
		Example: doctorPodExamples,
		Args:    exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, client, err := from.server.connect("podnas")
			if err != nil {
				return err
			}
			outside := checkup.Outside{Client: client, Namespace: from.namespace, Name: from.name}
			results, down := outside.Look(cmd.Context())
			found := tell(cmd, output, map[string]any{"checks": results}, results)
			if down {
				return &downError{found}
			}
			return found
		},
	}
	f := cmd.Flags()
	f.SortFlags = false
	from.add(f)
	addOutputFlag(f, &output, outputTable, outputJSON, outputYAML)
	return cmd
}

// downError ends a doctor that has found why no podnas runs, or has not.
type downError struct{ found error }

func (e *downError) Error() string {
	if e.found == nil {
		return "podnas does not run"
	}
	return "podnas does not run: " + e.found.Error()
}

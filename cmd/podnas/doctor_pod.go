package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/podnas/podnas/provisioner/checkup"
)

const doctorPodLong = `Say why podnas's pod does not run or is not ready, and what to do: for when there is no podnas
to ask by 'kubectl exec'. Nothing is changed.

It asks the API server for the StatefulSet, its pod, the claims of its disk, the StorageClasses
and the events of the namespace, as the user of your kubeconfig: the ClusterRole view is
enough, but for StorageClasses, which are cluster-wide. What you may not look at is told. No
right to read logs is needed: the last lines of a podnas that has ended are in the pod's status.

Exit codes: 0 it runs and is ready; 1 something does not work, or can't be looked at; 6 podnas
does not run; 7 it runs, and there are warnings.`

const doctorPodExamples = `  # Why does podnas not come up?
  podnas doctor pod

  # In another cluster, namespace and release of the chart
  podnas doctor pod --context=edge --namespace=storage --name=team-podnas

  # With nothing installed but Docker
  docker run --rm --network=host -v ~/.kube:/root/.kube:ro -e KUBECONFIG=/root/.kube/config \
    ghcr.io/podnas/podnas:v0.1.0-dev doctor pod`

func newDoctorPodCommand() *cobra.Command {
	rules := clientcmd.NewDefaultClientConfigLoadingRules() // $KUBECONFIG, ~/.kube/config, else as a pod
	var overrides clientcmd.ConfigOverrides
	var outside checkup.Outside
	var output string
	cmd := &cobra.Command{
		Use:     "pod",
		Short:   "Say why podnas's pod does not run, from what the API server knows",
		Long:    doctorPodLong,
		Example: doctorPodExamples,
		Args:    exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := checkOutput(output, outputTable, outputJSON, outputYAML); err != nil {
				return err
			}
			config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &overrides).ClientConfig()
			if err != nil {
				return fmt.Errorf("find the API server (--kubeconfig, --context): %w", err)
			}
			config.UserAgent = "podnas/" + version
			if outside.Client, err = kubernetes.NewForConfig(config); err != nil {
				return fmt.Errorf("find the API server: %w", err)
			}
			results, down := outside.Look(cmd.Context())
			if output == outputTable {
				err = printResults(cmd.OutOrStdout(), results)
			} else {
				err = printValue(cmd.OutOrStdout(), output, map[string]any{"checks": results})
			}
			found := verdict(results)
			if down {
				found = &downError{found}
			}
			return errors.Join(err, found)
		},
	}
	f := cmd.Flags()
	f.SortFlags = false
	f.StringVarP(&outside.Namespace, "namespace", "n", "podnas", "where podnas is")
	f.StringVar(&outside.Name, "name", "podnas", "its StatefulSet; of the chart: the release, if podnas is in its name,\nelse RELEASE-podnas")
	f.StringVar(&rules.ExplicitPath, "kubeconfig", "", "file that says how to reach the API server; default: $KUBECONFIG,\n~/.kube/config, else as a pod in the cluster")
	f.StringVar(&overrides.CurrentContext, "context", "", "context of that file; default: its current one")
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

package main

import (
	"fmt"

	"github.com/spf13/cobra"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/podnas/podnas/provisioner/checkup"
)

const doctorPodLong = `Say why podnas's pod does not run or is not ready, and what to do, when you can't use 'kubectl
exec'. This changes nothing.

It reads the StatefulSet, its pod, the claims of its disk, the StorageClasses and the events of
the namespace from the API server, as the user of your kubeconfig. The ClusterRole view is
enough, except for StorageClasses, which are cluster-wide; missing rights are reported. You need
no right to read logs: the pod's status contains the last lines of a podnas that has ended.

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
	rules := clientcmd.NewDefaultClientConfigLoadingRules() // $KUBECONFIG, ~/.kube/config, else as a pod
	var overrides clientcmd.ConfigOverrides
	var outside checkup.Outside
	var output string
	cmd := &cobra.Command{
		Use:     "pod",
		Short:   "Say why podnas's pod does not run, with data from the API server",
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
			found := tell(cmd, output, map[string]any{"checks": results}, results)
			if down {
				return &downError{found}
			}
			return found
		},
	}
	f := cmd.Flags()
	f.SortFlags = false
	f.StringVarP(&outside.Namespace, "namespace", "n", "podnas", "namespace of podnas")
	f.StringVar(&outside.Name, "name", "podnas", "name of its StatefulSet; with the chart, the release name if that contains podnas,\nelse RELEASE-podnas")
	f.StringVar(&rules.ExplicitPath, "kubeconfig", "", "kubeconfig file for the API server; default: $KUBECONFIG,\n~/.kube/config, else the ServiceAccount of the pod")
	f.StringVar(&overrides.CurrentContext, "context", "", "context in that file; default: the current one")
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

package main

import (
	"errors"
	"fmt"

	"github.com/spf13/pflag"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
)

// outsideFlags are the flags of a command that asks the API server of a podnas whose pod may not run, as the user of a kubeconfig.
type outsideFlags struct {
	namespace, name string // of the StatefulSet
	rules           *clientcmd.ClientConfigLoadingRules
	overrides       clientcmd.ConfigOverrides
}

func (o *outsideFlags) add(f *pflag.FlagSet) {
	o.rules = clientcmd.NewDefaultClientConfigLoadingRules() // $KUBECONFIG, ~/.kube/config, else as a pod
	f.StringVarP(&o.namespace, "namespace", "n", "podnas", "namespace of podnas")
	f.StringVar(&o.name, "name", "podnas", "name of its StatefulSet; with the chart, the release name if that contains podnas,\nelse RELEASE-podnas")
	f.StringVar(&o.rules.ExplicitPath, "kubeconfig", "", "kubeconfig file for the API server; default: $KUBECONFIG,\n~/.kube/config, else the ServiceAccount of the pod")
	f.StringVar(&o.overrides.CurrentContext, "context", "", "context in that file; default: the current one")
}

// noServer says what to do about an error of the kubeconfig.
func noServer(err error) error {
	if clientcmd.IsEmptyConfig(err) {
		return errors.New("there is no kubeconfig, and this is no pod: set --kubeconfig=FILE or $KUBECONFIG, or run it where kubectl reaches the cluster")
	}
	return fmt.Errorf("find the API server (--kubeconfig, --context): %w", err)
}

// client is for the API server that the flags name.
func (o *outsideFlags) client() (kubernetes.Interface, error) {
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(o.rules, &o.overrides).ClientConfig()
	if err != nil {
		return nil, noServer(err)
	}
	config.UserAgent = "podnas/" + version
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("find the API server: %w", err)
	}
	return client, nil
}

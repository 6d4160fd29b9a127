package main

import (
	"errors"
	"fmt"

	"github.com/spf13/pflag"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// outsideFlags are the flags of a command that asks the API server of a podnas whose pod may not run, as the user of a kubeconfig.
type outsideFlags struct {
	namespace, name string // of the StatefulSet
	server          serverFlags
}

func (o *outsideFlags) add(f *pflag.FlagSet) {
	f.StringVarP(&o.namespace, "namespace", "n", "podnas", "namespace of podnas")
	f.StringVar(&o.name, "name", "podnas", "name of its StatefulSet; with the chart, the release name if that contains podnas,\nelse RELEASE-podnas")
	o.server.add(f)
}

// serverFlags say which API server is meant, as those of kubectl do.
type serverFlags struct {
	rules     *clientcmd.ClientConfigLoadingRules
	overrides clientcmd.ConfigOverrides
}

func (s *serverFlags) add(f *pflag.FlagSet) {
	s.rules = clientcmd.NewDefaultClientConfigLoadingRules() // $KUBECONFIG, ~/.kube/config, else as a pod
	f.StringVar(&s.rules.ExplicitPath, "kubeconfig", "", "kubeconfig file for the API server; default: $KUBECONFIG,\n~/.kube/config, else the ServiceAccount of the pod")
	f.StringVar(&s.overrides.CurrentContext, "context", "", "context in that file; default: the current one")
}

// connect returns how the API server is reached, and a client of it.
func (s *serverFlags) connect(program string) (*rest.Config, kubernetes.Interface, error) {
	config, err := s.loaded().ClientConfig()
	if clientcmd.IsEmptyConfig(err) {
		return nil, nil, errors.New("there is no kubeconfig, and this is no pod: set --kubeconfig=FILE or $KUBECONFIG, or run it where kubectl reaches the cluster")
	}
	if err != nil {
		return nil, nil, fmt.Errorf("find the API server (--kubeconfig, --context): %w", err)
	}
	config.UserAgent = program + "/" + version
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, nil, fmt.Errorf("find the API server: %w", err)
	}
	return config, client, nil
}

// loaded is what the kubeconfig says.
func (s *serverFlags) loaded() clientcmd.ClientConfig {
	return clientcmd.NewNonInteractiveDeferredLoadingClientConfig(s.rules, &s.overrides)
}

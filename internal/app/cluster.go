package app

import (
	"errors"
	"fmt"
	"log/slog"
	"os"

	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/podnas/podnas/provisioner"
	"github.com/podnas/podnas/provisioner/controller"
)

// Cluster is how the API server is reached and used, as the flags say that the comments name.
type Cluster struct {
	Kubeconfig     string  // --kubeconfig; empty: the ServiceAccount of the pod
	Master         string  // --master
	QPS            float32 // --kube-api-qps
	Burst          int     // --kube-api-burst
	Workers        int     // --workers
	LeaderElect    bool    // --leader-elect
	LeaseNamespace string  // --leader-elect-namespace
}

// check refuses to look for a cluster where there is none, before the disk is looked for: in a pod it has
// its place, elsewhere whoever types just 'podnas serve' is told what is missing first.
func (c *Cluster) check() error {
	if c.Kubeconfig == "" && c.Master == "" && os.Getenv("KUBERNETES_SERVICE_HOST") == "" {
		return errors.New("not running in a pod of a cluster: to serve the claims in a folder, without a cluster, use --standalone --root=DIR --claims=DIR; for a cluster elsewhere set --kubeconfig=FILE")
	}
	return nil
}

// config is how the API server is reached.
func (c *Cluster) config(version string) (config *rest.Config, err error) {
	if c.Kubeconfig == "" && c.Master == "" {
		config, err = rest.InClusterConfig()
	} else {
		config, err = clientcmd.BuildConfigFromFlags(c.Master, c.Kubeconfig)
	}
	if err != nil {
		return nil, fmt.Errorf("find the API server: %w", err)
	}
	config.QPS, config.Burst = c.QPS, c.Burst
	config.UserAgent = "podnas/" + version
	return config, nil
}

// client connects to the API server. The second client is for objects that the first one does not know.
func (c *Cluster) client(version string, log *slog.Logger) (kubernetes.Interface, dynamic.Interface, error) {
	config, err := c.config(version)
	if err != nil {
		return nil, nil, err
	}
	log.Info("kubernetes: API server", "url", config.Host)
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, nil, err
	}
	objects, err := dynamic.NewForConfig(config)
	return client, objects, err
}

// endpoint is where nodes reach this server: the address given by hand, else
// the pod's own Service.
func (c *Cluster) endpoint(client kubernetes.Interface, address string, port uint16) (provisioner.Endpoint, error) {
	if address != "" {
		return provisioner.ParseStaticEndpoint(address, port)
	}
	e := &provisioner.ServiceEndpoint{
		Client:    client,
		Namespace: os.Getenv("POD_NAMESPACE"),
		Name:      os.Getenv("SERVICE_NAME"),
		PodIP:     os.Getenv("POD_IP"),
		Port:      port,
	}
	if e.Namespace == "" || e.Name == "" || e.PodIP == "" {
		return nil, errors.New("the address that nodes mount from is unknown: set SERVICE_NAME, POD_NAMESPACE and POD_IP in the pod's environment, or set --server-address=IP")
	}
	return e, nil
}

// controller sets up the work on claims. Without a namespace to put a Lease in,
// as outside of a cluster, nothing guards the provisioner's name.
func (c *Cluster) controller(client kubernetes.Interface, p *provisioner.Provisioner, log *slog.Logger) (controller.Config, error) {
	namespace := c.LeaseNamespace
	if namespace == "" {
		namespace = os.Getenv("POD_NAMESPACE")
	}
	cfg := controller.Config{
		Client: client, Provisioner: p, Workers: c.Workers,
		GuardIn: namespace, Pod: os.Getenv("POD_NAME"), PodUID: os.Getenv("POD_UID"), Reconciler: &controller.Reconciler{}, Log: log,
	}
	if c.LeaderElect {
		if cfg.LeaseIn = namespace; namespace == "" {
			return cfg, errors.New("--leader-elect needs --leader-elect-namespace, or POD_NAMESPACE in the environment")
		}
	}
	err := cfg.Validate()
	return cfg, err
}

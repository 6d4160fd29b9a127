package main

import (
	"errors"
	"fmt"
	"log/slog"
	"os"

	"github.com/spf13/pflag"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/podnas/podnas/provisioner"
	"github.com/podnas/podnas/provisioner/controller"
)

// clusterConfig is how the API server is reached and used.
type clusterConfig struct {
	kubeconfig, master string
	qps                float32
	burst, workers     int
	leaderElect        bool
	leaseNamespace     string
}

func (c *clusterConfig) addFlags(f *pflag.FlagSet) {
	f.StringVar(&c.kubeconfig, "kubeconfig", "", "kubeconfig file for the API server; default: the ServiceAccount of the pod")
	f.StringVar(&c.master, "master", "", "URL of the API server, instead of the one in --kubeconfig")
	// With these a burst of claims is bound about as fast as the API server
	// can bind it (BenchmarkBind in test/cluster): each claim takes three calls.
	// The API server shares itself out fairly without a client's help.
	f.Float32Var(&c.qps, "kube-api-qps", 500, "calls to the API server per second")
	f.IntVar(&c.burst, "kube-api-burst", 1000, "burst of calls to the API server")
	f.IntVar(&c.workers, "workers", 20, "number of claims and of volumes that are processed concurrently")
	f.BoolVar(&c.leaderElect, "leader-elect", false, "provision only while holding a Lease named after --provisioner")
	f.StringVar(&c.leaseNamespace, "leader-elect-namespace", "", "namespace of the Leases for leader election and for the guard against\ntwo podnas with the same --provisioner name; default: $POD_NAMESPACE")
}

// check refuses to look for a cluster where there is none, before the disk is looked for: in a pod it has
// its place, elsewhere whoever types just 'podnas serve' is told what is missing first.
func (c *clusterConfig) check() error {
	if c.kubeconfig == "" && c.master == "" && os.Getenv("KUBERNETES_SERVICE_HOST") == "" {
		return errors.New("not running in a pod of a cluster: to serve the claims in a folder, without a cluster, use --standalone --root=DIR --claims=DIR; for a cluster elsewhere set --kubeconfig=FILE")
	}
	return nil
}

// client connects to the API server.
func (c *clusterConfig) client(log *slog.Logger) (kubernetes.Interface, error) {
	var config *rest.Config
	var err error
	if c.kubeconfig == "" && c.master == "" {
		config, err = rest.InClusterConfig()
	} else {
		config, err = clientcmd.BuildConfigFromFlags(c.master, c.kubeconfig)
	}
	if err != nil {
		return nil, fmt.Errorf("find the API server: %w", err)
	}
	config.QPS, config.Burst = c.qps, c.burst
	config.UserAgent = "podnas/" + version
	log.Info("kubernetes: API server", "url", config.Host)
	return kubernetes.NewForConfig(config)
}

// endpoint is where nodes reach this server: the address given by hand, else
// the pod's own Service.
func (c *clusterConfig) endpoint(client kubernetes.Interface, address string, port uint16) (provisioner.Endpoint, error) {
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
func (c *clusterConfig) controller(client kubernetes.Interface, p *provisioner.Provisioner, log *slog.Logger) (controller.Config, error) {
	namespace := c.leaseNamespace
	if namespace == "" {
		namespace = os.Getenv("POD_NAMESPACE")
	}
	cfg := controller.Config{
		Client: client, Provisioner: p, Workers: c.workers,
		GuardIn: namespace, Pod: os.Getenv("POD_NAME"), PodUID: os.Getenv("POD_UID"), Reconciler: &controller.Reconciler{}, Log: log,
	}
	if c.leaderElect {
		if cfg.LeaseIn = namespace; namespace == "" {
			return cfg, errors.New("--leader-elect needs --leader-elect-namespace, or POD_NAMESPACE in the environment")
		}
	}
	err := cfg.Validate()
	return cfg, err
}

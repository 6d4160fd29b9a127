package controlplane

import (
	"fmt"
	"path/filepath"
)

func (c *ControlPlane) etcdArgs() []string {
	client := fmt.Sprintf("http://127.0.0.1:%d", c.ports.etcdClient)
	peer := fmt.Sprintf("http://127.0.0.1:%d", c.ports.etcdPeer)
	return []string{
		"--name=etcd",
		"--data-dir=" + filepath.Join(c.cfg.Dir, "etcd"),
		"--log-level=warn",
		// The data is for one run; syncing it is most of what etcd would do.
		"--unsafe-no-fsync",
		"--listen-client-urls=" + client,
		"--advertise-client-urls=" + client,
		"--listen-peer-urls=" + peer,
		"--initial-advertise-peer-urls=" + peer,
		"--initial-cluster=etcd=" + peer,
	}
}

func (c *ControlPlane) apiServerArgs() []string {
	return []string{
		fmt.Sprintf("--etcd-servers=http://127.0.0.1:%d", c.ports.etcdClient),
		"--bind-address=" + c.cfg.Bind,
		"--advertise-address=" + c.cfg.Advertise,
		fmt.Sprintf("--secure-port=%d", c.ports.apiserver),
		"--tls-cert-file=" + c.pki.apiserver.certFile,
		"--tls-private-key-file=" + c.pki.apiserver.keyFile,
		"--client-ca-file=" + c.pki.ca.certFile,
		"--authorization-mode=Node,RBAC",
		"--allow-privileged=true",
		"--service-cluster-ip-range=" + serviceCIDRs,
		"--service-account-issuer=https://kubernetes.default.svc",
		"--service-account-key-file=" + c.pki.serviceAccountKey,
		"--service-account-signing-key-file=" + c.pki.serviceAccountKey,
		// No request comes by a proxy; the controllers complain without it.
		"--requestheader-client-ca-file=" + c.pki.ca.certFile,
		"--requestheader-allowed-names=front-proxy",
		"--requestheader-username-headers=X-Remote-User",
		// Logs of and commands in pods: the node's name is in no DNS.
		"--kubelet-client-certificate=" + c.pki.kubeletClient.certFile,
		"--kubelet-client-key=" + c.pki.kubeletClient.keyFile,
		"--kubelet-preferred-address-types=InternalIP",
		"--profiling=false",
	}
}

func (c *ControlPlane) controllerManagerArgs() []string {
	config := filepath.Join(c.cfg.Dir, "kube-controller-manager.kubeconfig")
	args := []string{
		"--kubeconfig=" + config,
		"--authentication-kubeconfig=" + config,
		"--authorization-kubeconfig=" + config,
		"--bind-address=127.0.0.1",
		fmt.Sprintf("--secure-port=%d", c.ports.controllerManager),
		"--cert-dir=" + filepath.Join(c.cfg.Dir, "kube-controller-manager"),
		"--leader-elect=false",
		"--use-service-account-credentials=true",
		"--service-account-private-key-file=" + c.pki.serviceAccountKey,
		"--root-ca-file=" + c.pki.ca.certFile,
		"--service-cluster-ip-range=" + serviceCIDRs,
		"--flex-volume-plugin-dir=" + filepath.Join(c.cfg.Dir, "flex"),
		// The defaults (20 and 30) would bind 20 claims a second, and hide
		// how fast the provisioner is.
		"--kube-api-qps=2000",
		"--kube-api-burst=4000",
	}
	if len(c.cfg.Nodes) > 0 {
		args = append(args, "--allocate-node-cidrs=true", "--cluster-cidr="+podCIDR)
	}
	return args
}

func (c *ControlPlane) schedulerArgs() []string {
	config := filepath.Join(c.cfg.Dir, "kube-scheduler.kubeconfig")
	return []string{
		"--kubeconfig=" + config,
		"--authentication-kubeconfig=" + config,
		"--authorization-kubeconfig=" + config,
		"--bind-address=127.0.0.1",
		fmt.Sprintf("--secure-port=%d", c.ports.scheduler),
		"--cert-dir=" + filepath.Join(c.cfg.Dir, "kube-scheduler"),
		"--leader-elect=false",
	}
}

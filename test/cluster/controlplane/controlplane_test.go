package controlplane

import (
	"bytes"
	"crypto/x509"
	"net"
	"os"
	"slices"
	"strings"
	"testing"

	"k8s.io/client-go/tools/clientcmd"
)

func TestCertificates(t *testing.T) {
	p, err := newPKI(t.TempDir(), "192.0.2.2", "worker")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"127.0.0.1", "10.96.0.1", "192.0.2.2", "kubernetes.default.svc"} {
		if _, err := p.apiserver.tls.Leaf.Verify(x509.VerifyOptions{Roots: p.pool(), DNSName: name}); err != nil {
			t.Errorf("the API server as %s: %v", name, err)
		}
	}
	clients := []struct {
		cert   certificate
		user   string
		groups []string
	}{
		{p.admin, "admin", []string{"system:masters"}},
		{p.kubeletClient, "kube-apiserver-kubelet-client", []string{"system:masters"}},
		{p.controllerManager, "system:kube-controller-manager", nil},
		{p.scheduler, "system:kube-scheduler", nil},
		{*p.kubelets["worker"], "system:node:worker", []string{"system:nodes"}},
		{p.kubeProxy, "system:kube-proxy", nil},
	}
	for _, c := range clients {
		leaf := c.cert.tls.Leaf
		if leaf.Subject.CommonName != c.user || !slices.Equal(leaf.Subject.Organization, c.groups) {
			t.Errorf("certificate of %s, want user %s in %q", leaf.Subject, c.user, c.groups)
		}
		usage := []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
		if _, err := leaf.Verify(x509.VerifyOptions{Roots: p.pool(), KeyUsages: usage}); err != nil {
			t.Errorf("%s as a client: %v", c.user, err)
		}
	}
}

func TestNoNodeNoCredentials(t *testing.T) {
	dir := t.TempDir()
	p, err := newPKI(dir, "192.0.2.2")
	if err != nil {
		t.Fatal(err)
	}
	c := &ControlPlane{cfg: Config{Dir: dir, Advertise: "192.0.2.2"}, pki: p}
	if err := c.writeKubeconfigs(); err != nil {
		t.Fatal(err)
	}
	var kubeconfigs []string
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if name, is := strings.CutSuffix(e.Name(), ".kubeconfig"); is {
			kubeconfigs = append(kubeconfigs, name)
		}
	}
	if want := []string{"admin", "kube-controller-manager"}; !slices.Equal(kubeconfigs, want) {
		t.Errorf("kubeconfigs for %q, want %q", kubeconfigs, want)
	}
}

func TestKubeconfigIsWhole(t *testing.T) {
	p, err := newPKI(t.TempDir(), "192.0.2.2")
	if err != nil {
		t.Fatal(err)
	}
	config, err := clientcmd.RESTConfigFromKubeConfig(kubeconfig("https://192.0.2.2:6443", p.ca.pem, p.admin))
	if err != nil {
		t.Fatal(err)
	}
	if config.Host != "https://192.0.2.2:6443" {
		t.Errorf("host %s, want https://192.0.2.2:6443", config.Host)
	}
	if !bytes.Equal(config.CAData, p.ca.pem) || !bytes.Equal(config.CertData, p.admin.pem) || !bytes.Equal(config.KeyData, p.admin.keyPEM) {
		t.Error("the certificates are not those that went in")
	}
}

func TestFreePortsDiffer(t *testing.T) {
	p, err := freePorts()
	if err != nil {
		t.Fatal(err)
	}
	all := []int{p.etcdClient, p.etcdPeer, p.apiserver, p.controllerManager, p.scheduler}
	slices.Sort(all)
	if len(slices.Compact(slices.Clone(all))) != 5 {
		t.Errorf("ports %v, want 5 different ones", all)
	}
	l, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: all[0]})
	if err != nil {
		t.Fatalf("listen on the first of them: %v", err)
	}
	l.Close()
}

// A program that ends by itself is noticed, with the end of its log.
func TestProcessEnds(t *testing.T) {
	p, err := startProcess(t.TempDir(), "/bin/sh", "-c", "echo the reason; exit 3")
	if err != nil {
		t.Fatal(err)
	}
	<-p.done
	if err := p.ended(); err == nil || !strings.Contains(err.Error(), "exit status 3") || !strings.Contains(err.Error(), "the reason") {
		t.Errorf("got %v, want the status and the reason", err)
	}
	p.kill() // does nothing, and returns
}

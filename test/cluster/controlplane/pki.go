package controlplane

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

// pki is one authority and what it signed. Every part shows a certificate; its
// common name is the user and its organizations are the groups that RBAC sees.
type pki struct {
	dir string
	ca  certificate

	apiserver         certificate // the API server's own
	kubeletClient     certificate // the API server as a client of kubelets
	admin             certificate
	controllerManager certificate
	scheduler         certificate
	kubeProxy         certificate
	kubelets          map[string]*certificate // by the names of their nodes

	serviceAccountKey string // file with the key that signs ServiceAccount tokens
}

// certificate is a certificate with its key, as values, as text and as files.
type certificate struct {
	tls               tls.Certificate
	pem, keyPEM       []byte
	certFile, keyFile string
}

func newPKI(dir, advertise string, nodes ...string) (*pki, error) {
	p := &pki{dir: filepath.Join(dir, "pki"), kubelets: map[string]*certificate{}}
	if err := os.MkdirAll(p.dir, 0o700); err != nil {
		return nil, err
	}
	var err error
	if p.ca, err = p.issue("ca", x509.Certificate{
		Subject:               pkix.Name{CommonName: "test control plane"},
		IsCA:                  true,
		BasicConstraintsValid: true,
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	}); err != nil {
		return nil, err
	}
	server := x509.Certificate{
		Subject:     pkix.Name{CommonName: "kube-apiserver"},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		DNSNames:    []string{"localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local"},
		// 10.96.0.1 is the Service "kubernetes": the first of serviceCIDRs.
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1), net.IPv4(10, 96, 0, 1), net.ParseIP(advertise)},
	}
	if p.apiserver, err = p.issue("kube-apiserver", server); err != nil {
		return nil, err
	}
	type client struct {
		cert   *certificate
		file   string
		user   string
		groups []string
	}
	clients := []client{
		{&p.kubeletClient, "kube-apiserver-kubelet-client", "kube-apiserver-kubelet-client", []string{"system:masters"}},
		{&p.admin, "admin", "admin", []string{"system:masters"}},
		{&p.controllerManager, "kube-controller-manager", "system:kube-controller-manager", nil},
	}
	if len(nodes) > 0 {
		clients = append(clients,
			client{&p.scheduler, "kube-scheduler", "system:kube-scheduler", nil},
			client{&p.kubeProxy, "kube-proxy", "system:kube-proxy", nil})
	}
	for _, node := range nodes {
		p.kubelets[node] = &certificate{}
		clients = append(clients, client{p.kubelets[node], "kubelet-" + node, "system:node:" + node, []string{"system:nodes"}})
	}
	for _, c := range clients {
		*c.cert, err = p.issue(c.file, x509.Certificate{
			Subject:     pkix.Name{CommonName: c.user, Organization: c.groups},
			ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
		})
		if err != nil {
			return nil, err
		}
	}
	// The API server takes a private key where it wants the public one.
	signer, err := p.issue("service-account", x509.Certificate{Subject: pkix.Name{CommonName: "service-account"}})
	if err != nil {
		return nil, err
	}
	p.serviceAccountKey = signer.keyFile
	return p, nil
}

// issue makes a key, signs the template with the authority (or, for the
// authority, with the key itself) and writes both as files.
func (p *pki) issue(name string, template x509.Certificate) (certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return certificate{}, fmt.Errorf("make key of %s: %w", name, err)
	}
	if template.SerialNumber, err = rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127)); err != nil {
		return certificate{}, err
	}
	// A guest's clock may differ from this machine's a little.
	template.NotBefore = time.Now().Add(-time.Hour)
	template.NotAfter = time.Now().Add(7 * 24 * time.Hour)
	if !template.IsCA {
		template.KeyUsage = x509.KeyUsageDigitalSignature
	}
	parent, signer := &template, crypto.Signer(key)
	if !template.IsCA {
		parent, signer = p.ca.tls.Leaf, p.ca.tls.PrivateKey.(crypto.Signer)
	}
	der, err := x509.CreateCertificate(rand.Reader, &template, parent, key.Public(), signer)
	if err != nil {
		return certificate{}, fmt.Errorf("sign certificate of %s: %w", name, err)
	}
	keyDER, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return certificate{}, err
	}
	c := certificate{
		pem:      pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		keyPEM:   pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: keyDER}),
		certFile: filepath.Join(p.dir, name+".crt"),
		keyFile:  filepath.Join(p.dir, name+".key"),
	}
	if c.tls, err = tls.X509KeyPair(c.pem, c.keyPEM); err != nil {
		return certificate{}, err
	}
	if err := os.WriteFile(c.certFile, c.pem, 0o600); err != nil {
		return certificate{}, err
	}
	return c, os.WriteFile(c.keyFile, c.keyPEM, 0o600)
}

func (p *pki) pool() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(p.ca.tls.Leaf)
	return pool
}

// Package controlplane runs a real Kubernetes control plane for tests: etcd,
// kube-apiserver, kube-controller-manager and, where a node is to join,
// kube-scheduler. They are child processes on ports of this machine and end
// with the process that started them, however it ends.
//
// Start makes a certificate authority and a certificate for each part
// (pki.go), writes the kubeconfig files (kubeconfig.go), starts etcd and the
// API server, waits for its /readyz, and then starts the controllers. Nothing
// needs root, a network or a name service.
package controlplane

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"time"
)

// The ranges that Services get their addresses from. The first is the
// default; a Service that asks for IPv6 gets it from the second.
const (
	serviceCIDRs = "10.96.0.0/16,fd00:10:96::/112"
	podCIDR      = "10.244.0.0/16"
)

// Config says what to start, and where.
type Config struct {
	// Bin is the folder with the binaries; build.sh makes and prints it.
	Bin string
	// Dir takes certificates, etcd's data and kubeconfigs. It must exist.
	Dir string
	// Logs takes a log of each part. It must exist; Dir if empty.
	Logs string
	// Bind is the address that the API server listens on; 127.0.0.1 if empty.
	Bind string
	// Advertise is the address at which pods reach the API server. The API
	// server refuses a loopback address here, so the default is one of the
	// range for documentation (RFC 5737), which is enough where no pod runs.
	Advertise string
	// Nodes are the names of nodes that will join. They add the scheduler, and
	// kubeconfigs for kube-proxy and each kubelet (kubelet-NAME) in Dir.
	Nodes []string
}

// ControlPlane is a running control plane.
type ControlPlane struct {
	cfg       Config
	pki       *pki
	ports     ports
	apiserver *process
	others    []*process
	http      *http.Client
}

// Start starts a control plane and returns when it works: the API server is
// ready and the controllers have made the first ServiceAccount.
func Start(ctx context.Context, cfg Config) (*ControlPlane, error) {
	if cfg.Bind == "" {
		cfg.Bind = "127.0.0.1"
	}
	if cfg.Advertise == "" {
		cfg.Advertise = "192.0.2.2"
	}
	if cfg.Logs == "" {
		cfg.Logs = cfg.Dir
	}
	c := &ControlPlane{cfg: cfg}
	if err := c.start(ctx); err != nil {
		c.Stop()
		return nil, err
	}
	return c, nil
}

func (c *ControlPlane) start(ctx context.Context) error {
	var err error
	if c.pki, err = newPKI(c.cfg.Dir, c.cfg.Advertise, c.cfg.Nodes...); err != nil {
		return fmt.Errorf("make certificates: %w", err)
	}
	if c.ports, err = freePorts(); err != nil {
		return err
	}
	if err := c.writeKubeconfigs(); err != nil {
		return err
	}
	c.http = &http.Client{
		Timeout: 5 * time.Second,
		Transport: &http.Transport{
			TLSClientConfig: &tls.Config{RootCAs: c.pki.pool(), Certificates: []tls.Certificate{c.pki.admin.tls}},
			// A kept connection to an API server that is gone looks alive
			// until the timeout.
			DisableKeepAlives: true,
		},
	}
	etcd, err := startProcess(c.cfg.Logs, filepath.Join(c.cfg.Bin, "etcd"), c.etcdArgs()...)
	if err != nil {
		return err
	}
	c.others = append(c.others, etcd)
	if err := c.startAPIServer(ctx); err != nil {
		return err
	}
	if err := c.startController("kube-controller-manager", c.controllerManagerArgs()); err != nil {
		return err
	}
	if len(c.cfg.Nodes) > 0 {
		if err := c.startController("kube-scheduler", c.schedulerArgs()); err != nil {
			return err
		}
	}
	// Only the controllers make it, so it shows that they work.
	return c.waitFor(ctx, "/api/v1/namespaces/default/serviceaccounts/default")
}

func (c *ControlPlane) startController(name string, args []string) error {
	p, err := startProcess(c.cfg.Logs, filepath.Join(c.cfg.Bin, name), args...)
	if err != nil {
		return err
	}
	c.others = append(c.others, p)
	return nil
}

func (c *ControlPlane) startAPIServer(ctx context.Context) error {
	p, err := startProcess(c.cfg.Logs, filepath.Join(c.cfg.Bin, "kube-apiserver"), c.apiServerArgs()...)
	if err != nil {
		return err
	}
	c.apiserver = p
	return c.waitFor(ctx, "/readyz")
}

// RestartAPIServer kills the API server, stays without one for the given time,
// and returns when the next one is ready at the same address. Requests in
// flight get no answer: whether they took effect, their clients can't know.
func (c *ControlPlane) RestartAPIServer(ctx context.Context, down time.Duration) error {
	c.apiserver.kill()
	select {
	case <-time.After(down):
	case <-ctx.Done():
		return ctx.Err()
	}
	return c.startAPIServer(ctx)
}

// HangAPIServer has the API server answer nothing, until the function that it returns is called. Connections to it are
// accepted, and nothing is refused.
func (c *ControlPlane) HangAPIServer() (goOn func() error, err error) {
	p := c.apiserver.cmd.Process
	return func() error { return p.Signal(syscall.SIGCONT) }, p.Signal(syscall.SIGSTOP)
}

// Stop ends everything. The state is for one run, so nothing is asked to end
// well.
func (c *ControlPlane) Stop() {
	for _, p := range c.processes() {
		p.kill()
	}
}

// Kubeconfig is the path of the administrator's kubeconfig.
func (c *ControlPlane) Kubeconfig() string {
	return filepath.Join(c.cfg.Dir, "admin.kubeconfig")
}

// WriteLogs writes the last lines of every part's log to w.
func (c *ControlPlane) WriteLogs(w io.Writer, lines int) {
	for _, p := range c.processes() {
		fmt.Fprintf(w, "--- last lines of %s\n", p.log)
		for _, line := range p.lastLines(lines) {
			fmt.Fprintln(w, line)
		}
	}
}

// processes returns the parts, those that need the API server first.
func (c *ControlPlane) processes() []*process {
	var all []*process
	for i := len(c.others) - 1; i >= 0; i-- {
		if i == 0 && c.apiserver != nil {
			all = append(all, c.apiserver)
		}
		all = append(all, c.others[i])
	}
	return all
}

// waitFor polls a path of the API server until it answers 200, a part of the
// control plane ends, or ctx does.
func (c *ControlPlane) waitFor(ctx context.Context, path string) error {
	var last error
	for {
		if last = c.get(ctx, path); last == nil {
			return nil
		}
		for _, p := range c.processes() {
			if err := p.ended(); err != nil {
				return err
			}
		}
		select {
		case <-time.After(100 * time.Millisecond):
		case <-ctx.Done():
			return fmt.Errorf("wait for %s of the API server: %w", path, errors.Join(ctx.Err(), last))
		}
	}
}

func (c *ControlPlane) get(ctx context.Context, path string) error {
	url := "https://" + net.JoinHostPort("127.0.0.1", strconv.Itoa(c.ports.apiserver)) + path
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("GET %s: %s", path, resp.Status)
	}
	return nil
}

func (c *ControlPlane) writeKubeconfigs() error {
	// On this machine the API server is at 127.0.0.1; a node elsewhere
	// reaches it at the advertised address.
	type user struct {
		name string
		cert certificate
		host string
	}
	users := []user{
		{"admin", c.pki.admin, "127.0.0.1"},
		{"kube-controller-manager", c.pki.controllerManager, "127.0.0.1"},
		{"kube-scheduler", c.pki.scheduler, "127.0.0.1"},
		{"kube-proxy", c.pki.kubeProxy, c.cfg.Advertise},
	}
	for name, cert := range c.pki.kubelets {
		users = append(users, user{"kubelet-" + name, *cert, c.cfg.Advertise})
	}
	for _, u := range users {
		if u.cert.pem == nil {
			continue
		}
		text := kubeconfig("https://"+net.JoinHostPort(u.host, strconv.Itoa(c.ports.apiserver)), c.pki.ca.pem, u.cert)
		path := filepath.Join(c.cfg.Dir, u.name+".kubeconfig")
		if err := os.WriteFile(path, text, 0o600); err != nil {
			return fmt.Errorf("write kubeconfig: %w", err)
		}
	}
	return nil
}

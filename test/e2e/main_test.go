//go:build e2e

// Package e2e holds the end-to-end test: podnas's own image and manifest in a
// real cluster of one node, used as a person would use it.
//
// run.sh runs it, in a network namespace. TestMain starts the control plane
// here (package controlplane) and the node (node.sh) under User-Mode Linux; the
// tests then drive the cluster with kubectl and client-go from outside.
package e2e

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/podnas/podnas/test/cluster/controlplane"
)

// hostAddress is this side of tap0; vm.sh gives the other to the node.
const (
	hostAddress = "10.9.0.1"
	nodeName    = "node"
)

// clusterUp is the cluster, of which there is one for all tests.
type clusterUp struct {
	plane      *controlplane.ControlPlane
	nodes      []*node
	client     *kubernetes.Clientset
	kubeconfig string
	bin        string // folder of the Kubernetes binaries
	run        string // folder of what is for this run alone
	logs       string // folder
}

var cluster clusterUp // set by TestMain, only read after

func TestMain(m *testing.M) {
	code, err := runWithCluster(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, "e2e:", err)
		os.Exit(1)
	}
	os.Exit(code)
}

func runWithCluster(m *testing.M) (code int, err error) {
	cluster.bin, cluster.run, cluster.logs = os.Getenv("E2E_BIN"), os.Getenv("E2E_RUN"), os.Getenv("E2E_LOGS")
	if cluster.bin == "" || cluster.run == "" || cluster.logs == "" {
		return 0, errors.New("start me by test/e2e/run.sh")
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	begin := time.Now()
	plane, err := controlplane.Start(ctx, controlplane.Config{
		Bin:       cluster.bin,
		Dir:       cluster.run,
		Logs:      cluster.logs,
		Bind:      "0.0.0.0",
		Advertise: hostAddress,
		Nodes:     nodeNames(),
	})
	if err != nil {
		return 0, fmt.Errorf("start control plane: %w", err)
	}
	defer plane.Stop()
	progress("control plane ready after %s", time.Since(begin).Round(time.Second))
	cluster.plane, cluster.kubeconfig = plane, plane.Kubeconfig()
	config, err := clientcmd.BuildConfigFromFlags("", cluster.kubeconfig)
	if err != nil {
		return 0, err
	}
	if cluster.client, err = kubernetes.NewForConfig(config); err != nil {
		return 0, err
	}

	defer func() {
		for _, n := range cluster.nodes {
			err = errors.Join(err, n.stop())
		}
		if err != nil || code != 0 {
			plane.WriteLogs(os.Stderr, 15)
			writeNodeLogs(os.Stderr, 25)
		}
	}()
	for i, name := range nodeNames() {
		n := &node{number: i, name: name}
		if err := n.start(); err != nil {
			return 0, fmt.Errorf("start %s: %w", name, err)
		}
		cluster.nodes = append(cluster.nodes, n)
	}
	for _, n := range cluster.nodes {
		if err := n.waitReady(ctx); err != nil {
			return 0, err
		}
	}
	progress("%d nodes ready after %s", len(cluster.nodes), time.Since(begin).Round(time.Second))
	return m.Run(), nil
}

// several reports whether this is the run of TestNodeDies and TestTakesOver, with three nodes.
func several() bool { return os.Getenv("E2E_NODES") != "" }

func nodeNames() []string {
	if several() {
		return []string{nodeName, nodeName + "1", nodeName + "2"}
	}
	return []string{nodeName}
}

// node is a virtual machine that runs node.sh.
type node struct {
	number int // of its tap
	name   string
	cmd    *exec.Cmd // nil: it was killed
	done   chan error
}

func (n *node) address() string { return fmt.Sprintf("10.9.%d.2", n.number) }

// pods is the range of its pods' addresses.
func (n *node) pods() string { return fmt.Sprintf("10.244.%d.0/24", n.number) }

// start boots it.
func (n *node) start() error {
	here, err := os.Getwd()
	if err != nil {
		return err
	}
	programs := os.Getenv("E2E_NODE")
	images := []string{
		filepath.Join(programs, "images", "pause.tar"),
		filepath.Join(programs, "images", "busybox.tar"),
		os.Getenv("E2E_IMAGE"),
		os.Getenv("E2E_XFS_IMAGE"),
		os.Getenv("E2E_LOCKER"),
	}
	memory := "4000"
	if several() {
		memory = "1800"
	} else {
		images = append(images, filepath.Join(os.Getenv("E2E_PREVIOUS"), "podnas-previous.tar"))
	}
	if restic := os.Getenv("E2E_RESTIC"); restic != "" {
		images = append(images, restic)
	}
	out, err := os.OpenFile(filepath.Join(cluster.logs, n.name+".log"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return err
	}
	defer out.Close()
	if several() { // what a pod network does
		if out, err := exec.Command("ip", "route", "replace", n.pods(), "via", n.address()).CombinedOutput(); err != nil {
			return fmt.Errorf("ip route to its pods: %w: %s", err, out)
		}
	}
	cmd := exec.Command(filepath.Join(here, "..", "vm", "vm.sh"),
		"-N", fmt.Sprint(n.number), "-o", "-m", memory, "-t", "3600", "-x", "8G", "-s", cluster.run, "-s", cluster.logs,
		"-e", "RUN="+cluster.run, "-e", "LOGS="+cluster.logs, "-e", "BIN="+cluster.bin, "-e", "NODE="+programs, "-e", "NAME="+n.name,
		"-e", "IP="+n.address(), "-e", "PODS="+n.pods(), "-e", "DISKS="+os.Getenv("DISKS"),
		"-e", "IMAGES="+strings.Join(images, " "),
		"bash '"+filepath.Join(here, "node.sh")+"'")
	cmd.Stdout, cmd.Stderr = out, out
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		return err
	}
	done := make(chan error, 1)
	n.cmd, n.done = cmd, done
	go func() { done <- cmd.Wait() }()
	return nil
}

// waitReady waits until kubelet says that the node is ready.
func (n *node) waitReady(ctx context.Context) error {
	for {
		found, err := cluster.client.CoreV1().Nodes().Get(ctx, n.name, metav1.GetOptions{})
		if err == nil && nodeReady(found) {
			return nil
		}
		select {
		case exit := <-n.done:
			n.done <- exit
			return fmt.Errorf("%s ended before it was ready: %w", n.name, exit)
		case <-ctx.Done():
			return fmt.Errorf("wait for the node to be ready: %w", errors.Join(ctx.Err(), err))
		case <-time.After(500 * time.Millisecond):
		}
	}
}

func nodeReady(n *corev1.Node) bool {
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

// stop lets the machine end by itself, so that vm.sh cleans up after it.
func (n *node) stop() error {
	if n.cmd == nil {
		return nil
	}
	if err := os.WriteFile(filepath.Join(cluster.run, "stop"), nil, 0o644); err != nil {
		return err
	}
	select {
	case err := <-n.done:
		if err != nil {
			return fmt.Errorf("%s: %w", n.name, err)
		}
		return nil
	case <-time.After(90 * time.Second):
		// The negative number is the process group.
		if err := syscall.Kill(-n.cmd.Process.Pid, syscall.SIGKILL); err != nil {
			return fmt.Errorf("kill the node: %w", err)
		}
		return errors.Join(errors.New("the node did not end when asked to"), <-n.done)
	}
}

// writeNodeLogs writes the last lines of the node's console and of each of its
// programs.
func writeNodeLogs(w io.Writer, lines int) {
	paths, err := filepath.Glob(filepath.Join(cluster.logs, "node*", "*.log"))
	if err != nil {
		panic(err) // only a bad pattern gives one
	}
	for _, n := range cluster.nodes {
		paths = append(paths, filepath.Join(cluster.logs, n.name+".log"))
	}
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			text = []byte(err.Error())
		}
		all := strings.Split(strings.TrimRight(string(text), "\n"), "\n")
		fmt.Fprintf(w, "--- last lines of %s\n%s\n", path, strings.Join(all[max(0, len(all)-lines):], "\n"))
	}
}

// progress tells what a long run is doing.
func progress(format string, args ...any) {
	fmt.Fprintf(os.Stderr, "e2e: "+format+"\n", args...)
}

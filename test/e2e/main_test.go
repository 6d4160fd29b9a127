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
		Node:      nodeName,
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

	node, err := startNode()
	if err != nil {
		return 0, fmt.Errorf("start node: %w", err)
	}
	defer func() {
		if stopErr := node.stop(); err == nil {
			err = stopErr
		}
		if err != nil || code != 0 {
			plane.WriteLogs(os.Stderr, 15)
			writeNodeLogs(os.Stderr, 25)
		}
	}()
	if err := node.waitReady(ctx); err != nil {
		return 0, err
	}
	progress("node ready after %s", time.Since(begin).Round(time.Second))
	return m.Run(), nil
}

// node is the virtual machine that runs node.sh.
type node struct {
	cmd  *exec.Cmd
	done chan error
}

func startNode() (*node, error) {
	here, err := os.Getwd()
	if err != nil {
		return nil, err
	}
	programs := os.Getenv("E2E_NODE")
	images := []string{
		filepath.Join(programs, "images", "pause.tar"),
		filepath.Join(programs, "images", "busybox.tar"),
		os.Getenv("E2E_IMAGE"),
		os.Getenv("E2E_XFS_IMAGE"),
		filepath.Join(os.Getenv("E2E_PREVIOUS"), "podnas-previous.tar"),
		filepath.Join(os.Getenv("E2E_PREVIOUS"), "podnas-previous-nfs4.tar"),
		os.Getenv("E2E_LOCKER"),
	}
	if restic := os.Getenv("E2E_RESTIC"); restic != "" {
		images = append(images, restic)
	}
	out, err := os.Create(filepath.Join(cluster.logs, "node.log"))
	if err != nil {
		return nil, err
	}
	defer out.Close()
	cmd := exec.Command(filepath.Join(here, "..", "vm", "vm.sh"),
		"-n", "-o", "-m", "4000", "-t", "3600", "-x", "8G", "-s", cluster.run, "-s", cluster.logs,
		"-e", "RUN="+cluster.run, "-e", "LOGS="+cluster.logs, "-e", "BIN="+cluster.bin, "-e", "NODE="+programs, "-e", "NAME="+nodeName,
		"-e", "IMAGES="+strings.Join(images, " "),
		"bash '"+filepath.Join(here, "node.sh")+"'")
	cmd.Stdout, cmd.Stderr = out, out
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	n := &node{cmd: cmd, done: make(chan error, 1)}
	go func() { n.done <- cmd.Wait() }()
	return n, nil
}

// waitReady waits until kubelet says that the node is ready.
func (n *node) waitReady(ctx context.Context) error {
	for {
		found, err := cluster.client.CoreV1().Nodes().Get(ctx, nodeName, metav1.GetOptions{})
		if err == nil && nodeReady(found) {
			return nil
		}
		select {
		case exit := <-n.done:
			n.done <- exit
			return fmt.Errorf("the node ended before it was ready: %w", exit)
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
	if err := os.WriteFile(filepath.Join(cluster.run, "stop"), nil, 0o644); err != nil {
		return err
	}
	select {
	case err := <-n.done:
		if err != nil {
			return fmt.Errorf("the node: %w", err)
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
	paths, err := filepath.Glob(filepath.Join(cluster.logs, "node", "*.log"))
	if err != nil {
		panic(err) // only a bad pattern gives one
	}
	for _, path := range append(paths, filepath.Join(cluster.logs, "node.log")) {
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

//go:build cluster

// Package cluster_test runs podnas, as a process, against a real control plane
// (package controlplane): what Kubernetes itself makes of its volumes, and what
// podnas makes of claims under bursts, crashes and restarts.
//
// podnas runs with the rights of its ServiceAccount in deploy/, so that a right
// that is missing there fails here. Each test has its own namespace, class,
// provisioner name and disk, and waits by listing: under a burst of claims the
// API server may close a watch early.
package cluster_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/podnas/podnas/test/cluster/controlplane"
)

// The names in deploy/base.
const (
	podnasNamespace = "podnas"
	podnasName      = "podnas" // of the ServiceAccount, the Roles and the Service
	policyName      = "podnas-persistentvolumes"
)

// suite is what all tests share. It is set by TestMain and, but for ports, only read after.
type suite struct {
	plane      *controlplane.ControlPlane
	client     *kubernetes.Clientset // the administrator's
	bin        string                // folder of kubectl
	podnas     string                // the binary under test
	kubeconfig string                // podnas's, with its ServiceAccount's rights
	logs       string                // folder
	ports      sync.Map              // that tests have had, by number
}

var cluster suite

func TestMain(m *testing.M) {
	code, err := runSuite(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, "cluster tests:", err)
		os.Exit(1)
	}
	os.Exit(code)
}

func runSuite(m *testing.M) (code int, err error) {
	dir, err := os.MkdirTemp("", "podnas-cluster-")
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(dir)
	cluster.logs = dir
	if kept := os.Getenv("PODNAS_LOGS"); kept != "" {
		cluster.logs = kept
	}

	if cluster.bin, err = output("./build.sh", "etcd", "kube-apiserver", "kube-controller-manager", "kubectl", "snapshot-controller"); err != nil {
		return 0, err
	}
	cluster.podnas = filepath.Join(dir, "podnas")
	if _, err := output("go", "build", "-o", cluster.podnas, "../../cmd/podnas"); err != nil {
		return 0, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	begin := time.Now()
	cluster.plane, err = controlplane.Start(ctx, controlplane.Config{Bin: cluster.bin, Dir: dir, Logs: cluster.logs})
	if err != nil {
		return 0, fmt.Errorf("start control plane: %w", err)
	}
	defer cluster.plane.Stop()
	fmt.Printf("control plane ready after %s\n", time.Since(begin).Round(100*time.Millisecond))

	config, err := clientcmd.BuildConfigFromFlags("", cluster.plane.Kubeconfig())
	if err != nil {
		return 0, err
	}
	config.QPS, config.Burst = -1, -1 // no limit: the bursts are ours
	if cluster.client, err = kubernetes.NewForConfig(config); err != nil {
		return 0, err
	}
	if err := applyRBAC(ctx, "../../deploy/base"); err != nil {
		return 0, err
	}
	cluster.kubeconfig = filepath.Join(dir, "podnas.kubeconfig")
	if err := writeKubeconfig(ctx, cluster.kubeconfig, podnasNamespace, podnasName); err != nil {
		return 0, fmt.Errorf("make podnas's kubeconfig: %w", err)
	}
	if code = m.Run(); code != 0 {
		cluster.plane.WriteLogs(os.Stdout, 20)
	}
	return code, nil
}

// applyRBAC applies the Namespace, the ServiceAccount and the rights of a
// kustomization of deploy/, and nothing else of it.
func applyRBAC(ctx context.Context, kustomization string) error {
	rendered, err := kubectl(ctx, nil, "kustomize", kustomization)
	if err != nil {
		return err
	}
	objects, err := rbac(rendered)
	if err != nil {
		return fmt.Errorf("%s: %w", kustomization, err)
	}
	_, err = kubectl(ctx, objects, "apply", "-f", "-")
	return err
}

// rbac returns of what a kustomization makes the Namespace, the ServiceAccount and the rights. Its policy is made to
// know the provisioners of all tests, see tenant.
func rbac(rendered []byte) ([]byte, error) {
	var wanted [][]byte
	for _, doc := range bytes.Split(rendered, []byte("\n---\n")) {
		for _, kind := range []string{
			"Namespace", "ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding",
			"ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding",
		} {
			if bytes.Contains(append([]byte("\n"), doc...), []byte("\nkind: "+kind+"\n")) {
				wanted = append(wanted, doc)
			}
		}
	}
	if len(wanted) < 8 {
		return nil, fmt.Errorf("found only %d of the 8 objects that give podnas its rights", len(wanted))
	}
	all := bytes.Join(wanted, []byte("\n---\n"))
	known := []byte(" == 'podnas.io/nfs'")
	if bytes.Count(all, known) < 2 {
		return nil, fmt.Errorf("the policies do not have%s twice", known)
	}
	return bytes.ReplaceAll(all, known, []byte(".startsWith('"+testProvisioners+"')")), nil
}

// writeKubeconfig writes a kubeconfig with a token of a ServiceAccount.
func writeKubeconfig(ctx context.Context, path, namespace, account string) error {
	hour := int64(3600)
	token, err := cluster.client.CoreV1().ServiceAccounts(namespace).CreateToken(ctx, account,
		&authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: &hour}}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	config, err := clientcmd.LoadFromFile(cluster.plane.Kubeconfig())
	if err != nil {
		return err
	}
	for name := range config.AuthInfos {
		config.AuthInfos[name] = &clientcmdapi.AuthInfo{Token: token.Status.Token}
	}
	return clientcmd.WriteToFile(*config, path)
}

// kubectl runs kubectl as the administrator and returns what it prints.
func kubectl(ctx context.Context, stdin []byte, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, filepath.Join(cluster.bin, "kubectl"), args...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+cluster.plane.Kubeconfig())
	cmd.Stdin = bytes.NewReader(stdin)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("kubectl %s: %w\n%s", strings.Join(args, " "), err, stderr.Bytes())
	}
	if bytes.Contains(stderr.Bytes(), []byte("Warning:")) {
		return nil, fmt.Errorf("kubectl %s: %s", strings.Join(args, " "), stderr.Bytes())
	}
	return stdout.Bytes(), nil
}

// output runs a command that tells its progress on stderr.
func output(name string, args ...string) (string, error) {
	cmd := exec.Command(name, args...)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return "", errors.Join(fmt.Errorf("run %s", name), err)
	}
	return strings.TrimSpace(string(out)), nil
}

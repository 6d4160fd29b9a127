package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/klog/v2"

	"github.com/podnas/podnas/internal/status"
)

// podnas runs a command and returns what it prints.
func podnas(ctx context.Context, args ...string) (stdout, stderr string, err error) {
	var out bytes.Buffer
	var errs syncBuffer // client-go's log, which a process has one of, may still be written to
	cmd := newCommand()
	cmd.SetArgs(args)
	cmd.SetIn(strings.NewReader("")) // nobody is there
	cmd.SetOut(&out)
	cmd.SetErr(&errs)
	err = execute(ctx, cmd)
	return out.String(), errs.String(), err
}

func TestVersionAndHelp(t *testing.T) {
	if out, _, err := podnas(t.Context(), "version"); err != nil || !strings.HasPrefix(out, "podnas "+version) {
		t.Errorf("version: %q, %v", out, err)
	}
	out, _, err := podnas(t.Context(), "serve", "--help")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"Examples:", "--standalone", "--quota", "default \"/export\""} {
		if !strings.Contains(out, want) {
			t.Errorf("serve --help lacks %q", want)
		}
	}
}

// What a user mistypes or forgets is said before anything is touched.
func TestServeRefuses(t *testing.T) {
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	busy, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer busy.Close()
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	err = os.WriteFile(kubeconfig, []byte(`
apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: "http://127.0.0.1:1"}}]
contexts: [{name: c, context: {cluster: c}}]
current-context: c
`), 0o600)
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name string
		args []string
		want string
	}{
		{"claims without standalone", []string{"--claims=x"}, "--standalone and --claims"},
		{"standalone without claims", []string{"--standalone"}, "--standalone and --claims"},
		{"a folder of claims that is not there", []string{"--standalone", "--claims=" + t.TempDir() + "/clams"}, "clams, does not exist: correct --claims"},
		{"a folder of claims that is none", []string{"--standalone", "--claims=" + os.Args[0]}, "is not a folder"},
		{"quota", []string{"--quota=ext4"}, "auto, kernel, server or off"},
		{"engine", []string{"--engine=ganesha"}, "engine"},
		{"version 4 with go-nfs", []string{"--standalone", "--claims=" + t.TempDir(), "--engine=go-nfs", "--nfs4"}, "--nfs4: NFSv4.1 needs the native engine"},
		{"overcommit", []string{"--overcommit=-1"}, "a multiple of the size of the disk"},
		{"overcommit NaN", []string{"--overcommit=NaN"}, "a multiple of the size of the disk"},
		{"log level", []string{"--log-level=loud"}, "debug, info, warn or error"},
		{"log format", []string{"--log-format=xml"}, "text or json"},
		{"listen", []string{"--standalone", "--claims=" + t.TempDir(), "--listen=" + busy.Addr().String()}, "--listen="},
		{"http", []string{"--standalone", "--claims=" + t.TempDir(), "--http=" + busy.Addr().String()}, "--http="},
		{"argument", []string{"extra"}, "unexpected argument"},
		{"no cluster", nil, "--standalone --root=DIR --claims=DIR"},
		{"no cluster, and a root that is not there", []string{"--root=/nowhere"}, "--standalone --root=DIR --claims=DIR"},
		{"no address", []string{"--kubeconfig=" + kubeconfig}, "--server-address"},
		{"bad address", []string{"--kubeconfig=" + kubeconfig, "--server-address=nas.example.com"}, "not an IPv4 or IPv6 address"},
		{"no lease namespace", []string{"--kubeconfig=" + kubeconfig, "--server-address=10.0.0.1", "--leader-elect"}, "--leader-elect-namespace"},
		{"provisioner name", []string{"--kubeconfig=" + kubeconfig, "--server-address=10.0.0.1", "--provisioner=podnas"}, "DOMAIN/NAME"},
		{"workers", []string{"--kubeconfig=" + kubeconfig, "--server-address=10.0.0.1", "--workers=0"}, "at least 1"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			args := append([]string{"serve", "--root=" + t.TempDir(), "--listen=127.0.0.1:0", "--http=127.0.0.1:0"}, tt.args...)
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			_, _, err := podnas(ctx, args...)
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%v, want an error with %q", err, tt.want)
			}
		})
	}
}

// The whole appliance on a folder: a claim becomes a PersistentVolume, and an
// end of the context is a clean end.
func TestServeStandalone(t *testing.T) {
	root, claims := t.TempDir(), t.TempDir()
	err := os.WriteFile(filepath.Join(claims, "claim.yaml"), []byte(`
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: podnas}
provisioner: podnas.io/nfs
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: data}
spec:
  storageClassName: podnas
  accessModes: [ReadWriteMany]
  resources: {requests: {storage: 1Mi}}
`), 0o600)
	if err != nil {
		t.Fatal(err)
	}
	run := func() string {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		go func() { // end it when the volume is there
			for ctx.Err() == nil {
				if found, _ := filepath.Glob(claims + "/provisioned/*.yaml"); len(found) == 1 {
					time.Sleep(100 * time.Millisecond)
					cancel()
				}
				time.Sleep(10 * time.Millisecond)
			}
		}()
		out, errs, err := podnas(ctx, "serve", "--standalone", "--root="+root, "--claims="+claims,
			"--listen=127.0.0.1:0", "--http=127.0.0.1:0", "--log-format=json")
		if err != nil || strings.Contains(errs, `"level":"ERROR"`) {
			t.Errorf("%v; log: %s", err, errs)
		}
		return out
	}
	first := run()
	if !strings.Contains(first, "sudo mount -t nfs") {
		t.Errorf("printed %q", first)
	}
	if volumes, _ := filepath.Glob(root + "/pvc-*"); len(volumes) != 1 || !strings.Contains(first, volumes[0]) {
		t.Errorf("volumes %v, printed %q", volumes, first)
	}
	run()
	if volumes, _ := filepath.Glob(root + "/pvc-*"); len(volumes) != 1 {
		t.Errorf("after a restart: volumes %v", volumes)
	}
	// Each start takes its places from the default, not from what the last left.
	if n, most := runtime.GOMAXPROCS(0), 4*runtime.NumCPU(); n > most {
		t.Errorf("after two starts Go runs %d goroutines at once, want %d at most", n, most)
	}
}

func TestKlogIsDetail(t *testing.T) {
	var out bytes.Buffer
	if _, err := newLogger(&out, "text", "info", &status.Events{}); err != nil {
		t.Fatal(err)
	}
	klog.Info("a step of the library")
	klog.Error("trouble")
	utilruntime.HandleError(errors.New(`error syncing claim "1": failed to provision volume: volume a is being copied`))
	klog.Error(`delete "pvc-1": volume deletion failed: busy`)
	if strings.Contains(out.String(), "a step") || strings.Contains(out.String(), "copied") || strings.Contains(out.String(), "busy") || !strings.Contains(out.String(), "trouble") {
		t.Errorf("at level info: %s", out.String())
	}
	out.Reset()
	if _, err := newLogger(&out, "text", "debug", &status.Events{}); err != nil {
		t.Fatal(err)
	}
	klog.Info("a step of the library")
	utilruntime.HandleError(errors.New(`error syncing claim "1": failed to provision volume: volume a is being copied`))
	if strings.Count(out.String(), "level=DEBUG") != 2 || !strings.Contains(out.String(), "copied") {
		t.Errorf("at level debug: %s", out.String())
	}
	if _, err := newLogger(io.Discard, "text", "info", &status.Events{}); err != nil {
		t.Fatal(err)
	}
}

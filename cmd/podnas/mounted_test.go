package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/podnas/podnas/provisioner/control"
	"github.com/podnas/podnas/provisioner/controller"
)

// Each change is told once, and the end is when the last pod is gone.
func TestMountedWaits(t *testing.T) {
	pod := func(name string) controller.User {
		return controller.User{Namespace: "ns", Pod: name, Node: "node-a", Claim: "data", Volume: "pvc-1"}
	}
	looks := []control.Mounted{
		{Cluster: true, Users: []controller.User{pod("a"), pod("b")}},
		{Cluster: true, Users: []controller.User{pod("a"), pod("b")}},
		{Cluster: true, Users: []controller.User{pod("b")}, Clients: []netip.Addr{netip.MustParseAddr("10.0.0.1")}},
		{Cluster: true, Deleting: []string{"pvc-1"}},
		{Cluster: true, Clients: []netip.Addr{netip.MustParseAddr("10.0.0.1")}}, // kubelet has let go, the kernel stays connected
	}
	var out bytes.Buffer
	n := 0
	u := &unmounting{period: time.Millisecond, timeout: -1, out: &out, ask: func(context.Context) (control.Mounted, error) {
		n++
		return looks[n-1], nil
	}}
	if _, err := u.wait(t.Context()); err != nil {
		t.Error(err)
	}
	want := `2 pods with 1 volume, 0 clients connected:
  NAMESPACE   POD   NODE     CLAIM   VOLUME   
  ns          a     node-a   data    pvc-1    
  ns          b     node-a   data    pvc-1    
1 pod with 1 volume, 1 client connected:
  NAMESPACE   POD   NODE     CLAIM   VOLUME   
  ns          b     node-a   data    pvc-1    
0 pods with 0 volumes, 0 clients connected, 1 volume to be deleted:
  volume pvc-1 is to be deleted
Nothing is mounted.
`
	if out.String() != want {
		t.Errorf("it says\n%s\nwant\n%s", &out, want)
	}

	n = 0
	u.timeout = 0
	if _, err := u.wait(t.Context()); exitCode(err) != exitRefused || !strings.Contains(err.Error(), "2 pods with 1 volume") || n != 1 {
		t.Errorf("without waiting: %v after %d looks", err, n)
	}
	u.ask = func(context.Context) (control.Mounted, error) { return looks[0], nil }
	u.timeout = 20 * time.Millisecond
	if _, err := u.wait(t.Context()); exitCode(err) != exitRefused {
		t.Errorf("the time is over: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	u.timeout = -1
	if _, err := u.wait(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("interrupted: %v", err)
	}
	u.ask = func(context.Context) (control.Mounted, error) { return control.Mounted{}, errors.New("forbidden") }
	if _, err := u.wait(t.Context()); exitCode(err) != exitFailed {
		t.Errorf("the API server refuses: %v", err)
	}
}

// Without a cluster who is connected counts.
func TestMountedStandalone(t *testing.T) {
	root, _ := serveStandalone(t)
	t.Setenv("PODNAS_ROOT", root)
	step{command: "mounted", stdout: "Nothing is mounted.", stderr: "-"}.run(t)
	step{command: "mounted --wait", stdout: "Nothing is mounted."}.run(t)

	out, _, err := podnas(t.Context(), "doctor", "-o", "json")
	mustDo(t, err)
	var report control.Report
	mustDo(t, json.Unmarshal([]byte(out), &report))
	client, err := net.Dial("tcp", report.Process.Listen)
	mustDo(t, err)
	defer client.Close()
	deadline := time.Now().Add(10 * time.Second)
	for {
		out, _, err = podnas(t.Context(), "mounted", "-o", "json")
		if exitCode(err) == exitRefused {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("a client is connected: %v, %s", err, out)
		}
		time.Sleep(10 * time.Millisecond)
	}
	if !strings.Contains(out, `"127.0.0.1"`) || !strings.Contains(err.Error(), "1 client is connected") {
		t.Errorf("%s, %v", out, err)
	}
	step{command: "mounted --wait --timeout=1ms", code: exitRefused, err: "1 client is connected", stdout: "127.0.0.1"}.run(t)
	time.AfterFunc(100*time.Millisecond, func() { client.Close() })
	step{command: "mounted --wait --timeout=20s", stdout: "Nothing is mounted."}.run(t)
	step{command: "mounted --timeout=20s", code: exitUsage, err: "--timeout is for --wait"}.run(t)
	step{command: "mounted -o wide", code: exitUsage, err: "table, json, yaml"}.run(t)
}

// A mount that is tried against the running podnas, as a user would.
func TestDoctorMountCommand(t *testing.T) {
	root, _ := serveStandalone(t)
	t.Setenv("PODNAS_ROOT", root)
	t.Setenv("KUBERNETES_SERVICE_HOST", "10.96.0.1") // this machine may have no mount.nfs
	step{command: "volume create data --size=1Mi"}.run(t)
	out, _, err := podnas(t.Context(), "doctor", "-o", "json")
	mustDo(t, err)
	var report control.Report
	mustDo(t, json.Unmarshal([]byte(out), &report))
	host, port, err := net.SplitHostPort(report.Process.Listen)
	mustDo(t, err)
	options := " --options=nolock,port=" + port
	step{command: "doctor mount " + host + ":/data" + options, stdout: "ok  remove     the file was removed\n\nNothing is wrong.", stderr: "-"}.run(t)
	step{command: "doctor mount " + host + ":" + port + ":/data -o json", stdout: `"check": "remove"`}.run(t)
	step{command: "doctor mount " + host + ":/gone" + options, stdout: "FAILED  mount", code: exitFailed, err: "1 problem found"}.run(t)
	step{command: "doctor mount " + host + ":/data --options=soft,nolock,port=" + port, stdout: "WARNING  options", code: exitWarnings, err: "1 warning"}.run(t)
	node := t.TempDir() // without mount.nfs
	step{command: "doctor mount " + host + ":/data" + options + " --node-root=" + node, stdout: "FAILED   mount.nfs", code: exitFailed}.run(t)
	mustDo(t, os.Mkdir(filepath.Join(node, "sbin"), 0o755))
	mustDo(t, os.WriteFile(filepath.Join(node, "sbin/mount.nfs"), nil, 0o755))
	mustDo(t, os.Mkdir(filepath.Join(node, "proc"), 0o755))
	mustDo(t, os.WriteFile(filepath.Join(node, "proc/filesystems"), []byte("nodev\tnfs\n"), 0o600))
	step{command: "doctor mount " + host + ":/data" + options + " --node-root=" + node, stdout: node + "/sbin/mount.nfs is there"}.run(t)
	step{command: "doctor mount " + root, stdout: "is not on NFS", code: exitFailed}.run(t)
	step{command: "doctor mount nothing", code: exitUsage, err: "HOST:/path"}.run(t)
	step{command: "doctor mount a:/b --options=port=many", code: exitUsage, err: "is not a port"}.run(t)
	step{command: "doctor mount a:/b -o port=1", code: exitUsage, err: "use -o table, json, yaml"}.run(t)
	step{command: "doctor mount", code: exitUsage, err: "is missing"}.run(t)
}

package main

import (
	"context"
	"errors"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/podnas/podnas/internal/volume"
)

// answered serves a disk as a podnas whose answers are those of a function, which gets the method, the path, and the number of
// each request.
func answered(t *testing.T, answer func(request string, n int64) string) (root string) {
	t.Helper()
	root = t.TempDir()
	mustDo(t, os.Mkdir(filepath.Join(root, volume.StateDir), 0o700))
	l, err := net.Listen("unix", filepath.Join(root, volume.ControlSocket))
	if err != nil {
		t.Fatal(err)
	}
	var requests atomic.Int64
	server := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		text := answer(r.Method+" "+r.URL.Path, requests.Add(1))
		switch {
		case text == "":
			t.Errorf("%s %s", r.Method, r.URL)
		case strings.Contains(text, "Copying"):
			w.WriteHeader(http.StatusAccepted)
		}
		_, _ = w.Write([]byte(text))
	})}
	go func() { _ = server.Serve(l) }()
	t.Cleanup(func() { _ = server.Close() })
	return root
}

// neverDone serves a disk as a podnas at which nothing comes to its end. It calls asked with the number of each request.
func neverDone(t *testing.T, asked func(n int64)) (root string) {
	t.Helper()
	answers := map[string]string{
		"POST /v1/volumes":   `{"code":"Copying","message":"volume data is being copied: 2 files with 3Ki so far","progress":{"source":"data","files":2,"bytes":3072}}`,
		"POST /v1/adopt":     `{"name":"data","size":1048576,"state":"ready","assigning":{}}`,
		"GET /v1/volume":     `{"name":"data","size":1048576,"state":"ready","assigning":{}}`,
		"GET /v1/manifests":  `[]`,
		"POST /v1/snapshots": `{"name":"now","volume":"data","state":"taking"}`,
		"GET /v1/snapshot":   `{"name":"now","volume":"data","state":"taking"}`,
		"POST /v1/restore":   `{"volume":"data","name":"now"}`,
		"GET /v1/restore":    `{"volume":"data","name":"now","safety":"before-restore","files":3,"total":10}`,
		"GET /v1/usage":      `{"clients":["192.0.2.1"]}`,
	}
	return answered(t, func(request string, n int64) string {
		asked(n)
		return answers[request]
	})
}

// A script must see that what it waits for is not there, and a person what goes on without the command.
func TestInterrupted(t *testing.T) {
	for _, tt := range []struct {
		command string
		err     string // empty: it is not interrupted
	}{
		{"volume create b --size 1Mi --from data", "The copy continues in the background. Repeat the command to see its progress"},
		{"volume copy data b", "volume data is being copied: 2 files with 3Ki so far\nThe copy continues in the background."},
		{"volume copy data b -o json", "The copy continues in the background."},
		{"volume copy data b --no-wait", ""},
		{"volume adopt data --size 1Mi", "volume data can be mounted; its files are assigned to it in the background, and its size is not enforced until then.\n'podnas volume show data' tells"},
		{"volume adopt data --size 1Mi --no-wait", ""},
		{"snapshot create data", "snapshot now of volume data is being taken in the background: 'podnas snapshot show data now' tells how far it is, and 'podnas snapshot delete data now' ends it"},
		{"snapshot create data -o name", "is being taken in the background"},
		{"snapshot create data -o json", "is being taken in the background"},
		{"snapshot create data -o name --no-wait", ""},
		{"snapshot restore data now", "volume data is being restored in the background; changes by its clients wait for that"},
		{"snapshot restore data now -o yaml", "is being restored in the background"},
		{"mounted --wait", "interrupted"},
	} {
		t.Run(tt.command, func(t *testing.T) {
			ctx, interrupt := context.WithCancel(t.Context())
			defer interrupt()
			t.Setenv("PODNAS_ROOT", neverDone(t, func(n int64) {
				if n == 3 {
					interrupt()
				}
			}))
			if tt.err == "interrupted" { // it looks each few seconds
				time.AfterFunc(100*time.Millisecond, interrupt)
			}
			stdout, stderr, err := podnas(ctx, strings.Fields(tt.command)...)
			switch {
			case tt.err == "":
				if exitCode(err) != 0 {
					t.Errorf("%v", err)
				}
			case exitCode(err) != exitInterrupted || !strings.Contains(err.Error(), tt.err):
				t.Errorf("exit code %d, %v; on stderr %q", exitCode(err), err, stderr)
			case stdout != "" && !strings.HasPrefix(tt.command, "mounted"):
				t.Errorf("on stdout %q", stdout)
			}
		})
	}
}

// An error that is not the signal's stays what it is, although there was one.
func TestInterruptedToo(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("interrupt signal received")) // as signal.NotifyContext
	for command, code := range map[string]int{"volume create": exitUsage, "volume list": exitInterrupted} {
		t.Setenv("PODNAS_ROOT", neverDone(t, func(int64) {}))
		if _, _, err := podnas(ctx, strings.Fields(command)...); exitCode(err) != code {
			t.Errorf("%s: %v, exit code %d", command, err, exitCode(err))
		}
	}
}

// The plug-in ends like the command in the pod, which without a terminal may go on.
func TestPluginInterrupted(t *testing.T) {
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	inCluster(t, &apiServer{hangs: interrupt})
	stdout, _, err := plugin(ctx, "snapshot", "create", "data", "-o", "name")
	if want := "interrupted; 'podnas snapshot create --output=name -- data' may go on in pod storage/team-podnas-0"; exitCode(err) != exitInterrupted || err.Error() != want || stdout != "" {
		t.Errorf("%q, %v, exit code %d", stdout, err, exitCode(err))
	}
}

// A command that adopts many files ends when all are assigned to the volume, and says if that can't be done, or is more than
// the size.
func TestAdoptManyFiles(t *testing.T) {
	for _, tt := range []struct {
		name, then string
		code       int
		err        string
	}{
		{"done", `"used":{"Bytes":4096,"Limit":{"Bytes":1048576}}`, 0, ""},
		{"too large", `"used":{"Bytes":2097152,"Limit":{"Bytes":1048576}}`, exitUsage, "take 2Mi, more than its size of 1Mi, so clients can add nothing: raise it with 'podnas volume resize data SIZE'"},
		{"it fails", `"assigning":{"problem":"a bad sector"}`, exitFailed, "its files can't be assigned to it, so its size is not enforced: a bad sector\npodnas tries again each minute"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Setenv("PODNAS_ROOT", answered(t, func(request string, n int64) string {
				switch {
				case request == "GET /v1/manifests":
					return `[{"volume":{"metadata":{"name":"data"}}}]`
				case n < 3:
					return `{"name":"data","size":1048576,"state":"ready","assigning":{},"used":{"Bytes":1024,"Inodes":5,"Partial":true}}`
				}
				return `{"name":"data","size":1048576,"state":"ready",` + tt.then + `}`
			}))
			stdout, stderr, err := podnas(t.Context(), "volume", "adopt", "data", "--size=1Mi")
			if exitCode(err) != tt.code || err != nil && !strings.Contains(err.Error(), tt.err) {
				t.Errorf("exit code %d, %v", exitCode(err), err)
			}
			if ready := strings.Contains(stdout, "name: data") && strings.Contains(stderr, "is ready"); ready != (tt.code == 0) {
				t.Errorf("%q, on stderr %q", stdout, stderr)
			}
		})
	}
}

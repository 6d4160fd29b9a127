package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gorilla/websocket"
	"github.com/spf13/cobra"
	"golang.org/x/term"
	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/remotecommand"
	"k8s.io/streaming/pkg/httpstream"
	"k8s.io/streaming/pkg/httpstream/spdy"

	"github.com/podnas/podnas/test/testdisk"
)

// apiServer is an API server with one podnas, whose pod's commands run in this process.
type apiServer struct {
	t         *testing.T
	spdyOnly  bool   // as one before 1.30, or a proxy that knows no WebSocket
	forbidden bool   // nobody may run commands in pods
	noGet     bool   // but may only create pods/exec, so not by a WebSocket
	drops     bool   // the connection is lost at once
	tty       bool   // commands get a terminal
	hangs     func() // called when a command begins, which then does not end

	mu  sync.Mutex
	ran [][]string // the commands
}

func (s *apiServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	meta := metav1.ObjectMeta{Namespace: "storage", Name: "team-podnas", Labels: map[string]string{"app.kubernetes.io/name": "team-podnas"}}
	containers := []v1.Container{{Name: "podnas"}}
	switch r.URL.Path {
	case "/apis/apps/v1/statefulsets":
		set := appsv1.StatefulSet{ObjectMeta: meta}
		set.Spec.Template.Spec.Containers = containers
		s.write(w, http.StatusOK, appsv1.StatefulSetList{TypeMeta: metav1.TypeMeta{Kind: "StatefulSetList", APIVersion: "apps/v1"}, Items: []appsv1.StatefulSet{set}})
	case "/api/v1/namespaces/storage/pods/team-podnas-0":
		pod := v1.Pod{TypeMeta: metav1.TypeMeta{Kind: "Pod", APIVersion: "v1"}, ObjectMeta: metav1.ObjectMeta{Namespace: "storage", Name: "team-podnas-0"}}
		pod.Status.ContainerStatuses = []v1.ContainerStatus{{Name: "podnas", State: v1.ContainerState{Running: &v1.ContainerStateRunning{}}}}
		s.write(w, http.StatusOK, pod)
	case "/api/v1/namespaces/storage/pods/team-podnas-0/exec":
		s.exec(w, r)
	default:
		s.t.Errorf("the API server is asked for %s %s", r.Method, r.URL)
		w.WriteHeader(http.StatusNotFound)
	}
}

func (s *apiServer) write(w http.ResponseWriter, code int, object any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	if err := json.NewEncoder(w).Encode(object); err != nil {
		s.t.Error(err)
	}
}

func (s *apiServer) exec(w http.ResponseWriter, r *http.Request) {
	isWebSocket := websocket.IsWebSocketUpgrade(r)
	switch query := r.URL.Query(); {
	case s.forbidden, s.noGet && isWebSocket:
		s.write(w, http.StatusForbidden, metav1.Status{
			TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusFailure, Reason: metav1.StatusReasonForbidden, Code: http.StatusForbidden,
			Message: `pods "team-podnas-0" is forbidden: User "jane" cannot create resource "pods/exec"`,
		})
		return
	case isWebSocket && s.spdyOnly:
		http.Error(w, "no such upgrade", http.StatusBadRequest)
		return
	case query.Get("container") != "podnas" || query.Has("stdin") != s.tty || query.Has("tty") != s.tty || query.Has("stderr") == s.tty:
		s.t.Errorf("a command is run with %s, with a terminal: %v", r.URL.RawQuery, s.tty)
	}
	if isWebSocket {
		upgrader := websocket.Upgrader{Subprotocols: []string{remotecommand.StreamProtocolV5Name}}
		conn, err := upgrader.Upgrade(w, r, nil)
		if err != nil {
			s.t.Error(err)
			return
		}
		defer conn.Close()
		if s.hangs != nil {
			s.hangs()
			for err == nil { // until the client has gone
				_, _, err = conn.ReadMessage()
			}
			return
		}
		channel := func(number byte) io.Writer {
			return writerFunc(func(b []byte) (int, error) {
				return len(b), conn.WriteMessage(websocket.BinaryMessage, append([]byte{number}, b...))
			})
		}
		stderr := channel(remotecommand.StreamStdErr)
		if s.tty {
			stderr = channel(remotecommand.StreamStdOut)
			_, said, err := conn.ReadMessage()
			if err != nil || !strings.HasPrefix(string(said), "\x04{\"Width\":") {
				s.t.Errorf("the terminal's size is told as %q, %v", said, err)
			}
		}
		s.run(r, channel(remotecommand.StreamStdOut), stderr, channel(remotecommand.StreamErr))
		_ = conn.WriteMessage(websocket.CloseMessage, websocket.FormatCloseMessage(websocket.CloseNormalClosure, "")) // seen by the client
		return
	}
	if _, err := httpstream.Handshake(r, w, []string{remotecommand.StreamProtocolV4Name}); err != nil {
		s.t.Error(err)
		return
	}
	streams := make(chan httpstream.Stream, 3)
	conn := spdy.NewResponseUpgrader().UpgradeResponse(w, r, func(stream httpstream.Stream, _ <-chan struct{}) error {
		streams <- stream
		return nil
	})
	defer conn.Close()
	if s.drops {
		return
	}
	of := map[string]io.Writer{}
	for range 3 {
		stream := <-streams
		of[stream.Headers().Get(v1.StreamType)] = stream
	}
	s.run(r, of[v1.StreamTypeStdout], of[v1.StreamTypeStderr], of[v1.StreamTypeError])
	for _, stream := range of {
		_ = stream.(httpstream.Stream).Close() // seen by the client
	}
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(b []byte) (int, error) { return f(b) }

// run runs a command as main does in a pod.
func (s *apiServer) run(r *http.Request, stdout, stderr, status io.Writer) {
	command := r.URL.Query()["command"]
	s.mu.Lock()
	s.ran = append(s.ran, command)
	s.mu.Unlock()
	out, errs, err := podnas(r.Context(), command[1:]...)
	if err != nil {
		errs += fmt.Sprintln("podnas:", err)
	}
	for _, said := range []struct {
		on   io.Writer
		text string
	}{{stdout, out}, {stderr, errs}} {
		if _, err := io.WriteString(said.on, said.text); said.text != "" && err != nil {
			s.t.Error(err)
		}
	}
	ended := metav1.Status{Status: metav1.StatusSuccess}
	if code := exitCode(err); code != 0 {
		ended = metav1.Status{
			Status: metav1.StatusFailure, Reason: remotecommand.NonZeroExitCodeReason, Message: fmt.Sprint("ended with ", code),
			Details: &metav1.StatusDetails{Causes: []metav1.StatusCause{{Type: remotecommand.ExitCodeCauseType, Message: fmt.Sprint(code)}}},
		}
	}
	if err := json.NewEncoder(status).Encode(ended); err != nil {
		s.t.Error(err)
	}
}

// plugin runs kubectl podnas.
func plugin(ctx context.Context, args ...string) (stdout, stderr string, err error) {
	var out, errs syncBuffer // client-go may still copy into them, if it was interrupted
	cmd, args := newCommandFor("/usr/local/bin/kubectl-podnas", args)
	cmd.SetArgs(args)
	cmd.SetIn(strings.NewReader("the rest of a loop's names"))
	cmd.SetOut(&out)
	cmd.SetErr(&errs)
	err = execute(ctx, cmd)
	return out.String(), errs.String(), err
}

// inCluster starts an API server, to which the kubeconfig leads, before a podnas that serves.
func inCluster(t *testing.T, s *apiServer) (root string) {
	t.Helper()
	s.t = t
	root, _ = serveStandalone(t)
	t.Setenv("PODNAS_ROOT", root)
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	file := filepath.Join(t.TempDir(), "config")
	mustDo(t, os.WriteFile(file, fmt.Appendf(nil, `
apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: %q}}, {name: gone, cluster: {server: "http://127.0.0.1:1"}}]
contexts: [{name: c, context: {cluster: c}}, {name: gone, context: {cluster: gone}}]
current-context: c
`, server.URL), 0o600))
	t.Setenv("KUBECONFIG", file)
	mustDo(t, os.WriteFile(filepath.Join(root, "empty"), []byte("apiVersion: v1\nkind: Config\n"), 0o600))
	return root
}

// What is typed on the own machine runs in the pod, with its output and its exit code, by either protocol.
func TestPlugin(t *testing.T) {
	for _, spdyOnly := range []bool{false, true} {
		t.Run(map[bool]string{false: "WebSocket", true: "SPDY"}[spdyOnly], func(t *testing.T) {
			s := &apiServer{spdyOnly: spdyOnly}
			root := inCluster(t, s)
			for _, tt := range []struct {
				args                []string
				ran                 string // in the pod; empty: nothing
				stdout, stderr, err string
				code                int
			}{
				{args: []string{"volume", "list"}, ran: "podnas volume list --", stderr: "there are no volumes on " + root},
				{
					args: []string{"volume", "create", "a", "--size", "10Mi", "--mount-options=hard,nfsvers=3", "--mount-options=nconnect=2", "--read-only", "-n", "storage", "--name=team-podnas"},
					ran:  "podnas volume create --size=10Mi --mount-options=hard --mount-options=nfsvers=3 --mount-options=nconnect=2 --read-only=true -- a", stdout: "name: a\n", stderr: "volume a is ready",
				},
				{args: []string{"vol", "ls", "-o", "name", "--sort=size"}, ran: "podnas volume list --output=name --sort=size --", stdout: "a\n"},
				{args: []string{"volume", "show", "none"}, ran: "podnas volume show -- none", stderr: "podnas: none", code: exitNotFound},
				{args: []string{"volume", "delete", "a"}, ran: "podnas volume delete -- a", stderr: "use --yes", code: exitUsage},
				{args: []string{"volume", "create", "huge", "--size=1Ei"}, ran: "podnas volume create --size=1Ei -- huge", stderr: "1Ei", code: exitNoSpace},
				{args: []string{"volume", "resize", "a", "--", "-1Gi"}, ran: "podnas volume resize -- a -1Gi", stderr: "invalid size", code: exitUsage},
				{args: []string{"client", "list"}, ran: "podnas client list --", stdout: "There are no clients."},
				{args: []string{"doctor"}, ran: "podnas doctor --", stdout: "Nothing is wrong."},
				{args: []string{"mounted", "--wait", "--timeout=10s"}, ran: "podnas mounted --output=json --", stdout: "Nothing is mounted."},
				{args: []string{"mounted", "-w", "-o=json"}, ran: "podnas mounted --output=json --", stdout: `"clients": `},
				{args: []string{"mounted", "-w", "-o=wide"}, err: "use -o table, json, yaml", code: exitUsage},
				{args: []string{"volume", "list", "--watch", "-o=json"}, err: "--watch has no end", code: exitUsage},
				{args: []string{"snapshot", "list", "-o=name"}, ran: "podnas snapshot list --output=name --"},
				{args: []string{"snapshot", "show", "v"}, err: "NAME is missing", code: exitUsage},
				// What runs here, or not at all.
				{args: []string{"version"}, stdout: "podnas " + version},
				{args: []string{"doctor", "mount", "nowhere"}, err: "HOST:/path", code: exitUsage},
				{args: []string{"volume", "lst"}, err: `"kubectl podnas volume" has no command "lst", did you mean "list"?`, code: exitUsage},
				{args: []string{"volume", "list", "--sorrt=name"}, err: `did you mean "--sort"?: see 'kubectl podnas volume list --help'`, code: exitUsage},
				{args: []string{"volume", "show"}, err: "NAME is missing", code: exitUsage},
				{args: []string{"serve"}, err: `has no command "serve"`, code: exitUsage},
				{args: []string{"volume", "list", "--context=none"}, err: `context "none" does not exist`, code: exitFailed},
				{args: []string{"volume", "list", "--kubeconfig=" + root + "/none"}, err: "find the API server (--kubeconfig, --context)", code: exitFailed},
				{args: []string{"volume", "list", "--kubeconfig=" + root + "/empty"}, err: "there is no kubeconfig, and this is no pod: set --kubeconfig=FILE", code: exitFailed},
				{args: []string{"volume", "list", "--context=gone"}, err: "look for podnas in the cluster: ", code: exitFailed},
				{args: []string{"volume", "list", "--name=other"}, err: "there is no podnas in the cluster with the name other", code: exitFailed},
			} {
				s.ran = nil
				stdout, stderr, err := plugin(t.Context(), tt.args...)
				text := ""
				if err != nil {
					text = err.Error()
				}
				if exitCode(err) != tt.code || !strings.Contains(stdout, tt.stdout) || !strings.Contains(stderr, tt.stderr) || !strings.Contains(text, tt.err) {
					t.Errorf("%q ends with %d: %q, %q, %v", tt.args, exitCode(err), stdout, stderr, err)
				}
				var ran []string
				for _, command := range s.ran {
					ran = append(ran, strings.Join(command, " "))
				}
				if got := strings.Join(ran, ", "); got != tt.ran {
					t.Errorf("%q runs %q in the pod, want %q", tt.args, got, tt.ran)
				}
			}
		})
	}
}

// Without a terminal nothing tells the pod of the end of a watch or a wait, so each look is a command that ends.
func TestPluginLooks(t *testing.T) {
	s := &apiServer{}
	root := inCluster(t, s)
	nobody := fmt.Sprintf("there are no volumes on %s\n", root)
	ctx, cancel := context.WithTimeout(t.Context(), watchPeriod+time.Second)
	defer cancel()
	stdout, stderr, err := plugin(ctx, "volume", "list", "--watch", "--sort=size")
	if err != nil || stdout != nobody || stderr != "" {
		t.Errorf("a watch ends with %v, printed %q, %q", err, stdout, stderr)
	}
	want := []string{"podnas", "volume", "list", "--sort=size", "--"}
	if len(s.ran) != 2 || !slices.Equal(s.ran[0], want) || !slices.Equal(s.ran[1], want) {
		t.Errorf("a watch runs %q in the pod, want twice %q", s.ran, want)
	}
	d, err := controlOf(root)
	mustDo(t, err)
	report, err := d.Doctor(t.Context())
	mustDo(t, err)
	client, err := net.Dial("tcp", report.Process.Listen)
	mustDo(t, err)
	defer client.Close()
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(10 * time.Millisecond) { // until it is accepted
		mounted, err := d.Mounted(t.Context())
		if err != nil || time.Now().After(deadline) {
			t.Fatalf("no client is connected: %v", err)
		}
		if mounted.Any() {
			break
		}
	}
	s.ran = nil
	stdout, stderr, err = plugin(t.Context(), "mounted", "--wait", "--timeout=1s")
	var inUse *inUseError
	if exitCode(err) != exitRefused || !errors.As(err, &inUse) || stdout != "1 client is connected:\n  CLIENT\n  127.0.0.1\n" || stderr != "" {
		t.Errorf("a wait ends with %v, printed %q, %q", err, stdout, stderr)
	}
	if want := []string{"podnas", "mounted", "--output=json", "--"}; len(s.ran) != 2 || !slices.Equal(s.ran[1], want) {
		t.Errorf("a wait runs %q in the pod, want twice %q", s.ran, want)
	}
}

func TestPluginForbidden(t *testing.T) {
	s := &apiServer{forbidden: true}
	inCluster(t, s)
	_, _, err := plugin(t.Context(), "volume", "list")
	if exitCode(err) != exitFailed || err == nil {
		t.Fatal(err)
	}
	for _, want := range []string{"no right to get and create pods/exec in namespace storage", "kubectl -n storage create role podnas-commands --verb=get,create --resource=pods/exec", `User "jane"`} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q in it", err, want)
		}
	}
}

// Who may create pods/exec, but not get it, is refused a WebSocket alone: what goes wrong later is another thing.
func TestPluginMayOnlyCreate(t *testing.T) {
	s := &apiServer{noGet: true}
	root := inCluster(t, s)
	if _, stderr, err := plugin(t.Context(), "volume", "list"); err != nil || !strings.Contains(stderr, "there are no volumes on "+root) {
		t.Errorf("%v, printed %q", err, stderr)
	}
}

// A connection that is lost is no want of rights.
func TestPluginLosesConnection(t *testing.T) {
	testdisk.OnlyCI(t)
	s := &apiServer{noGet: true, drops: true}
	inCluster(t, s)
	_, _, err := plugin(t.Context(), "volume", "list")
	if err == nil || strings.Contains(err.Error(), "no right") || !strings.Contains(err.Error(), "run 'podnas volume list --' in pod storage/team-podnas-0") {
		t.Errorf("a lost connection: %v", err)
	}
}

// The plug-in's help is for who is outside of the pod, and its examples are commands that there are.
func TestPluginHelp(t *testing.T) {
	for _, cmd := range commands(newPluginCommand()) {
		if text := cmd.Long + cmd.Example; strings.Contains(text, "exec -n podnas podnas-0 -- podnas volume") || strings.Contains(cmd.Example, "--root=") || strings.Contains(cmd.Example, "\n  podnas") {
			t.Errorf("%s: %s", cmd.CommandPath(), text)
		}
		for _, line := range exampleCommands(cmd.Example) {
			found, rest, err := newPluginCommand().Find(line)
			if err == nil {
				err = errors.Join(found.ParseFlags(rest), found.ValidateArgs(found.Flags().Args()))
			}
			if err != nil {
				t.Errorf("%s: %q: %v", cmd.CommandPath(), line, err)
			}
		}
	}
	out, _, err := plugin(t.Context(), "--help")
	if err != nil || !strings.Contains(out, "kubectl podnas volume list") || !strings.Contains(out, "ln -s podnas ~/.local/bin/kubectl-podnas") || strings.Contains(out, "  serve ") {
		t.Errorf("%v:\n%s", err, out)
	}
	out, _, err = plugin(t.Context(), "volume", "list", "--help")
	if err != nil || strings.Contains(out, "--root") || !strings.Contains(out, "--namespace") {
		t.Errorf("%v:\n%s", err, out)
	}
}

// The name that the binary is called by says which program it is.
func TestNames(t *testing.T) {
	for _, tt := range []struct{ name, path, args string }{
		{"/podnas", "podnas", "volume l"},
		{"bin/kubectl-podnas", "kubectl podnas", "volume l"},
		{"kubectl_complete-podnas", "kubectl podnas", cobra.ShellCompRequestCmd + " volume l"},
	} {
		cmd, args := newCommandFor(tt.name, []string{"volume", "l"})
		if cmd.CommandPath() != tt.path || !slices.Equal(args, strings.Fields(tt.args)) {
			t.Errorf("%s is %s with %q, want %s with %s", tt.name, cmd.CommandPath(), args, tt.path, tt.args)
		}
	}
}

// On a terminal the command gets one, with its size, and the terminal is afterwards as it was.
func TestPluginOnTerminal(t *testing.T) {
	s := &apiServer{tty: true}
	inCluster(t, s)
	t.Setenv("NO_COLOR", "1")
	terminal := openTerminal(t)
	before, err := term.GetState(int(terminal.Fd()))
	mustDo(t, err)
	cmd := newPluginCommand()
	cmd.SetArgs([]string{"volume", "show", "none"})
	cmd.SetIn(terminal)
	cmd.SetOut(terminal)
	cmd.SetErr(terminal)
	if err := execute(t.Context(), cmd); exitCode(err) != exitNotFound {
		t.Errorf("%v, want exit code %d", err, exitNotFound)
	}
	if want := [][]string{{"podnas", "--no-color", "volume", "show", "--", "none"}}; !reflect.DeepEqual(s.ran, want) {
		t.Errorf("run is %q, want %q", s.ran, want)
	}
	after, err := term.GetState(int(terminal.Fd()))
	mustDo(t, err)
	if !reflect.DeepEqual(before, after) {
		t.Errorf("the terminal was %+v and is %+v", before, after)
	}
}

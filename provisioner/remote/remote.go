// Package remote finds podnas's pod from outside of it, with the rights of the caller, and runs podnas's own
// commands in it: [Finder.Find], then [Command.Run].
package remote

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/remotecommand"
	"k8s.io/client-go/util/exec"
	"k8s.io/streaming/pkg/httpstream"

	"github.com/podnas/podnas/provisioner/active"
)

// Command is a podnas command that runs in a pod.
type Command struct {
	Config *rest.Config
	Client kubernetes.Interface
	Pod    *v1.Pod
	Args   []string // without the program

	Stdin          io.Reader // nil: nothing
	Stdout, Stderr io.Writer
	// TTY gives the command a terminal. What it writes on stderr is on Stdout then.
	TTY bool
	// Sizes tells the terminal's sizes, if there is one.
	Sizes remotecommand.TerminalSizeQueue
}

// ExitError ends a command that has said by itself what was wrong.
type ExitError struct{ Code int }

func (e *ExitError) Error() string { return fmt.Sprintf("the command ended with %d", e.Code) }

// Run runs the command until it ends. Its error is an *ExitError if the command's exit code is not 0.
func (c *Command) Run(ctx context.Context) error {
	request := c.Client.CoreV1().RESTClient().Post().Resource("pods").Namespace(c.Pod.Namespace).Name(c.Pod.Name).SubResource("exec").
		VersionedParams(&v1.PodExecOptions{
			Container: active.Container, Command: append([]string{"podnas"}, c.Args...),
			Stdin: c.Stdin != nil, Stdout: true, Stderr: !c.TTY, TTY: c.TTY,
		}, scheme.ParameterCodec)
	// As kubectl: API servers before 1.30, and some proxies, have SPDY alone.
	webSocket, err := remotecommand.NewWebSocketExecutor(c.Config, "GET", request.URL().String())
	if err != nil {
		return fmt.Errorf("connect to the API server: %w", err)
	}
	spdy, err := remotecommand.NewSPDYExecutor(c.Config, "POST", request.URL())
	if err != nil {
		return fmt.Errorf("connect to the API server: %w", err)
	}
	var refused httpstream.UpgradeFailureError // the WebSocket; SPDY's errors are texts alone
	executor, err := remotecommand.NewFallbackExecutor(webSocket, spdy, func(err error) bool {
		if upgrade := (*httpstream.UpgradeFailureError)(nil); errors.As(err, &upgrade) {
			refused = *upgrade
			return true
		}
		return httpstream.IsHTTPSProxyError(err)
	})
	if err != nil {
		return fmt.Errorf("connect to the API server: %w", err)
	}
	options := remotecommand.StreamOptions{Stdin: c.Stdin, Stdout: c.Stdout, Tty: c.TTY, TerminalSizeQueue: c.Sizes}
	if !c.TTY {
		options.Stderr = c.Stderr
	}
	return c.explain(executor.StreamWithContext(ctx, options), refused.Cause)
}

// spdyRefused begins client-go's error if the API server does not let a command run by SPDY.
const spdyRefused = "unable to upgrade connection: "

// explain says why a command did not run, and what to do. refused is what kept it from the WebSocket, or nil. That
// alone is not an error: a WebSocket is a GET, so who may only create pods/exec is refused it, but not SPDY, a POST.
func (c *Command) explain(err, refused error) error {
	var ended exec.CodeExitError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &ended):
		return &ExitError{ended.Code}
	case apierrors.IsForbidden(refused) && strings.HasPrefix(err.Error(), spdyRefused) && strings.Contains(err.Error(), "forbidden"):
		return fmt.Errorf("you have no right to get and create pods/exec in namespace %[1]s, by which commands are run in pods. Who may create Roles there can give it to you:\n"+
			"  kubectl -n %[1]s create role podnas-commands --verb=get,create --resource=pods/exec\n"+
			"  kubectl -n %[1]s create rolebinding podnas-commands --role=podnas-commands --user=YOU\n%[2]w", c.Pod.Namespace, err)
	}
	return fmt.Errorf("run 'podnas %s' in pod %s/%s: %w", strings.Join(c.Args, " "), c.Pod.Namespace, c.Pod.Name, err)
}

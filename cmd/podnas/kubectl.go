package main

import (
	"bytes"
	"context"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/term"
	"k8s.io/client-go/tools/remotecommand"

	"github.com/podnas/podnas/provisioner/control"
	"github.com/podnas/podnas/provisioner/remote"
)

// The names of the binary as a plug-in of kubectl: kubectl runs the first for 'kubectl podnas', and the second to
// complete what is typed after it.
const (
	pluginName         = "kubectl-podnas"
	pluginCompleteName = "kubectl_complete-podnas"
)

const pluginLong = `Manage podnas in a cluster from your own machine.

'kubectl podnas' finds podnas's pod by your kubeconfig, and runs podnas's commands there, as 'kubectl
exec -n podnas podnas-0 -- podnas ...' does: volume, snapshot, client, doctor and mounted. What they
print comes back, and so does their exit code. 'doctor mount', 'doctor pod', 'failover', 'bench' and 'version' run on
this machine: the first and bench need a network on which it reaches podnas's address.

It is the binary podnas under another name, and runs on Linux; elsewhere kubectl exec does the same.
To install it, copy it out of the image, or build it:

  go build -o ~/.local/bin/podnas ./cmd/podnas
  ln -s podnas ~/.local/bin/kubectl-podnas
  ln -s podnas ~/.local/bin/kubectl_complete-podnas    # completion after 'kubectl podnas'

If there are several podnas, --namespace and --name say which one is meant. Of two that share a disk it is the one
that serves. You need the rights to list statefulsets and to get and list pods, which the ClusterRole view has, and to
get and create pods/exec.

Exit codes are those of the command, and its --help has more: 0 success; 1 failed; 2 invalid request;
3 what was named is not there; 4 refused, as something is in the way; 5 not enough space; 6 podnas is
not running; 7 warnings, but no failures; 130 interrupted, what was begun may go on.`

const pluginExamples = `  # Volumes, problems, users
  kubectl podnas volume list
  kubectl podnas doctor
  kubectl podnas mounted

  # A volume without a claim, in the cluster at once
  kubectl podnas volume create scratch --size 10Gi | kubectl apply -f -

  # One of several podnas, in another cluster
  kubectl podnas volume list --context=edge -n storage --name=team-podnas

  # Its pod does not run: why?
  kubectl podnas doctor pod`

// pluginConfig is how podnas's pod is found.
type pluginConfig struct {
	server serverFlags
	finder remote.Finder
}

// newPluginCommand is newCommand, but for use from outside the pod.
func newPluginCommand() *cobra.Command {
	cfg := &pluginConfig{}
	root := newCommand()
	root.Use = pluginName
	root.Annotations = map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl podnas"}
	root.Short = "Manage podnas in a cluster from your own machine"
	for _, cmd := range root.Commands() {
		switch cmd.Name() {
		case "serve":
			root.RemoveCommand(cmd)
		case "volume", "snapshot", "client", "mounted":
			cfg.runInPod(cmd)
			for _, sub := range cmd.Commands() {
				cfg.runInPod(sub)
			}
		case "doctor":
			cfg.runInPod(cmd)
		}
	}
	eachText(root, fromOutside)
	root.Long, root.Example = pluginLong, pluginExamples
	f := root.PersistentFlags()
	f.SortFlags = false
	f.StringVarP(&cfg.finder.Namespace, "namespace", "n", "", "namespace of podnas; default: all are searched for it")
	f.StringVar(&cfg.finder.Name, "name", "", "name of its StatefulSet, if there are several")
	cfg.server.add(f)
	return root
}

// newCommandFor returns the command for the name that the binary was called by, and its arguments.
func newCommandFor(name string, args []string) (*cobra.Command, []string) {
	switch filepath.Base(name) {
	case pluginName:
		return newPluginCommand(), args
	case pluginCompleteName:
		return newPluginCommand(), append([]string{cobra.ShellCompRequestCmd}, args...)
	}
	return newCommand(), args
}

// runInPod has a command run in podnas's pod. Its flags are checked here, so a mistyped one is told at once.
func (c *pluginConfig) runInPod(cmd *cobra.Command) {
	cmd.ValidArgsFunction = cobra.NoFileCompletions
	for _, flags := range []*pflag.FlagSet{cmd.Flags(), cmd.PersistentFlags()} {
		if root := flags.Lookup("root"); root != nil { // the pod knows where its disk is
			root.Hidden = true
		}
	}
	if cmd.Runnable() && !isGroup(cmd) {
		cmd.RunE = c.run
	}
}

// isGroup reports whether a command only holds others: doctor does not.
func isGroup(cmd *cobra.Command) bool { return cmd.HasSubCommands() && cmd.Name() != "doctor" }

// podArguments are the command and its flags and arguments, without the flags that say where podnas is, and others.
func podArguments(cmd *cobra.Command, args []string, without ...string) []string {
	words := strings.Fields(cmd.CommandPath())[2:] // kubectl podnas
	cmd.Flags().Visit(func(f *pflag.Flag) {
		if cmd.Root().PersistentFlags().Lookup(f.Name) == f || slices.Contains(without, f.Name) {
			return
		}
		many, ok := f.Value.(pflag.SliceValue)
		if !ok {
			words = append(words, fmt.Sprintf("--%s=%s", f.Name, f.Value))
			return
		}
		for _, value := range many.GetSlice() {
			words = append(words, fmt.Sprintf("--%s=%s", f.Name, quoted(value)))
		}
	})
	return append(append(words, "--"), args...)
}

// quoted is a value of a flag that takes a list, which pflag reads as CSV.
func quoted(value string) string {
	var text strings.Builder
	w := csv.NewWriter(&text)
	_ = w.Write([]string{value}) // a strings.Builder takes everything
	w.Flush()
	return strings.TrimSuffix(text.String(), "\n")
}

// run runs a command in the pod, on this terminal if there is one.
func (c *pluginConfig) run(cmd *cobra.Command, args []string) error {
	ctx := cmd.Context()
	config, client, err := c.server.connect(pluginName)
	if err != nil {
		return err
	}
	c.finder.Client, c.finder.Likely = client, []string{"podnas"}
	if current, _, err := c.server.loaded().Namespace(); err == nil {
		c.finder.Likely = append(c.finder.Likely, current)
	}
	pod, err := c.finder.Find(ctx)
	if err != nil {
		return err
	}
	command := &remote.Command{Config: config, Client: client, Pod: pod, Args: podArguments(cmd, args), Stdout: cmd.OutOrStdout(), Stderr: cmd.ErrOrStderr()}
	in, ok := cmd.InOrStdin().(*os.File)
	switch {
	case ok && isTerminal(in) && isTerminal(command.Stdout) && isTerminal(command.Stderr):
		return onTerminal(ctx, in, command)
	case isSet(cmd, "watch"):
		return watchFromOutside(cmd, args, command)
	case isSet(cmd, "wait"):
		return waitFromOutside(cmd, args, command)
	}
	if err = command.Run(ctx); isInterrupted(ctx, err) {
		return &interruptedError{fmt.Sprintf("interrupted; 'podnas %s' may go on in pod %s/%s", strings.Join(command.Args, " "), pod.Namespace, pod.Name)}
	}
	return err
}

// isSet reports whether a command has a flag that is given and true.
func isSet(cmd *cobra.Command, flag string) bool {
	set, err := cmd.Flags().GetBool(flag)
	return err == nil && set
}

// watchFromOutside is volume list --watch where no terminal tells the pod of the end: a list in the pod for each look,
// so none lives on there.
func watchFromOutside(cmd *cobra.Command, args []string, c *remote.Command) error {
	flags := listFlags{watch: true}
	flags.sort, _ = cmd.Flags().GetString("sort")
	flags.output, _ = cmd.Flags().GetString("output")
	if err := flags.check(); err != nil {
		return err
	}
	out := cmd.OutOrStdout()
	return repeat(cmd.Context(), out, screenOf(out), watchPeriod, func(ctx context.Context, out io.Writer) error {
		var remarks bytes.Buffer
		look := *c
		look.Args, look.Stdout, look.Stderr = podArguments(cmd, args, "watch"), out, &remarks
		if err := look.Run(ctx); err != nil {
			_, _ = remarks.WriteTo(c.Stderr)
			return err
		}
		_, err := remarks.WriteTo(out) // such as that there are no volumes
		return err
	})
}

// waitFromOutside is mounted --wait, likewise.
func waitFromOutside(cmd *cobra.Command, args []string, c *remote.Command) error {
	var m mountedFlags
	m.output, _ = cmd.Flags().GetString("output")
	m.timeout, _ = cmd.Flags().GetDuration("timeout")
	c.Args = append([]string{cmd.Name(), "--output=" + outputJSON}, podArguments(cmd, args, "wait", "timeout", "output")[1:]...)
	return m.look(cmd, func(ctx context.Context) (mounted control.Mounted, err error) {
		var out, remarks bytes.Buffer
		look := *c
		look.Stdout, look.Stderr = &out, &remarks
		err = look.Run(ctx)
		var ended *remote.ExitError
		if inUse := errors.As(err, &ended) && ended.Code == exitRefused; err != nil && !inUse {
			_, _ = remarks.WriteTo(c.Stderr)
			return mounted, err
		}
		if err = json.Unmarshal(out.Bytes(), &mounted); err != nil {
			err = fmt.Errorf("read what 'podnas mounted -o json' says in the pod: %w", err)
		}
		return mounted, err
	})
}

// onTerminal runs a command with the terminal that all of its streams are on: so it can ask, and Ctrl-C ends it in
// the pod. Others read nothing: what is on stdin is for others, such as the rest of a loop over names.
func onTerminal(ctx context.Context, in *os.File, c *remote.Command) (err error) {
	fd := int(in.Fd())
	before, err := term.MakeRaw(fd)
	if err != nil {
		return fmt.Errorf("prepare the terminal: %w", err)
	}
	defer func() { err = errors.Join(err, term.Restore(fd, before)) }()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	c.Stdin, c.TTY, c.Sizes = in, true, newTerminalSizes(ctx, fd)
	if os.Getenv("NO_COLOR") != "" {
		c.Args = append([]string{"--" + noColourFlag}, c.Args...)
	}
	return c.Run(ctx)
}

// terminalSizes tells the sizes of a terminal: first what it is, and then what it becomes.
type terminalSizes struct {
	ctx     context.Context
	fd      int
	changed chan os.Signal
}

func newTerminalSizes(ctx context.Context, fd int) *terminalSizes {
	s := &terminalSizes{ctx, fd, make(chan os.Signal, 1)}
	s.changed <- syscall.SIGWINCH
	signal.Notify(s.changed, syscall.SIGWINCH)
	context.AfterFunc(ctx, func() { signal.Stop(s.changed) })
	return s
}

// Next waits for a size, and returns nil at the end.
func (s *terminalSizes) Next() *remotecommand.TerminalSize {
	select {
	case <-s.ctx.Done():
		return nil
	case <-s.changed:
	}
	width, height, err := term.GetSize(s.fd)
	if err != nil {
		return nil
	}
	return &remotecommand.TerminalSize{Width: uint16(width), Height: uint16(height)}
}

// eachText replaces the texts of a command and those below it.
func eachText(cmd *cobra.Command, replace func(string) string) {
	cmd.Long, cmd.Example = replace(cmd.Long), replace(cmd.Example)
	for _, sub := range cmd.Commands() {
		eachText(sub, replace)
	}
}

// fromOutside turns a text for who is in the pod into one for who is not: commands begin with kubectl podnas, and
// examples for a disk on this machine are left out.
func fromOutside(text string) string {
	text = strings.ReplaceAll(text, "kubectl exec -n podnas podnas-0 -- podnas ", "kubectl podnas ")
	text = strings.ReplaceAll(text, ", run it in podnas's pod:", ":")
	text = strings.ReplaceAll(text, ", run them in podnas's pod:", ":")
	text = regexp.MustCompile(`(?m)(^ {2,}|'|\| )podnas `).ReplaceAllString(text, "${1}kubectl podnas ")
	var kept []string
	for part := range strings.SplitSeq(text, "\n\n") {
		if !strings.Contains(part, "--root=") {
			kept = append(kept, part)
		}
	}
	return strings.Join(kept, "\n\n")
}

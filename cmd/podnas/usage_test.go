package main

import (
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// everyCommand visits all commands, also hidden ones and cobra's own.
func everyCommand(cmd *cobra.Command, visit func(*cobra.Command)) {
	visit(cmd)
	for _, sub := range cmd.Commands() {
		everyCommand(sub, visit)
	}
}

// mistyped is a word with its second letter doubled.
func mistyped(word string) string { return word[:2] + word[1:] }

// At every level a command or a flag that is not there is a usage error, which names the one that
// was meant.
func TestMistyped(t *testing.T) {
	try := func(t *testing.T, want string, args ...string) {
		t.Helper()
		out, _, err := podnas(t.Context(), args...)
		if exitCode(err) != exitUsage || out != "" || err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q ends with %d and prints %q: %v, want %d and %s", args, exitCode(err), out, err, exitUsage, want)
		}
	}
	root := newCommand()
	root.InitDefaultCompletionCmd()
	everyCommand(root, func(cmd *cobra.Command) {
		path := strings.Fields(cmd.CommandPath())[1:]
		t.Run(cmd.CommandPath(), func(t *testing.T) {
			if cmd.HasSubCommands() {
				try(t, "has no command \"frobnicate\": see '"+cmd.CommandPath()+" --help'", append(path, "frobnicate")...)
			}
			for _, sub := range cmd.Commands() {
				if sub.IsAvailableCommand() {
					try(t, `did you mean "`+sub.Name(), append(path, mistyped(sub.Name()))...)
				}
			}
			try(t, "unknown flag: --frobnicate: see '"+cmd.CommandPath()+" --help'", append(path, "--frobnicate")...)
			try(t, "unknown shorthand flag: 'Q' in -Q", append(path, "-Q")...)
			cmd.InheritedFlags() // makes those of its parents its own
			cmd.Flags().VisitAll(func(f *pflag.Flag) {
				if !f.Hidden {
					try(t, `"--`+f.Name+`"`, append(path, "--"+mistyped(f.Name)+"=1")...)
				}
			})
		})
	})
}

func TestUsageErrors(t *testing.T) {
	for _, s := range []step{
		{command: "volume list -z", code: exitUsage, err: "unknown shorthand flag: 'z' in -z; those of one letter are -w (--watch), -o (--output), -h (--help): see 'podnas volume list --help'"},
		{command: "volume list -s size", code: exitUsage, err: `unknown shorthand flag: 's' in -s, did you mean "--sort"?: see`},
		{command: "volume list -aW", code: exitUsage, err: `'a' in -aW, did you mean "--all"?`},
		{command: "volume list -W", code: exitUsage, err: `did you mean "-w"?`},
		{command: "volume list --sort", code: exitUsage, err: "flag needs an argument: --sort, one of name, claim, class, size, used, use%, clients"},
		{command: "volume list -o", code: exitUsage, err: "flag needs an argument: 'o' in -o, one of table, wide, name, json, yaml"},
		{command: "vol crate", code: exitUsage, err: `"podnas volume" has no command "crate", did you mean "create"?`},
		{command: "doctor mont a:/b", code: exitUsage, err: `did you mean "mount"?`},
		{command: "help volme", code: exitUsage, err: `did you mean "volume"?`},
		{command: "help volume crate", code: exitUsage, err: `did you mean "create"?`},
		{command: "help volume create x", code: exitUsage, err: `"podnas volume create" has no commands`},
		{command: "completion basch", code: exitUsage, err: `did you mean "bash"?`},
		{command: "completion bash now", code: exitUsage, err: `unexpected argument "now"`},
		{command: "volume list --al", code: exitUsage, err: `did you mean "--all"?`},
		{command: "volume create a --size", code: exitUsage, err: "flag needs an argument: --size"},
		{command: "help volume create", stdout: "--size SIZE"},
		{command: "completion", stdout: "Available Commands"},
		{command: "", stdout: "Available Commands"},
	} {
		t.Run(s.command, s.run)
	}
}

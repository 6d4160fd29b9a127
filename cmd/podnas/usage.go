package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// exactly says which arguments a command takes, and what is wrong when others are
// given.
func exactly(names ...string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		switch {
		case len(args) < len(names):
			return missing(cmd, names[len(args)])
		case len(args) > len(names) && len(names) == 0 && cmd.HasSubCommands():
			return noCommand(cmd, args[0])
		case len(args) > len(names):
			return &usageError{fmt.Errorf("unexpected argument %q: %s", args[len(names)], cmd.UseLine())}
		}
		return nil
	}
}

// from is for a command whose last arguments may be left out: those after the first ones that are needed.
func from(needed int, names ...string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		return exactly(names[:min(max(needed, len(args)), len(names))]...)(cmd, args)
	}
}

// atLeastOne is for a command that takes one argument or more.
func atLeastOne(name string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return missing(cmd, name)
		}
		return nil
	}
}

func missing(cmd *cobra.Command, name string) error {
	return &usageError{fmt.Errorf("%s is missing: %s", name, cmd.UseLine())}
}

// group makes a command that only holds others.
func group(cmd *cobra.Command) *cobra.Command {
	cmd.Args = exactly()
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
	return cmd
}

// execute runs the command of the arguments. cobra's own command for completion, which ends with 1 on
// a command line that means nothing, gets the checks of podnas's own; it keeps the writer that the root
// has when it is made.
func execute(ctx context.Context, root *cobra.Command) error {
	out := &printed{to: root.OutOrStdout()}
	root.SetOut(out)
	root.InitDefaultCompletionCmd()
	if cmd, _, err := root.Find([]string{"completion"}); err == nil && cmd != root {
		group(cmd)
		for _, shell := range cmd.Commands() {
			shell.Args = exactly()
		}
	}
	cmd, err := root.ExecuteContextC(ctx)
	if err == nil && cmd.Name() != "serve" { // which has ended as it should, whoever reads what it said
		err = out.failed()
	}
	return orInterrupted(ctx, err)
}

// noCommand says that a command has no such subcommand, and which ones are near.
func noCommand(cmd *cobra.Command, name string) error {
	if !cmd.HasSubCommands() {
		return &usageError{fmt.Errorf("%q has no commands: see '%[1]s --help'", cmd.CommandPath())}
	}
	return &usageError{fmt.Errorf("%q has no command %q%s: see '%[1]s --help'", cmd.CommandPath(), name, didYouMean(suggestions(cmd, name)))}
}

// flagError says of a flag that is not there which ones are near, and of one without a value which values it takes.
func flagError(cmd *cobra.Command, err error) error {
	var unknown *pflag.NotExistError
	var valueless *pflag.ValueRequiredError
	switch {
	case errors.As(err, &unknown):
		letter := unknown.GetSpecifiedShortnames() != ""
		near := didYouMean(nearFlags(cmd, unknown.GetSpecifiedName(), letter))
		if letter && near == "" {
			near = "; those of one letter are " + strings.Join(letters(cmd), ", ")
		}
		return &usageError{fmt.Errorf("%w%s: see '%s --help'", err, near, cmd.CommandPath())}
	case errors.As(err, &valueless) && len(valueless.GetFlag().Annotations[formsAnnotation]) > 0:
		return &usageError{fmt.Errorf("%w, one of %s", err, strings.Join(valueless.GetFlag().Annotations[formsAnnotation], ", "))}
	}
	return &usageError{err}
}

// nearFlags returns the flags, with their dashes, that a mistyped one may stand for: for a letter those that have it in the
// other case, and those whose names begin with it.
func nearFlags(cmd *cobra.Command, mistyped string, letter bool) (near []string) {
	var names []string
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		switch {
		case f.Hidden:
		case letter && strings.EqualFold(f.Shorthand, mistyped):
			near = append(near, "-"+f.Shorthand)
		case !letter || strings.HasPrefix(f.Name, strings.ToLower(mistyped)):
			names = append(names, f.Name)
		}
	})
	if !letter {
		names = nearest(mistyped, names)
	}
	for _, name := range names {
		near = append(near, "--"+name)
	}
	return near
}

// letters returns the flags of a command that have one letter.
func letters(cmd *cobra.Command) (all []string) {
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if f.Shorthand != "" && !f.Hidden {
			all = append(all, fmt.Sprintf("-%s (--%s)", f.Shorthand, f.Name))
		}
	})
	return all
}

// nearest returns the names that a mistyped word may stand for, by cobra's measure, which knows
// commands alone.
func nearest(word string, names []string) []string {
	c := &cobra.Command{}
	for _, name := range names {
		c.AddCommand(&cobra.Command{Use: name, Run: func(*cobra.Command, []string) {}})
	}
	return suggestions(c, word)
}

// suggestions returns the commands that begin with a word or differ from it in one letter, else
// those that differ in two: a short word is near to many of these.
func suggestions(cmd *cobra.Command, word string) (near []string) {
	for _, cmd.SuggestionsMinimumDistance = range []int{1, 2} {
		if near = cmd.SuggestionsFor(word); len(near) > 0 {
			return near
		}
	}
	return nil
}

// didYouMean offers what is near, at most three.
func didYouMean(near []string) string {
	var quoted []string
	for _, name := range near[:min(len(near), 3)] {
		quoted = append(quoted, fmt.Sprintf("%q", name))
	}
	if len(quoted) == 0 {
		return ""
	}
	return ", did you mean " + strings.Join(quoted, " or ") + "?"
}

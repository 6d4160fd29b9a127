package main

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/podnas/podnas/provisioner"
)

const referenceFile = "../../docs/reference.md"

var update = flag.Bool("update", false, "write docs/reference.md anew")

// docs/reference.md is made of the code, by "make docs", and never behind it.
func TestReference(t *testing.T) {
	t.Setenv("PODNAS_ROOT", "")
	want := reference()
	if *update {
		if err := os.WriteFile(referenceFile, want, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(referenceFile)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		line := 0
		gotLines, wantLines := strings.Split(string(got), "\n"), strings.Split(string(want), "\n")
		for line < min(len(gotLines), len(wantLines)) && gotLines[line] == wantLines[line] {
			line++
		}
		t.Errorf(`docs/reference.md is stale from line %d on: run "make docs"`, line+1)
	}
}

// What the reference tells is told in a sentence.
func TestReferenceIsWhole(t *testing.T) {
	eachCommand(newCommand(), func(cmd *cobra.Command) {
		if cmd.Short == "" {
			t.Errorf("%s has no short text", cmd.CommandPath())
		}
		cmd.LocalFlags().VisitAll(func(f *pflag.Flag) {
			if f.Usage == "" {
				t.Errorf("%s --%s is not explained", cmd.CommandPath(), f.Name)
			}
		})
	})
	for _, p := range provisioner.Parameters() {
		if p.Usage == "" {
			t.Errorf("parameter %s is not explained", p.Name)
		}
	}
}

func reference() []byte {
	var out bytes.Buffer
	fmt.Fprint(&out, `<!-- Code generated from the flags and parameters by "make docs". DO NOT EDIT. -->

# Reference

Every parameter of a StorageClass, every command and every flag. [storageclass.md](storageclass.md)
and [volumes.md](volumes.md) say what they are good for.

## StorageClass parameters

All values are strings: quote numbers, `+"`\"true\"` and `\"false\"`"+`. A parameter that is not here is
refused, by an event on the claim.

| parameter | default | |
|---|---|---|
`)
	for _, p := range provisioner.Parameters() {
		fmt.Fprintf(&out, "| `%s` | %s | %s |\n", p.Name, cell(p.Default), cell(p.Usage))
	}
	fmt.Fprint(&out, `
## Environment

| variable | |
|---|---|
| `+"`PODNAS_ROOT`"+` | the default of `+"`--root`"+` |
| `+"`SERVICE_NAME`, `POD_NAMESPACE`, `POD_NAME`, `POD_IP`"+` | in a pod: its Service, its own name, and its addresses, with commas; deploy/podnas.yaml sets them |
`)
	eachCommand(newCommand(), func(cmd *cobra.Command) {
		text := cmd.Long
		if text == "" {
			text = cmd.Short + "."
		}
		fmt.Fprintf(&out, "\n## %s\n\n", cmd.CommandPath())
		// Texts for terminals have lines that are to stay as they are.
		fmt.Fprintf(&out, "```\n%s\n```\n", strings.TrimSpace(text))
		if cmd.Runnable() {
			fmt.Fprintf(&out, "\n    %s\n", cmd.UseLine())
		}
		if cmd.Example != "" {
			fmt.Fprintf(&out, "\n```sh\n%s\n```\n", unindent(cmd.Example))
		}
		if flags := cmd.LocalFlags(); flags.HasAvailableFlags() {
			fmt.Fprint(&out, "\n| flag | default | |\n|---|---|---|\n")
			flags.VisitAll(func(f *pflag.Flag) { writeFlag(&out, f) })
		}
	})
	return out.Bytes()
}

func writeFlag(out *bytes.Buffer, f *pflag.Flag) {
	if f.Hidden {
		return
	}
	kind, usage := pflag.UnquoteUsage(f)
	name := "--" + f.Name
	if f.Shorthand != "" {
		name = "-" + f.Shorthand + ", " + name
	}
	if kind != "" {
		name += " " + kind
	}
	def := ""
	if f.DefValue != "" && f.DefValue != "false" && f.DefValue != "[]" {
		def = "`" + f.DefValue + "`"
	}
	fmt.Fprintf(out, "| `%s` | %s | %s |\n", name, def, cell(usage))
}

// eachCommand visits a command and those below it that can be seen, in the order of
// the help.
func eachCommand(cmd *cobra.Command, visit func(*cobra.Command)) {
	visit(cmd)
	for _, sub := range cmd.Commands() {
		if sub.IsAvailableCommand() {
			eachCommand(sub, visit)
		}
	}
}

// cell makes a text fit into a table.
func cell(s string) string {
	return strings.NewReplacer("\n", " ", "|", `\|`, "<", "&lt;").Replace(s)
}

func unindent(s string) string {
	lines := strings.Split(strings.TrimRight(s, "\n"), "\n")
	for i := range lines {
		lines[i] = strings.TrimPrefix(lines[i], "  ")
	}
	return strings.Join(lines, "\n")
}

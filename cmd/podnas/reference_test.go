package main

import (
	"bytes"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
	"github.com/spf13/pflag"

	"github.com/podnas/podnas/provisioner"
)

const docs = "../../docs/"

var (
	update = flag.Bool("update", false, "write docs/reference.md and docs/reference/ anew")
	manDir = flag.String("man", "", "write the manual pages to this folder, which exists")
)

// docs/reference.md and the pages in docs/reference/ are made of the code, by "make docs", and never behind it.
// This is a test, and no command of podnas's, so that the binary has nothing of what makes pages.
func TestReference(t *testing.T) {
	t.Setenv("PODNAS_ROOT", "")
	want := reference(t)
	if *update {
		if err := os.RemoveAll(docs + "reference"); err != nil {
			t.Fatal(err)
		}
		if err := os.Mkdir(docs+"reference", 0o755); err != nil {
			t.Fatal(err)
		}
		for name, page := range want {
			if err := os.WriteFile(docs+name, page, 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(want)) {
		got, err := os.ReadFile(docs + name)
		if err != nil {
			t.Errorf(`%v: run "make docs"`, err)
			continue
		}
		if line := firstDifference(got, want[name]); line > 0 {
			t.Errorf(`docs/%s is stale from line %d on: run "make docs"`, name, line)
		}
	}
	entries, err := os.ReadDir(docs + "reference")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if _, ok := want["reference/"+e.Name()]; !ok {
			t.Errorf(`docs/reference/%s is of no command: run "make docs"`, e.Name())
		}
	}
}

// firstDifference is the first line in which two pages differ, or 0.
func firstDifference(a, b []byte) int {
	if bytes.Equal(a, b) {
		return 0
	}
	aLines, bLines := strings.Split(string(a), "\n"), strings.Split(string(b), "\n")
	line := 0
	for line < min(len(aLines), len(bLines)) && aLines[line] == bLines[line] {
		line++
	}
	return line + 1
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

// Each command has a manual page with all of its flags, which "make man" writes.
func TestManPages(t *testing.T) {
	t.Setenv("PODNAS_ROOT", "")
	dir := *manDir
	if dir == "" {
		dir = t.TempDir()
	}
	root := forPages(func(f *pflag.Flag) {
		_, usage := pflag.UnquoteUsage(f)
		f.Usage = escaped(usage)
	})
	date := time.Unix(0, 0)
	header := &doc.GenManHeader{Section: "1", Date: &date, Source: "podnas", Manual: "podnas"}
	if os.Getenv("SOURCE_DATE_EPOCH") != "" {
		header.Date = nil // then it is that
	}
	if err := doc.GenManTree(root, header, dir); err != nil {
		t.Fatal(err)
	}
	eachCommand(newCommand(), func(cmd *cobra.Command) {
		page, err := os.ReadFile(filepath.Join(dir, strings.ReplaceAll(cmd.CommandPath(), " ", "-")+".1"))
		if err != nil {
			t.Error(err)
			return
		}
		text := strings.ReplaceAll(string(page), `\-`, "-")
		cmd.LocalFlags().VisitAll(func(f *pflag.Flag) {
			if !f.Hidden && !strings.Contains(text, "--"+f.Name) {
				t.Errorf("the page of %s has no --%s", cmd.CommandPath(), f.Name)
			}
		})
		for _, line := range exampleCommands(cmd.Example) {
			if last := line[len(line)-1]; !strings.Contains(text, last) {
				t.Errorf("the page of %s has no example with %q", cmd.CommandPath(), last)
			}
		}
	})
}

// reference returns the pages, by their paths in docs/.
func reference(t *testing.T) map[string][]byte {
	t.Helper()
	root := forPages(func(f *pflag.Flag) { f.Usage = wrapped(f.Usage) })
	pages := map[string][]byte{"reference.md": overview(root)}
	eachCommand(root, func(cmd *cobra.Command) {
		var out bytes.Buffer
		fmt.Fprint(&out, generated, "\n")
		if err := doc.GenMarkdownCustom(cmd, &out, func(link string) string { return link }); err != nil {
			t.Fatal(err)
		}
		pages["reference/"+pageOf(cmd)] = append(bytes.TrimSpace(out.Bytes()), '\n')
	})
	return pages
}

const generated = "<!-- Code generated from the commands, flags and parameters by \"make docs\". DO NOT EDIT. -->\n"

// pageOf is how cobra's own links name a command's page.
func pageOf(cmd *cobra.Command) string {
	return strings.ReplaceAll(cmd.CommandPath(), " ", "_") + ".md"
}

// overview is docs/reference.md: what is no command's, and where the commands are.
func overview(root *cobra.Command) []byte {
	var out bytes.Buffer
	fmt.Fprint(&out, generated, `
# Reference

Every parameter of a StorageClass, every command and every flag. [storageclass.md](storageclass.md)
and [volumes.md](volumes.md) say what they are good for.

## Commands

Each page is what the command's `+"`--help`"+` says. `+"`make man`"+` writes them as manual pages.

| command | |
|---|---|
`)
	eachCommand(root, func(cmd *cobra.Command) {
		// The name is where the command's part of this page was, when it had all.
		anchor := strings.ReplaceAll(cmd.CommandPath(), " ", "-")
		fmt.Fprintf(&out, "| <a name=%q></a>[%s](reference/%s) | %s |\n", anchor, cmd.CommandPath(), pageOf(cmd), cell(cmd.Short))
	})
	fmt.Fprint(&out, `
## StorageClass parameters

All values are strings: quote numbers, `+"`\"true\"` and `\"false\"`"+`. A parameter that is not here is
refused, by an event on the claim.
`)
	for _, p := range provisioner.Parameters() {
		fmt.Fprintf(&out, "\n### %s\n\n%s\n", p.Name, strings.ReplaceAll(p.Usage, "<", "&lt;"))
		if p.Default != "" {
			fmt.Fprintf(&out, "\nDefault: %s.\n", p.Default)
		}
	}
	fmt.Fprint(&out, `
## Environment

| variable | |
|---|---|
| `+"`PODNAS_ROOT`"+` | the default of `+"`--root`"+` |
| `+"`SERVICE_NAME`, `POD_NAMESPACE`, `POD_NAME`, `POD_UID`, `POD_IP`"+` | in a pod: its Service, its own name and uid, and its addresses, with commas |
| `+"`GOMEMLIMIT`, `GOMAXPROCS`"+` | Go's own limits of memory and threads, in place of those that podnas sets |
| `+"`NO_COLOR`"+` | if it is not empty, statuses on a terminal have no colours |

deploy/podnas.yaml sets those of the pod.
`)
	return out.Bytes()
}

// forPages returns the commands with texts that pages can have. Those for terminals are in lines.
func forPages(text func(*pflag.Flag)) *cobra.Command {
	root := newCommand()
	eachCommand(root, func(cmd *cobra.Command) {
		cmd.DisableAutoGenTag = true // it has the date
		cmd.Long = markdown(cmd.Long)
		cmd.LocalFlags().VisitAll(text)
	})
	return root
}

// markdown makes Markdown of a text for terminals: what is indented keeps its lines.
func markdown(text string) string {
	text += "\n"
	var out strings.Builder
	end := 0
	for _, at := range regexp.MustCompile(`(?m)(^  .*\n)+`).FindAllStringIndex(text, -1) {
		fmt.Fprintf(&out, "%s\n```\n%s\n```\n", escaped(text[end:at[0]]), unindent(text[at[0]:at[1]]))
		end = at[1]
	}
	return strings.TrimSpace(out.String() + escaped(text[end:]))
}

// escaped makes Markdown of what has no markup, but for commands between quotes, which become code.
func escaped(text string) string {
	text = strings.NewReplacer(`\`, `\\`, "*", `\*`, "<", `\<`, "[", `\[`, "`", "\\`").Replace(text)
	return regexp.MustCompile(`'(podnas [^'\\]+)'`).ReplaceAllString(text, "`$1`")
}

// wrapped is a text in lines that a page shows whole beside the names of flags.
func wrapped(text string) string {
	var out strings.Builder
	length := 0
	for _, word := range strings.Fields(text) {
		switch {
		case length == 0:
		case length+len(word) >= 70:
			out.WriteByte('\n')
			length = 0
		default:
			out.WriteByte(' ')
		}
		out.WriteString(word)
		length += len(word) + 1
	}
	return out.String()
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

package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// commands are all but cobra's own.
func commands(cmd *cobra.Command) []*cobra.Command {
	all := []*cobra.Command{cmd}
	for _, sub := range cmd.Commands() {
		if sub.Name() != "help" && sub.Name() != "completion" {
			all = append(all, commands(sub)...)
		}
	}
	return all
}

// Every command teaches by example, and every example is a command that there is,
// with flags that it has and values that they take.
func TestExamples(t *testing.T) {
	for _, cmd := range commands(newCommand()) {
		t.Run(cmd.CommandPath(), func(t *testing.T) {
			if cmd.Short == "" || strings.HasSuffix(cmd.Short, ".") {
				t.Errorf("short help %q", cmd.Short)
			}
			lines := exampleCommands(cmd.Example)
			if len(lines) == 0 {
				t.Fatalf("no examples in %q", cmd.Example)
			}
			if strings.Count(cmd.Example, "# ") == 0 {
				t.Error("no example says what it is for")
			}
			own := false
			for _, line := range lines {
				root := newCommand()
				found, rest, err := root.Find(line)
				if err != nil {
					t.Errorf("%q: %v", line, err)
					continue
				}
				own = own || found.CommandPath() == cmd.CommandPath()
				if err := found.ParseFlags(rest); err != nil {
					t.Errorf("%q: %v", line, err)
					continue
				}
				if err := found.ValidateArgs(found.Flags().Args()); err != nil {
					t.Errorf("%q: %v", line, err)
				}
			}
			if !own && !cmd.HasSubCommands() {
				t.Errorf("no example runs %s itself: %q", cmd.CommandPath(), lines)
			}
		})
	}
}

// exampleCommands are the arguments of each podnas in an example.
func exampleCommands(example string) [][]string {
	var lines [][]string
	joined := strings.ReplaceAll(example, "\\\n", " ")
	for line := range strings.Lines(joined) {
		if line = strings.TrimSpace(line); strings.HasPrefix(line, "#") {
			continue
		}
		line, _, _ = strings.Cut(line, "  #")
		for part := range strings.SplitSeq(strings.ReplaceAll(line, "&&", "|"), "|") {
			part, _, _ = strings.Cut(part, " >")
			words := strings.Fields(part)
			at := slices.Index(words, "podnas")
			if at > 0 && words[at-1] == "-n" {
				at = slices.Index(words, "--") + 1
				if at == 0 {
					continue // kubectl's own
				}
			}
			if at < 0 || words[at] != "podnas" {
				continue
			}
			var args []string
			for _, w := range words[at+1:] {
				args = append(args, strings.Trim(w, `'"`))
			}
			lines = append(lines, args)
		}
	}
	return lines
}

func TestVersionCommand(t *testing.T) {
	defer func(c, d string) { commit, date = c, d }(commit, date)
	commit, date = "0123abc", "2026-01-02T03:04:05Z"
	out, _, err := podnas(t.Context(), "version")
	if err != nil || !strings.HasPrefix(out, "podnas "+version+" "+runtime.Version()+" "+runtime.GOOS+"/") || !strings.Contains(out, "0123abc 2026-01-02T03:04:05Z") {
		t.Errorf("%q, %v", out, err)
	}
	out, _, err = podnas(t.Context(), "version", "-o", "json")
	var facts buildFacts
	if err := json.Unmarshal([]byte(out), &facts); err != nil {
		t.Fatalf("%v in %s", err, out)
	}
	if err != nil || facts.Commit != commit || facts.Version != version || facts.Go != runtime.Version() ||
		!regexp.MustCompile(`^v0\.\d+\.\d+$`).MatchString(facts.Modules["k8s.io/client-go"]) {
		t.Errorf("%+v, %v", facts, err)
	}
	step{command: "version -o wide", code: exitUsage, err: "table, json, yaml"}.run(t)
}

// What the image and bin/podnas say of themselves comes from the Makefile and the
// Dockerfile: the variables that these set are there.
func TestStampsAreThere(t *testing.T) {
	source, err := os.ReadFile("version.go")
	mustDo(t, err)
	for _, file := range []string{"../../Makefile", "../../Dockerfile"} {
		text, err := os.ReadFile(file)
		mustDo(t, err)
		stamps := regexp.MustCompile(`-X main\.(\w+)=`).FindAllStringSubmatch(string(text), -1)
		if len(stamps) != 3 {
			t.Errorf("%s sets %q, want version, commit and date", filepath.Base(file), stamps)
		}
		for _, s := range stamps {
			if !regexp.MustCompile(`(?m)^\t` + s[1] + `\b`).Match(source) {
				t.Errorf("%s sets main.%s, which is not there", filepath.Base(file), s[1])
			}
		}
	}
}

func TestCompletion(t *testing.T) {
	root, _ := serveStandalone(t)
	t.Setenv("PODNAS_ROOT", root)
	step{command: "volume create alpha --size=1Mi"}.run(t)
	step{command: "volume create beta --size=1Mi --on-delete=archive"}.run(t)
	step{command: "volume delete beta -y"}.run(t)
	for _, shell := range []string{"bash", "zsh", "fish"} {
		step{command: "completion " + shell, stdout: "podnas", stderr: "-"}.run(t)
	}
	for _, tt := range []struct {
		line  string
		want  []string
		never string
	}{
		{"volume s", []string{"show"}, "list"},
		{"volume show |", []string{"alpha\t1Mi, ready", "beta\t1Mi, archived"}, ""},
		{"volume show alpha |", nil, "beta"},
		{"volume resize |", []string{"alpha"}, "beta"},
		{"volume adopt |", []string{"beta"}, "alpha"},
		{"volume manifests alpha |", nil, "alpha"},
		{"volume create x --on-delete |", []string{"archive", "retain"}, ""},
		{"volume list -o |", []string{"wide", "yaml"}, ""},
		{"serve --engine |", []string{"native", "go-nfs"}, ""},
		{"serve --quota |", []string{"kernel", "server"}, ""},
		{"serve --log-level |", []string{"debug", "warn"}, ""},
		{"doctor -o |", []string{"json"}, "wide"},
	} {
		args := strings.Fields(tt.line)
		if args[len(args)-1] == "|" {
			args[len(args)-1] = ""
		}
		out, _, err := podnas(t.Context(), append([]string{"__complete"}, args...)...)
		if err != nil {
			t.Errorf("%s: %v", tt.line, err)
		}
		for _, want := range tt.want {
			if !strings.Contains(out, want) {
				t.Errorf("%s: offered\n%s\nwant %s among it", tt.line, out, want)
			}
		}
		if tt.never != "" && strings.Contains(out, tt.never) {
			t.Errorf("%s: offered\n%s\nwant no %s", tt.line, out, tt.never)
		}
	}
}

package main

import (
	"cmp"
	"fmt"
	"io"
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"
)

// What the linker sets (-X main.version=...): the version, the commit, and the
// time of the commit, so that the same commit gives the same bytes.
//
//nolint:gochecknoglobals // the linker can set nothing else
var (
	version = "devel"
	commit  string
	date    string
)

const versionExamples = `  # Version, commit, Go and platform
  podnas version

  # The version in the cluster, for programs
  kubectl exec -n podnas podnas-0 -- podnas version -o json

  # The version of one module
  podnas version -o json | jq -r '.modules["k8s.io/client-go"]'`

// buildFacts are what a binary is made of.
type buildFacts struct {
	Version  string            `json:"version"`
	Commit   string            `json:"commit,omitempty"`
	Date     string            `json:"date,omitempty"` // of the commit
	Go       string            `json:"go"`
	Platform string            `json:"platform"`
	Modules  map[string]string `json:"modules"` // by path: the version
}

func newVersionCommand() *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use:     "version",
		Short:   "Print the version and the modules of the binary",
		Example: versionExamples,
		Args:    exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			facts := readBuildFacts()
			if output == outputTable {
				return printVersion(cmd.OutOrStdout(), &facts)
			}
			return printValue(cmd.OutOrStdout(), output, facts)
		},
	}
	addOutputFlag(cmd.Flags(), &output, outputTable, outputJSON, outputYAML)
	return cmd
}

// readBuildFacts asks the linker's variables, and Go for the rest.
func readBuildFacts() buildFacts {
	facts := buildFacts{
		Version: version, Commit: commit, Date: date,
		Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH,
		Modules: map[string]string{},
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return facts
	}
	for _, m := range info.Deps {
		if m.Replace != nil {
			m = m.Replace
		}
		facts.Modules[m.Path] = m.Version
	}
	for _, s := range info.Settings { // of a binary that go build made by itself
		switch s.Key {
		case "vcs.revision":
			facts.Commit = cmp.Or(facts.Commit, s.Value)
		case "vcs.time":
			facts.Date = cmp.Or(facts.Date, s.Value)
		}
	}
	return facts
}

// printVersion prints the version in one line, and then details.
func printVersion(out io.Writer, f *buildFacts) error {
	fmt.Fprintf(out, "podnas %s %s %s\n", f.Version, f.Go, f.Platform)
	return printDetails(out, [][2]string{
		{"  commit", strings.TrimSpace(f.Commit + " " + f.Date)},
		{"  modules", fmt.Sprintf("%d, listed by -o json", len(f.Modules))},
	})
}

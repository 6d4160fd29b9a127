package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"text/tabwriter"

	"github.com/spf13/pflag"
	"sigs.k8s.io/yaml"

	"github.com/podnas/podnas/provisioner/control"
)

// The forms in which commands print.
const (
	outputTable = "table"
	outputWide  = "wide"
	outputName  = "name"
	outputJSON  = "json"
	outputYAML  = "yaml"
)

// addOutputFlag adds -o. The first form is the default.
func addOutputFlag(f *pflag.FlagSet, output *string, forms ...string) {
	*output = forms[0]
	f.VarP(&outputFlag{output, forms}, "output", "o", "output format: "+strings.Join(forms, ", "))
	f.Lookup("output").Annotations = map[string][]string{formsAnnotation: forms}
}

// outputFlag takes one of the forms that a command prints in.
type outputFlag struct {
	output *string
	forms  []string
}

func (o *outputFlag) Set(text string) error {
	if !slices.Contains(o.forms, text) {
		return fmt.Errorf("use -o %s", strings.Join(o.forms, ", "))
	}
	*o.output = text
	return nil
}

func (o *outputFlag) String() string { return *o.output }

func (o *outputFlag) Type() string { return "string" }

// printDetails prints what is known of one thing: a line for each title and its text, if there is any.
func printDetails(out io.Writer, lines [][2]string) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	for _, line := range lines {
		if line[1] != "" {
			fmt.Fprintf(w, "%s\t%s\n", line[0], line[1])
		}
	}
	return w.Flush()
}

// printValue prints something for programs.
func printValue(out io.Writer, output string, value any) error {
	data, err := json.MarshalIndent(value, "", "  ")
	if err == nil && output == outputYAML {
		data, err = yaml.JSONToYAML(data)
	}
	if err != nil {
		return fmt.Errorf("print as %s: %w", output, err)
	}
	_, err = fmt.Fprintln(out, strings.TrimSpace(string(data)))
	return err
}

// printManifests prints what kubectl apply takes: the PersistentVolumes, and with
// claims also the claims that they belong to.
func printManifests(out io.Writer, output string, manifests []control.Manifest, claims bool) error {
	var objects []map[string]any
	for _, m := range manifests {
		volume, err := plain(m.Volume)
		if err != nil {
			return err
		}
		objects = append(objects, volume)
		if claims && m.Claim != nil {
			claim, err := plain(m.Claim)
			if err != nil {
				return err
			}
			objects = append(objects, claim)
		}
	}
	if output == outputJSON {
		list := map[string]any{"apiVersion": "v1", "kind": "List", "items": append([]map[string]any{}, objects...)}
		return printValue(out, output, list)
	}
	for i, object := range objects {
		if i > 0 {
			fmt.Fprintln(out, "---")
		}
		if err := printValue(out, output, object); err != nil {
			return err
		}
	}
	return nil
}

// plain is an object without what only the API server says of it.
func plain(object any) (map[string]any, error) {
	data, err := json.Marshal(object)
	if err != nil {
		return nil, fmt.Errorf("encode a manifest: %w", err)
	}
	var fields map[string]any
	if err := json.Unmarshal(data, &fields); err != nil {
		return nil, fmt.Errorf("encode a manifest: %w", err)
	}
	delete(fields, "status")
	if metadata, ok := fields["metadata"].(map[string]any); ok {
		delete(metadata, "creationTimestamp")
	}
	return fields, nil
}

// printed is where a command prints. It remembers the first write that failed, as few look at what a print returns: who
// reads a file must not take a part of the answer, or nothing, for all of it.
type printed struct {
	to io.Writer

	mu sync.Mutex
	// +checklocks:mu
	err error
}

func (p *printed) Write(b []byte) (int, error) {
	n, err := p.to.Write(b)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.err == nil {
		p.err = err
	}
	return n, err
}

func (p *printed) failed() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.err
}

// fileOf returns the file behind a stream, nil if there is none.
func fileOf(stream any) *os.File {
	if p, ok := stream.(*printed); ok {
		stream = p.to
	}
	f, _ := stream.(*os.File)
	return f
}

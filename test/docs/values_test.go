package docs

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

const chart = top + "/deploy/helm/podnas/"

// What the chart's README.md says of its values is made of values.yaml and the comments in it, by "make docs".
func TestChartValues(t *testing.T) {
	const begin, end = "<!-- Generated from values.yaml by \"make docs\". -->\n", "<!-- End of what is generated. -->\n"
	page, err := os.ReadFile(chart + "README.md")
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := strings.Cut(string(page), begin)
	_, after, found := strings.Cut(rest, end)
	if !ok || !found {
		t.Fatalf("the chart's README.md has no %q and %q", begin, end)
	}
	want := before + begin + valuesTable(t) + end + after
	if *update {
		if err := os.WriteFile(chart+"README.md", []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if string(page) != want {
		t.Error(`the values in the chart's README.md are stale: run "make docs"`)
	}
}

// valuesTable has a line for each value, and one for each group of values that has a comment.
func valuesTable(t *testing.T) string {
	t.Helper()
	var document yaml.Node
	text, err := os.ReadFile(chart + "values.yaml")
	if err == nil {
		err = yaml.Unmarshal(text, &document)
	}
	if err != nil {
		t.Fatal(err)
	}
	var schema schema
	text, err = os.ReadFile(chart + "values.schema.json")
	if err == nil {
		err = json.Unmarshal(text, &schema)
	}
	if err != nil {
		t.Fatal(err)
	}
	delete(schema.Properties, "global") // Helm's own, for charts in charts
	table := "\n| value | default | |\n|---|---|---|\n" + rows(t, "", document.Content[0], schema) + "\n"
	for line := range strings.Lines(table) {
		for cell := range strings.SplitSeq(line, "|") {
			if utf8.RuneCountInString(cell) > 120 {
				t.Errorf("a cell too long to be read: make the first sentence of the comment in values.yaml shorter:\n%s", cell)
			}
		}
	}
	return table
}

// schema is what of a JSON schema says which values there are.
type schema struct {
	Properties map[string]schema
}

func rows(t *testing.T, prefix string, group *yaml.Node, known schema) string {
	t.Helper()
	var out strings.Builder
	there := map[string]bool{}
	for i := 0; i < len(group.Content); i += 2 {
		key, value := group.Content[i], group.Content[i+1]
		name := prefix + key.Value
		says := firstSentence(key.HeadComment + value.LineComment)
		there[key.Value] = true
		of := known.Properties[key.Value]
		if len(of.Properties) > 0 {
			if says != "" {
				fmt.Fprintf(&out, "| **%s** | | %s |\n", name, says)
			}
			out.WriteString(rows(t, name+".", value, of))
			continue
		}
		if says == "" {
			t.Errorf("values.yaml has no comment on %s", name)
		}
		var decoded any
		if err := value.Decode(&decoded); err != nil {
			t.Fatal(err)
		}
		def, err := json.Marshal(decoded)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&out, "| `%s` | `%s` | %s |\n", name, def, says)
	}
	for name := range known.Properties {
		if !there[name] {
			t.Errorf("values.schema.json knows %s, and values.yaml does not have it", prefix+name)
		}
	}
	return out.String()
}

// firstSentence of a comment, as a cell of a table.
func firstSentence(comment string) string {
	text := strings.Join(strings.Fields(strings.ReplaceAll("\n"+comment, "\n#", "\n")), " ")
	text = strings.TrimPrefix(text, "# ")
	if at := strings.Index(text, ". "); at >= 0 {
		text = text[:at]
	}
	text = strings.TrimSuffix(text, ".")
	return strings.NewReplacer("|", `\|`, "<", "&lt;").Replace(text)
}

// The chart is read where no other file of the repository is, so its links have whole addresses.
// make chart-check compares its appVersion with the image's tag; here all else is compared with that.
func TestChartLinks(t *testing.T) {
	var chartFile struct {
		AppVersion string `yaml:"appVersion"`
	}
	text, err := os.ReadFile(chart + "Chart.yaml")
	if err == nil {
		err = yaml.Unmarshal(text, &chartFile)
	}
	if err != nil {
		t.Fatal(err)
	}
	appVersion := chartFile.AppVersion
	for _, name := range []string{"README.md", "Chart.yaml"} {
		page, err := os.ReadFile(chart + name)
		if err != nil {
			t.Fatal(err)
		}
		links := regexp.MustCompile(`github(?:usercontent)?\.com/podnas/podnas/(?:(?:blob|tree)/)?(?:main|v[^/]+)/([^)\s]+)`).FindAllSubmatch(page, -1)
		if len(links) < 3 {
			t.Errorf("%s has only %d links to files", name, len(links))
		}
		for _, version := range regexp.MustCompile(`\bv\d+\.\d+\.\d+(-\w+)?`).FindAllString(string(page), -1) {
			if version != appVersion {
				t.Errorf("%s has the version %s, want %s, the appVersion", name, version, appVersion)
			}
		}
		for _, link := range links {
			target, anchor, _ := strings.Cut(string(link[1]), "#")
			file := filepath.Join(top, target)
			if _, err := os.Stat(file); err != nil {
				t.Errorf("%s: %v", name, err)
			} else if anchor != "" && !slices.Contains(anchors(t, file), anchor) {
				t.Errorf("%s: no heading for the link to %s", name, link[1])
			}
		}
	}
}

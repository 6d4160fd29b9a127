package status

import (
	"context"
	"fmt"
	"hash/fnv"
	"regexp"
	"slices"
	"strings"

	g "maragu.dev/gomponents"
	h "maragu.dev/gomponents/html"

	"github.com/podnas/podnas/internal/doctor"
	"github.com/podnas/podnas/internal/volume"
)

// problems returns the findings that are not OK, the worst first, and whether all checks
// have run. The live checks run for it: what they report must agree with the rest of the
// page, which is to be collected before.
func (s *Status) problems(ctx context.Context) (problems []doctor.Result, checked bool) {
	found, checked := s.cfg.Findings.Current(ctx)
	for _, status := range []doctor.Status{doctor.Failed, doctor.Warning} {
		problems = append(problems, slices.DeleteFunc(slices.Clone(found), func(r doctor.Result) bool { return r.Status != status })...)
	}
	return problems, checked
}

// healthSection says how all is, and then each problem. of is the name of the volume whose page it is, if it is of one. The first line is announced to those who do not see the page,
// but only when it changes: so it has the names of what is concerned, and no numbers.
func healthSection(p *page, problems []doctor.Result, of string) g.Node {
	class, text := "state good", "All is well"
	switch {
	case !p.Checked:
		class, text = "state", "The first checks are under way"
	case len(problems) > 0 && problems[0].Status == doctor.Failed:
		class, text = "state bad", "Something is wrong"
	case len(problems) > 0:
		class, text = "state notice", "All works. There is something to know"
	}
	listed := problems[:min(len(problems), problemsMax)]
	shown := min(len(listed), problemsShown)
	var names []string
	for i := range listed {
		if name := listed[i].Check; !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	fixes := fixes{p, map[string]int{}}
	node := func(r doctor.Result) g.Node { return problemNode(p, &fixes, r, of) }
	return untitled(
		"health", "Health",
		h.P(h.ID("state"), h.Role("status"), h.Class(class), g.Text(text+"."), g.If(len(names) > 0, h.Span(h.Class("unseen"), g.Text(" "+volume.FormatNames(names))))),
		g.Map(listed[:shown], node),
		g.If(len(problems) > shown, h.Details(
			h.ID("problems"), h.Summary(g.Text(volume.FormatCount(len(problems)-shown, "more problem"))),
			g.Map(listed[shown:], node),
			g.If(len(problems) > problemsMax, h.P(g.Textf("and %d more, 'podnas doctor' has them all", len(problems)-problemsMax))),
		)),
	)
}

func problemNode(p *page, fixes *fixes, problem doctor.Result, of string) g.Node {
	class := "problem notice"
	if problem.Status == doctor.Failed {
		class = "problem bad"
	}
	name := g.Text(problem.Check)
	if problem.Volume != of && p.volume(problem.Volume) != nil {
		name = h.A(volumeHref(problem.Volume), name)
	}
	return h.Div(
		h.Class(class), h.Strong(name), g.Text(": "+problem.Says),
		g.If(problem.Fix != "", g.Group{g.Text(" "), h.Span(h.Class("fix"), g.Text("To do: "), fixes.node(problem))}),
	)
}

// quoted finds the commands in what is to do: doctor.Result.Fix has them in single quotes.
var quoted = regexp.MustCompile(`'((?:podnas|kubectl) [^']+)'`)

// fixes makes what is to do: each command as a person calls it from anywhere, with a button that copies it.
type fixes struct {
	p    *page
	made map[string]int // how many commands of each id there are
}

func (f *fixes) node(problem doctor.Result) g.Node {
	text, at := problem.Fix, 0
	var parts g.Group
	for _, found := range quoted.FindAllStringSubmatchIndex(text, -1) {
		parts = append(parts, g.Text(text[at:found[0]]), f.command(problem.Check, text[found[2]:found[3]]))
		at = found[1]
	}
	return append(parts, g.Text(text[at:]))
}

// command names a button by the check and the command, so that the focus stays on it when other problems come and go.
func (f *fixes) command(check, text string) g.Node {
	hash := fnv.New64a()
	fmt.Fprintf(hash, "%s\x00%s", check, text)
	id := fmt.Sprintf("fix-%x", hash.Sum64())
	if f.made[id]++; f.made[id] > 1 {
		id += fmt.Sprintf("-%d", f.made[id])
	}
	if own, ok := strings.CutPrefix(text, "podnas "); ok {
		own, piped, isPiped := strings.Cut(own, " | ")
		if text = f.p.Process.Command(own); isPiped {
			text += " | " + piped
		}
	}
	return copied(id, "Copy the command "+text, text)
}

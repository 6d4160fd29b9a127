package status

import (
	"net/http"
	"slices"
	"strings"
)

const (
	// filterFrom is the number of volumes above which there is a filter.
	filterFrom = 10
	// foldFrom is how many volumes are shown; the others are folded away.
	foldFrom = 20
	// volumesMax limits the rows of a page. A filter finds the others.
	volumesMax = 300
	// filterMax limits a filter, in bytes.
	filterMax = 200
)

// list has the volumes of a page.
type list struct {
	Filter          string
	Shown, Folded   []volumeView
	Matching, There int // how many match the filter, and how many exist
}

// filterOf returns the filter of a request.
func filterOf(r *http.Request) string {
	filter := strings.TrimSpace(r.URL.Query().Get("filter"))
	return strings.ToValidUTF8(filter[:min(len(filter), filterMax)], "")
}

// listOf returns the volumes that match a filter. Of many without a filter, those that
// matter most are shown, and the others folded away.
func listOf(volumes []volumeView, filter string) list {
	l := list{Filter: filter, There: len(volumes)}
	words := strings.Fields(strings.ToLower(filter))
	for i := range volumes {
		if volumes[i].fits(words) {
			l.Shown = append(l.Shown, volumes[i])
		}
	}
	l.Matching = len(l.Shown)
	if filter == "" && len(l.Shown) > foldFrom {
		l.fold()
	}
	l.Shown = l.Shown[:min(len(l.Shown), volumesMax)]
	l.Folded = l.Folded[:min(len(l.Folded), volumesMax-len(l.Shown))]
	return l
}

// fold moves the volumes that matter least from Shown to Folded. The others keep their
// order, so that rows move as rarely as in a short list.
func (l *list) fold() {
	busiest := uint64(0)
	for i := range l.Shown {
		busiest = max(busiest, l.Shown[i].calls)
	}
	var weights []int
	for i := range l.Shown {
		weights = append(weights, l.Shown[i].weight(busiest))
	}
	sorted := slices.Clone(weights)
	slices.Sort(sorted)
	least := sorted[len(sorted)-foldFrom]
	alike := foldFrom // how many of those with the least weight are shown
	for _, w := range weights {
		if w > least {
			alike--
		}
	}
	var shown []volumeView
	for i, w := range weights {
		if w > least || w == least && alike > 0 {
			if w == least {
				alike--
			}
			shown = append(shown, l.Shown[i])
		} else {
			l.Folded = append(l.Folded, l.Shown[i])
		}
	}
	l.Shown = shown
}

// weight is how much a volume matters: first those with a problem, then by how full a
// volume is, or how busy, in percent of the busiest.
func (v *volumeView) weight(busiest uint64) int {
	weight := v.sort
	if busiest > 0 {
		weight = max(weight, int(100*v.calls/busiest))
	}
	if v.bad {
		weight += 200
	}
	return weight
}

// fits reports whether a row contains each of the words, which are in lower case.
func (v *volumeView) fits(words []string) bool {
	if len(words) == 0 {
		return true
	}
	says := []string{v.Name, v.Path, v.Claim, v.Class, v.State, v.Source}
	for i := range v.Clients {
		says = append(says, v.Clients[i].Address)
	}
	text := strings.ToLower(strings.Join(says, "\n"))
	return !slices.ContainsFunc(words, func(word string) bool { return !strings.Contains(text, word) })
}

package snapshot_test

import (
	"fmt"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/podnas/podnas/server/snapshot"
	"github.com/podnas/podnas/test/testdisk"
)

// kept is a snapshot, and what it has.
type kept struct {
	tree string
	has  string
}

// check has a test fail if a snapshot is not any more what it was.
func (k *kept) check(t *testing.T, seed uint64, when string) {
	t.Helper()
	lines, err := describe(k.tree)
	mustDo(t, err)
	if now := strings.Join(lines, "\n"); now != k.has {
		t.Fatalf("seed %d: %s, the snapshot %s has\n%s\nand before\n%s", seed, when, k.tree, now, k.has)
	}
}

// newHoldingVolume is a volume whose removed files stay as long as a client has them open.
func newHoldingVolume(t *testing.T, disk string) *volume {
	t.Helper()
	v := newVolume(t, disk)
	mustDo(t, v.opener.OpenOrphans(filepath.Join(disk, "removed")))
	v.opener.EndReclaim(t.Context())
	return v
}

// difference is the first line in which two descriptions differ.
func difference(has, want string) string {
	a, b := strings.Split(has, "\n"), strings.Split(want, "\n")
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			return fmt.Sprintf("it has\n%s\nand the state\n%s", a[i], b[i])
		}
	}
	return fmt.Sprintf("it has %d lines, and the state %d", len(a), len(b))
}

// nearest says how a description differs from the state that is most like it.
func nearest(has string, states []string) string {
	lines := map[string]bool{}
	for line := range strings.SplitSeq(has, "\n") {
		lines[line] = true
	}
	best, most := 0, -1
	for i, state := range states {
		same := 0
		for line := range strings.SplitSeq(state, "\n") {
			if lines[line] {
				same++
			}
		}
		if same > most {
			best, most = i, same
		}
	}
	return fmt.Sprintf("of %d states %d is most like it: %s", len(states), best, difference(has, states[best]))
}

// A snapshot is what a volume had between two changes, whatever is changed while it is taken. So is each in a chain of
// snapshots that have files in common, and it stays so when others are removed.
func TestBetweenTwoChanges(t *testing.T) {
	testdisk.Sharing(t, func(t *testing.T, disk string) {
		v := newHoldingVolume(t, disk)
		seed := uint64(time.Now().UnixNano())
		m := newModel(v, seed, 0)
		defer m.end()
		for n := 0; n < 300 || n < 10_000 && len(m.undone()) > 0; n++ {
			mustDo(t, m.step())
		}
		var chain []kept
		linked := int64(0)
		for round := range testdisk.Rounds(15, 100) {
			if round%10 == 0 {
				time.Sleep(2100 * time.Millisecond) // what has changed a moment ago is cloned again
			}
			states := []string{m.describe()}
			var p snapshot.Progress
			tree, err := v.during(&p, func() error {
				err := m.step()
				states = append(states, m.describe())
				return err
			})
			if err != nil {
				t.Fatalf("seed %d, round %d: %v", seed, round, err)
			}
			lines, err := describe(tree)
			mustDo(t, err)
			has := strings.Join(lines, "\n")
			at := slices.Index(states, has)
			if at < 0 {
				t.Fatalf("seed %d, round %d: %s", seed, round, nearest(has, states))
			}
			linked += p.Linked.Load()
			t.Logf("it is state %d of %d, with %d names, of which %d are linked", at, len(states), len(lines), p.Linked.Load())
			chain = append(chain, kept{tree, has})
			if len(chain) > 3 {
				gone := m.r.IntN(len(chain))
				mustDo(t, os.RemoveAll(path.Dir(chain[gone].tree)))
				chain = slices.Delete(chain, gone, gone+1)
			}
			for i := range chain {
				chain[i].check(t, seed, fmt.Sprint("after round ", round))
			}
		}
		if linked == 0 {
			t.Error("no snapshot has a file of an earlier one")
		}
		if undone := m.undone(); len(undone) > 0 {
			t.Errorf("there was no %v", undone)
		}
	})
}

// during takes a snapshot, and calls each of these on a goroutine of its own, again and again until it is taken, and once more.
func (v *volume) during(p *snapshot.Progress, all ...func() error) (tree string, err error) {
	done := make(chan struct{})
	errs := make([]error, len(all))
	var running sync.WaitGroup
	for i, do := range all {
		running.Go(func() {
			for ended := false; !ended && errs[i] == nil; {
				select {
				case <-done:
					ended = true
				default:
				}
				errs[i] = do()
			}
		})
	}
	tree, err = v.take(p)
	close(done)
	running.Wait()
	for _, e := range errs {
		if err == nil {
			err = e
		}
	}
	return tree, err
}

// history has the states of what one client changes, and when it was between two of them.
type history struct {
	states []string
	// began and ended are of the call that led to the state; of the first they are zero.
	began, ended []time.Time
}

func (h *history) add(state string, began, ended time.Time) {
	h.states, h.began, h.ended = append(h.states, state), append(h.began, began), append(h.ended, ended)
}

// span is a time in which a cut may have been.
type span struct{ from, to time.Time }

// spans are the times in which a cut finds a state: after the beginning of the call that led to it, and before the end of the next one.
func (h *history) spans(state string) (all []span) {
	for i := range h.states {
		if h.states[i] != state {
			continue
		}
		s := span{h.began[i], time.Now()}
		if i+1 < len(h.ended) {
			s.to = h.ended[i+1]
		}
		all = append(all, s)
	}
	return all
}

// isMoment reports whether all clients may have been in these spans at one moment.
func isMoment(all [][]span) bool {
	for _, spans := range all {
		for _, s := range spans {
			at := s.from
			in := func(spans []span) bool {
				return slices.ContainsFunc(spans, func(s span) bool { return !at.Before(s.from) && at.Before(s.to) })
			}
			if !slices.ContainsFunc(all, func(spans []span) bool { return !in(spans) }) {
				return true
			}
		}
	}
	return false
}

// ours returns the lines of a description that are of what one client has made: in a directory of its own, and by its names in
// one that all use.
func ours(lines []string, own, prefix string) string {
	var kept []string
	for _, line := range lines {
		if strings.HasPrefix(line, "/"+own+"/") || strings.HasPrefix(line, "/shared/"+prefix) {
			kept = append(kept, line)
		}
	}
	return strings.Join(kept, "\n")
}

// Several clients change files of their own, in directories of their own and in one that they share, at the same time. A
// snapshot has for each of them what there was between two of its calls, and all of that was so at one moment.
func TestManyBetweenTwoChanges(t *testing.T) {
	testdisk.Sharing(t, func(t *testing.T, disk string) {
		const clients = 3
		v := newHoldingVolume(t, disk)
		seed := uint64(time.Now().UnixNano())
		shared, err := v.mkdir(*v.Files.RootID(), "shared")
		mustDo(t, err)
		var models [clients]*model
		describes := make([]func() string, clients)
		for i := range models {
			own, prefix := fmt.Sprint("own", i), fmt.Sprintf("c%d-", i)
			id, err := v.mkdir(*v.Files.RootID(), own)
			mustDo(t, err)
			m := newModel(v, seed, uint64(i))
			m.prefix, m.fixed, m.most = prefix, true, 80
			m.root.names[own] = &node{id: id, facts: facts{mode: os.ModeDir | 0o755}, names: map[string]*node{}}
			m.root.names["shared"] = &node{id: shared, facts: facts{mode: os.ModeDir | 0o755}, names: map[string]*node{}}
			for range 60 {
				mustDo(t, m.step())
			}
			t.Cleanup(m.end)
			models[i] = m
			describes[i] = func() string { return ours(strings.Split(m.describe(), "\n"), own, prefix) }
		}
		did := map[string]int{}
		for round := range testdisk.Rounds(10, 60) {
			if round%5 == 0 {
				time.Sleep(age)
			}
			var histories [clients]history
			steps := make([]func() error, clients)
			for i, m := range models {
				histories[i].add(describes[i](), time.Time{}, time.Time{})
				steps[i] = func() error {
					began := time.Now()
					err := m.step()
					ended := time.Now()
					histories[i].add(describes[i](), began, ended)
					time.Sleep(time.Duration(m.r.IntN(500)) * time.Microsecond) // the walk has to end
					return err
				}
			}
			tree, err := v.during(new(snapshot.Progress), steps...)
			if err != nil {
				t.Fatalf("seed %d, round %d: %v", seed, round, err)
			}
			lines, err := describe(tree)
			mustDo(t, err)
			all := make([][]span, clients)
			for i := range models {
				has := ours(lines, fmt.Sprint("own", i), fmt.Sprintf("c%d-", i))
				if all[i] = histories[i].spans(has); len(all[i]) == 0 {
					t.Fatalf("seed %d, round %d, client %d: %s", seed, round, i, nearest(has, histories[i].states))
				}
			}
			if !isMoment(all) {
				t.Fatalf("seed %d, round %d: the clients were in these states at no moment: %v", seed, round, all)
			}
			if round%3 == 2 { // the disk is small
				v.last = nil
				mustDo(t, os.RemoveAll(v.work))
				mustDo(t, os.Mkdir(v.work, 0o755))
			}
			for _, m := range models {
				maps.Copy(did, m.did)
			}
		}
		if len(did) < len(kindsOfSteps())/2 { // which of them, is drawn
			t.Errorf("there were %v alone", slices.Collect(maps.Keys(did)))
		}
	})
}

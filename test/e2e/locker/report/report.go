// Package report is what lockers tell the end-to-end test, and what the test concludes.
package report

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"
)

// long is what a call takes that is reported.
const long = 500 * time.Millisecond

// Call is a system call that took long.
type Call struct {
	What  string
	Began time.Time
	Took  time.Duration
}

// Ended is when it did.
func (c Call) Ended() time.Time { return c.Began.Add(c.Took) }

// End is what a locker has been told is on the disk.
type End struct {
	Appended int   // lines in its own file
	Turns    []int // the numbers of its lines in the file that both write to
}

// Turn is the line of a turn. All have the same size, so that the file's size says how many
// there are.
func Turn(n int, name string) string { return fmt.Sprintf("%08d %s\n", n, name) }

// Writer writes a report, a line of JSON for each thing in it.
type Writer struct {
	To io.Writer

	mu  sync.Mutex
	end End
}

type line struct {
	Call *Call `json:",omitempty"`
	End  *End  `json:",omitempty"`
}

// Took reports a call if it took long.
func (w *Writer) Took(what string, began time.Time, took time.Duration) {
	if took < long {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	// Without a reader of its log the pod has no use.
	_ = json.NewEncoder(w.To).Encode(line{Call: &Call{what, began, took}})
}

// Appended: another line of its own is on the disk.
func (w *Writer) Appended() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.end.Appended++
}

// TookTurn: the line of this turn is on the disk.
func (w *Writer) TookTurn(n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.end.Turns = append(w.end.Turns, n)
}

// End ends the report.
func (w *Writer) End() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return json.NewEncoder(w.To).Encode(line{End: &w.end})
}

// Parse reads a report. There is no End in that of a locker that still runs.
func Parse(text string) (calls []Call, end *End, err error) {
	lines := bufio.NewScanner(strings.NewReader(text))
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		var l line
		if err := json.Unmarshal(lines.Bytes(), &l); err != nil {
			return nil, nil, fmt.Errorf("%q: %w", lines.Text(), err)
		}
		switch {
		case l.Call != nil:
			calls = append(calls, *l.Call)
		case l.End != nil:
			end = l.End
		}
	}
	return calls, end, lines.Err()
}

// CheckTurns checks the file that lockers took turns in: a line for each number, in order, and
// each is of the locker that was told that it is there.
func CheckTurns(file string, ends map[string]End) error {
	var names []string
	for text := range strings.Lines(file) {
		_, name, _ := strings.Cut(strings.TrimSuffix(text, "\n"), " ")
		if want := Turn(len(names), name); text != want {
			return fmt.Errorf("line %d is %q, want %q: the lock was held by two, or a line is lost", len(names), text, want)
		}
		names = append(names, name)
	}
	for name, end := range ends {
		for _, n := range end.Turns {
			if n >= len(names) || names[n] != name {
				return fmt.Errorf("turn %d of %s was on the disk, and is not there", n, name)
			}
		}
	}
	return nil
}

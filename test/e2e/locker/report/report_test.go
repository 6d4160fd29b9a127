package report_test

import (
	"strings"
	"testing"
	"time"

	"github.com/podnas/podnas/test/e2e/locker/report"
)

func TestCheckTurns(t *testing.T) {
	a, b := map[string]report.End{"a": {Turns: []int{0, 2}}, "b": {Turns: []int{1}}}, map[string]report.End{}
	for _, c := range []struct {
		name string
		file []string
		ends map[string]report.End
		want string
	}{
		{"as it should be", []string{report.Turn(0, "a"), report.Turn(1, "b"), report.Turn(2, "a")}, a, ""},
		{"one more than was told", []string{report.Turn(0, "a"), report.Turn(1, "b"), report.Turn(2, "a"), report.Turn(3, "b")}, a, ""},
		{"the lock was held by two", []string{report.Turn(0, "a"), report.Turn(1, "b"), report.Turn(1, "a")}, b, "line 2"},
		{"a line is lost in the middle", []string{report.Turn(0, "a"), report.Turn(2, "a")}, b, "line 1"},
		{"the last line is lost", []string{report.Turn(0, "a"), report.Turn(1, "b")}, a, "turn 2 of a"},
		{"a line has become another's", []string{report.Turn(0, "a"), report.Turn(1, "a"), report.Turn(2, "a")}, a, "turn 1 of b"},
		{"a line is torn", []string{report.Turn(0, "a"), "0000"}, b, "line 1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := report.CheckTurns(strings.Join(c.file, ""), c.ends)
			if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q in it", err, c.want)
			}
		})
	}
}

func TestParse(t *testing.T) {
	var out strings.Builder
	w := report.Writer{To: &out}
	began := time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC)
	w.Took("fsync", began, 3*time.Second)
	w.Took("fsync", began, time.Millisecond)
	w.Appended()
	w.TookTurn(7)
	if calls, end, err := report.Parse(out.String()); err != nil || end != nil || len(calls) != 1 || calls[0] != (report.Call{What: "fsync", Began: began, Took: 3 * time.Second}) {
		t.Errorf("before its end: %v, %v, %v", calls, end, err)
	}
	if err := w.End(); err != nil {
		t.Fatal(err)
	}
	if _, end, err := report.Parse(out.String()); err != nil || end == nil || end.Appended != 1 || len(end.Turns) != 1 || end.Turns[0] != 7 {
		t.Errorf("after its end: %v, %v", end, err)
	}
	if _, _, err := report.Parse("panic"); err == nil {
		t.Error("what is no report is taken for one")
	}
}

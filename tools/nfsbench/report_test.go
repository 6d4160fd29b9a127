package nfsbench

import (
	"encoding/csv"
	"encoding/json"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"
	"time"
)

func turn(units int, errs ...error) *turnResult {
	r := &turnResult{elapsed: time.Second}
	r.units, r.bytes = int64(units), int64(units)*4096
	for range units {
		r.took.add(time.Second / time.Duration(units))
	}
	for _, err := range errs {
		r.fail(err)
	}
	return r
}

func sample() *Report {
	r := newReport(&Config{
		Targets:     []Target{{"nas", 2049, 2049, "/export", ""}, {"::1", 20490, 20490, "/a,b", NFS41}},
		Connections: 2, Depth: 8, Duration: 3 * time.Second, Rounds: 3,
	})
	r.add(&Load{Name: "read-4k-rand", Unit: "blocks"}, [][]*turnResult{
		{turn(400), turn(200), turn(900)},
		{turn(100), turn(100), turn(300, errors.New(`a "quoted", text`))},
	})
	r.Loads[0].Results[0].ServerCost, r.Loads[0].Results[0].ClientCost = &Cost{User: 1.5, System: 10.5}, &Cost{System: 7}
	r.Loads[0].CostRatio, r.CostGeometricMean = &Ratio{Median: 2.5, Min: 2, Max: 3}, 2.25
	r.add(&Load{Name: "null", Unit: "calls"}, [][]*turnResult{{turn(0), turn(100), turn(100)}, {turn(0), turn(0), turn(400)}})
	r.add(&Load{Name: "create", Unit: "calls"}, [][]*turnResult{{turn(0)}, {turn(10)}})
	return r
}

func TestRatios(t *testing.T) {
	r := sample()
	if got := r.Loads[0].Ratio; got.Median != 3 || got.Min != 2 || got.Max != 4 || !slices.Equal(got.Rounds, []float64{4, 2, 3}) {
		t.Errorf("%+v", got)
	}
	if got := r.Loads[1].Ratio; got.Median != 0.25 || len(got.Rounds) != 1 {
		t.Errorf("a round that one server didn't answer counts: %+v", got)
	}
	if got := r.Loads[2].Ratio; got != nil {
		t.Errorf("a ratio to nothing: %+v", got)
	}
	if want := math.Sqrt(3 * 0.25); math.Abs(r.GeometricMean-want) > 1e-9 {
		t.Errorf("geometric mean %v, want %v", r.GeometricMean, want)
	}
	if got := newRatio([]float64{1, 2}, []float64{1, 1}).Median; got != 1.5 {
		t.Errorf("the median of 1 and 2 is %v", got)
	}
	if got := r.Loads[0].Results[0]; got.OpsPerSecond != 500 || got.MBPerSecond != 500*4096/1e6 || got.Ops != 1500 {
		t.Errorf("%+v", got)
	}
	if r.Errors() != 1 {
		t.Errorf("%d errors", r.Errors())
	}
}

func TestJSON(t *testing.T) {
	var out strings.Builder
	if err := sample().Write(&out, FormatJSON); err != nil {
		t.Fatal(err)
	}
	var got Report
	d := json.NewDecoder(strings.NewReader(out.String()))
	d.DisallowUnknownFields()
	if err := d.Decode(&got); err != nil {
		t.Fatal(err)
	}
	if len(got.Loads) != 3 || got.Targets[1] != "[::1]:20490:/a,b" || got.Loads[0].Ratio.Median != 3 || got.Loads[0].Results[0].ServerCost.total() != 12 || got.Loads[0].Results[1].Error != `a "quoted", text` {
		t.Errorf("%+v", got)
	}
}

func TestCSV(t *testing.T) {
	var out strings.Builder
	if err := sample().Write(&out, FormatCSV); err != nil {
		t.Fatal(err)
	}
	rows, err := csv.NewReader(strings.NewReader(out.String())).ReadAll() // all rows of one length
	if err != nil {
		t.Fatal(err)
	}
	column := func(row int, name string) string { return rows[row][slices.Index(rows[0], name)] }
	if len(rows) != 7 || column(1, "load") != "read-4k-rand" || column(1, "ops_per_s") != "500.000" || column(1, "ratio_median") != "3.000" ||
		column(2, "target") != "[::1]:20490:/a,b" || column(1, "nfs") != "3" || column(2, "nfs") != "4.1" || column(2, "error") != `a "quoted", text` || column(2, "ratio_median") != "" ||
		column(1, "server_user_us") != "1.500" || column(1, "client_system_us") != "7.000" || column(1, "cost_ratio_max") != "3.000" || column(2, "server_user_us") != "" {
		t.Errorf("%q", rows)
	}
}

func TestTable(t *testing.T) {
	var out strings.Builder
	if err := sample().Write(&out, FormatTable); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"A: nas:/export, NFS version 3\n", "B: [::1]:20490:/a,b, NFS version 4.1\n", "in 3 rounds", "\n  read-4k-rand  blocks", "3.00  2.00..4.00", "2.50  2.00..3.00", "  12.0  1.50    10.5    7.00  ", "mean: 0.87", `1 errors from [::1]:20490:/a,b, the first: a "quoted"`} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the table lacks %q:\n%s", want, out.String())
		}
	}
	if err := sample().Write(&out, "xml"); err == nil {
		t.Error("there is a form xml")
	}
}

func TestSelect(t *testing.T) {
	for _, tt := range []struct {
		patterns []string
		want     string // the names; or the error, with a space in it
	}{
		{[]string{"null"}, "null"},
		{[]string{"remove", "null"}, "null,remove"},
		{[]string{"*-1m-seq*", "null"}, "null,read-1m-seq,write-1m-seq-unstable,write-1m-seq-stable"},
		{[]string{"null", "nul?"}, "null"},
		{[]string{"null", "nothing"}, `no load is called "nothing"; there are: null, getattr`},
		{[]string{"[", "null"}, "syntax error"},
	} {
		loads, err := Select(tt.patterns)
		var names []string
		for _, l := range loads {
			names = append(names, l.Name)
		}
		switch got := strings.Join(names, ","); {
		case err != nil && !strings.Contains(err.Error(), tt.want), err == nil && got != tt.want:
			t.Errorf("%q: %s, %v, want %s", tt.patterns, got, err, tt.want)
		}
	}
	both := []Target{{Version: NFS3}, {Version: NFS41}}
	if loads, err := Select([]string{"lock*"}, both[1]); err != nil || len(loads) != 1 {
		t.Errorf("with 4.1: %d loads to lock, %v", len(loads), err)
	}
	if _, err := Select([]string{"lock*"}, both...); err == nil || !strings.Contains(err.Error(), "--nfs=4.1") {
		t.Errorf("locks with version 3: %v", err)
	}
	if all, err := Select([]string{"*"}, both...); err != nil || len(all) != len(Loads())-1 {
		t.Errorf("with version 3 %d loads, %v", len(all), err)
	}
	if all, err := Select(nil); err != nil || len(all) != len(Loads()) {
		t.Errorf("%d loads, %v", len(all), err)
	}
}

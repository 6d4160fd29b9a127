package nfsbench

import (
	"math"
	"slices"
	"time"
)

// Report has the results of a run.
type Report struct {
	Targets     []string     `json:"targets"`
	NFS         []string     `json:"nfs"` // the version that each was called with
	Connections int          `json:"connections"`
	Depth       int          `json:"depth"`
	Seconds     float64      `json:"secondsPerLoad"`
	Rounds      int          `json:"rounds"`
	Loads       []LoadReport `json:"loads"`
	// GeometricMean is of the medians of all ratios, 0 without any.
	GeometricMean float64 `json:"geometricMean,omitempty"`
	// CostGeometricMean is the same of the medians of all CostRatios.
	CostGeometricMean float64 `json:"costGeometricMean,omitempty"`
}

// LoadReport has one load's results on each server.
type LoadReport struct {
	Load    string   `json:"load"`
	Unit    string   `json:"unit"`
	Results []Result `json:"results"` // in the order of Report.Targets
	Ratio   *Ratio   `json:"ratio,omitempty"`
	// CostRatio is how much processor time the second server takes, compared with the first.
	CostRatio *Ratio `json:"costRatio,omitempty"`
}

// Result is of one load on one server, over all rounds.
type Result struct {
	Ops     int64   `json:"ops"` // in LoadReport.Unit
	Seconds float64 `json:"seconds"`
	// OpsPerSecond and MBPerSecond (10^6 bytes) are means over all rounds.
	OpsPerSecond float64 `json:"opsPerSecond"`
	MBPerSecond  float64 `json:"mbPerSecond"`
	// ServerCost and ClientCost are nil where they are unknown.
	ServerCost *Cost `json:"serverCost,omitempty"`
	ClientCost *Cost `json:"clientCost,omitempty"`
	// The duration of an operation, in microseconds: for readdirplus of a
	// page, for smallfile and untar of a file.
	P50    float64 `json:"p50us"`
	P99    float64 `json:"p99us"`
	P999   float64 `json:"p999us"`
	Max    float64 `json:"maxus"`
	Errors int64   `json:"errors"`
	Error  string  `json:"error,omitempty"` // the first
}

// Cost is the processor time for a unit of Result.Ops, in microseconds: the median of the rounds.
type Cost struct {
	User   float64 `json:"userus"`
	System float64 `json:"systemus"`
}

// total returns 0 for a cost that is unknown.
func (c *Cost) total() float64 {
	if c == nil {
		return 0
	}
	return c.User + c.System
}

// Ratio compares the servers, from rounds with results of both. If it is more than 1, the first is
// faster, or takes less.
type Ratio struct {
	Median float64   `json:"median"`
	Min    float64   `json:"min"`
	Max    float64   `json:"max"`
	Rounds []float64 `json:"rounds"`
}

func newReport(cfg *Config) *Report {
	r := &Report{Connections: cfg.Connections, Depth: cfg.Depth, Seconds: cfg.Duration.Seconds(), Rounds: cfg.Rounds}
	for _, t := range cfg.Targets {
		r.Targets = append(r.Targets, t.String())
		r.NFS = append(r.NFS, t.Version.String())
	}
	return r
}

// Errors returns the number of failed operations.
func (r *Report) Errors() (n int64) {
	for _, l := range r.Loads {
		for _, result := range l.Results {
			n += result.Errors
		}
	}
	return n
}

func (r *Report) add(l *Load, turns [][]*turnResult) {
	row := LoadReport{Load: l.Name, Unit: l.Unit}
	for _, rounds := range turns {
		row.Results = append(row.Results, summarize(rounds))
	}
	if len(turns) == 2 {
		row.Ratio = newRatio(perRound(turns[0], (*turnResult).rate), perRound(turns[1], (*turnResult).rate))
		row.CostRatio = newRatio(perRound(turns[1], (*turnResult).serverCost), perRound(turns[0], (*turnResult).serverCost))
	}
	r.Loads = append(r.Loads, row)
	r.GeometricMean = geometricMean(r.Loads, func(l *LoadReport) *Ratio { return l.Ratio })
	r.CostGeometricMean = geometricMean(r.Loads, func(l *LoadReport) *Ratio { return l.CostRatio })
}

func summarize(rounds []*turnResult) Result {
	var all tally
	var elapsed time.Duration
	for _, t := range rounds {
		all.merge(&t.tally)
		elapsed += t.elapsed
	}
	us := microseconds
	result := Result{
		Ops: all.units, Seconds: elapsed.Seconds(), Errors: all.errors,
		P50: us(all.took.quantile(0.5)), P99: us(all.took.quantile(0.99)), P999: us(all.took.quantile(0.999)), Max: us(all.took.max),
	}
	if elapsed > 0 {
		result.OpsPerSecond = float64(all.units) / elapsed.Seconds()
		result.MBPerSecond = float64(all.bytes) / 1e6 / elapsed.Seconds()
	}
	var cost usage
	for _, t := range rounds {
		cost.server.add(t.cost.server)
		cost.client.add(t.cost.client)
	}
	result.ServerCost = newCost(perRound(rounds, (*turnResult).serverCost), cost.server.userShare())
	result.ClientCost = newCost(perRound(rounds, (*turnResult).clientCost), cost.client.userShare())
	if all.first != nil {
		result.Error = all.first.Error()
	}
	return result
}

func perRound(rounds []*turnResult, what func(*turnResult) float64) []float64 {
	var r []float64
	for _, t := range rounds {
		r = append(r, what(t))
	}
	return r
}

// newCost returns the cost of the median round. It is nil if no round has one.
func newCost(rounds []float64, userShare float64) *Cost {
	rounds = slices.DeleteFunc(rounds, func(us float64) bool { return us <= 0 })
	if len(rounds) == 0 {
		return nil
	}
	slices.Sort(rounds)
	total := median(rounds)
	return &Cost{User: total * userShare, System: total * (1 - userShare)}
}

func median(sorted []float64) float64 {
	n := len(sorted)
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
}

func microseconds(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1e3 }

// newRatio compares the rounds. It is nil if there are none to compare.
func newRatio(first, second []float64) *Ratio {
	var r Ratio
	for i := range first {
		if first[i] > 0 && second[i] > 0 {
			r.Rounds = append(r.Rounds, first[i]/second[i])
		}
	}
	if len(r.Rounds) == 0 {
		return nil
	}
	sorted := slices.Sorted(slices.Values(r.Rounds))
	n := len(sorted)
	r.Min, r.Max = sorted[0], sorted[n-1]
	r.Median = median(sorted)
	return &r
}

func geometricMean(loads []LoadReport, of func(*LoadReport) *Ratio) float64 {
	sum, n := 0.0, 0
	for i := range loads {
		if r := of(&loads[i]); r != nil {
			sum += math.Log(r.Median)
			n++
		}
	}
	if n == 0 {
		return 0
	}
	return math.Exp(sum / float64(n))
}

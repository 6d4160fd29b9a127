package nfsbench

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

func TestQuantiles(t *testing.T) {
	rows := func(n int, d time.Duration) []time.Duration { return slices.Repeat([]time.Duration{d}, n) }
	upTo := func(n int, unit time.Duration) (all []time.Duration) {
		for i := range n {
			all = append(all, time.Duration(i+1)*unit)
		}
		return all
	}
	for _, tt := range []struct {
		name           string
		took           []time.Duration
		p50, p99, p999 time.Duration
	}{
		{"none", nil, 0, 0, 0},
		{"one", rows(1, time.Millisecond), time.Millisecond, time.Millisecond, time.Millisecond},
		{"two", []time.Duration{10 * time.Microsecond, time.Second}, 10 * time.Microsecond, time.Second, time.Second},
		{"all the same", rows(1000, 123*time.Microsecond), 123 * time.Microsecond, 123 * time.Microsecond, 123 * time.Microsecond},
		{"1 to 1000 us", upTo(1000, time.Microsecond), 500 * time.Microsecond, 990 * time.Microsecond, 999 * time.Microsecond},
		{"few nanoseconds are exact", upTo(20, 1), 10, 20, 20},
		{"one slow of a hundred", append(rows(99, time.Millisecond), time.Second), time.Millisecond, time.Millisecond, time.Second},
		{"two slow of a hundred", append(rows(98, time.Millisecond), rows(2, time.Second)...), time.Millisecond, time.Second, time.Second},
		{"one slow of a thousand", append(rows(999, time.Millisecond), time.Second), time.Millisecond, time.Millisecond, time.Millisecond},
		{"two slow of a thousand", append(rows(998, time.Millisecond), rows(2, time.Second)...), time.Millisecond, time.Millisecond, time.Second},
		{"past the last bucket", rows(3, time.Hour), 137 * time.Second, 137 * time.Second, 137 * time.Second},
		{"a clock that went back", rows(3, -time.Second), 0, 0, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			// Two halves, merged: that is how workers' counts come together.
			var h, other histogram
			for i, d := range tt.took {
				if i%2 == 0 {
					h.add(d)
				} else {
					other.add(d)
				}
			}
			h.merge(&other)
			for _, q := range []struct {
				q    float64
				want time.Duration
			}{{0.5, tt.p50}, {0.99, tt.p99}, {0.999, tt.p999}} {
				if got := h.quantile(q.q); got < q.want-q.want/32 || got > q.want+q.want/32 {
					t.Errorf("quantile %v is %v, want %v", q.q, got, q.want)
				}
			}
		})
	}
}

// Against what sorting says, for durations of all magnitudes.
func TestQuantilesOfMany(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	var h histogram
	all := make([]time.Duration, 10000)
	for i := range all {
		all[i] = time.Duration(r.Uint64() >> (28 + r.UintN(30)))
		h.add(all[i])
	}
	slices.Sort(all)
	for _, q := range []float64{0.01, 0.5, 0.9, 0.99, 0.999, 1} {
		want := all[int(q*float64(len(all)))-1]
		if got := h.quantile(q); got < want-want/32-1 || got > want+want/32+1 {
			t.Errorf("quantile %v is %v, want %v", q, got, want)
		}
	}
}

//go:build linux

package main

import (
	"fmt"
	"math"
	"slices"
)

// table prints a line for each load: what each server did, and how many times as
// fast the first is as each other.
type table struct {
	servers []*server
	ratios  [][]float64 // the medians, by the other server
}

func newTable(servers []*server) *table {
	t := &table{servers, make([][]float64, len(servers)-1)}
	fmt.Printf("\n%-22s  %-7s", "load", "unit")
	for _, s := range servers {
		fmt.Printf("  %11s", s.name)
	}
	for _, s := range servers[1:] {
		fmt.Printf("  %24s", servers[0].name+"/"+s.name)
	}
	fmt.Println()
	return t
}

// row prints a load, which of all rounds is the one in the middle. The results are by
// server, then by round.
func (t *table) row(l load, results [][]result) {
	fmt.Printf("%-22s  %-7s", l.name, l.unit)
	for _, rounds := range results {
		rates := make([]float64, len(rounds))
		for i, r := range rounds {
			rates[i] = r.rate()
		}
		rate := median(rates)
		if l.whole {
			fmt.Printf("  %10.3fs", float64(rounds[0].done)/rate)
		} else {
			fmt.Printf("  %9.0f/s", rate)
		}
	}
	for i, other := range results[1:] {
		ratios := make([]float64, len(other))
		for round := range other {
			ratios[round] = results[0][round].rate() / other[round].rate()
		}
		middle := median(ratios)
		t.ratios[i] = append(t.ratios[i], middle)
		fmt.Printf("  %8.2fx %14s", middle, fmt.Sprintf("%.2f..%.2f", ratios[0], ratios[len(ratios)-1]))
	}
	fmt.Println()
}

// median sorts what it is given.
func median(of []float64) float64 {
	slices.Sort(of)
	return (of[(len(of)-1)/2] + of[len(of)/2]) / 2
}

// calls prints the calls of a load, by server.
func (t *table) calls(results [][]result) {
	for i, rounds := range results {
		all, done := calls{}, 0
		for _, r := range rounds {
			all.add(nil, r.calls)
			done += r.done
		}
		fmt.Printf("    %s:%s\n", t.servers[i].name, all.per(done))
	}
}

// end prints the geometric mean of all loads.
func (t *table) end() {
	fmt.Printf("%-22s  %-7s", "geometric mean", "")
	for range t.servers {
		fmt.Printf("  %11s", "")
	}
	for _, medians := range t.ratios {
		var sum float64
		for _, m := range medians {
			sum += math.Log(m)
		}
		fmt.Printf("  %8.2fx %14s", math.Exp(sum/float64(len(medians))), "")
	}
	fmt.Println()
}

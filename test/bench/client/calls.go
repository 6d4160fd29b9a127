//go:build linux

package main

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
)

// calls counts the calls of each procedure that the client has made for a mount.
type calls map[string]int

// callsOf reads them from mountstats of proc(5).
func callsOf(at string) (calls, error) {
	all, err := os.ReadFile("/proc/self/mountstats")
	if err != nil {
		return nil, err
	}
	_, stats, ok := strings.Cut(string(all), " mounted on "+at+" with ")
	if !ok {
		return nil, fmt.Errorf("nothing of %s in /proc/self/mountstats", at)
	}
	stats, _, _ = strings.Cut(stats, "\ndevice ")
	_, stats, _ = strings.Cut(stats, "per-op statistics\n")
	counts := calls{}
	for line := range strings.Lines(stats) {
		if f := strings.Fields(line); len(f) > 1 {
			if n, err := strconv.Atoi(f[1]); err == nil && n > 0 {
				counts[strings.TrimSuffix(f[0], ":")] = n
			}
		}
	}
	return counts, nil
}

// add counts what came after earlier.
func (c calls) add(earlier, now calls) {
	for name, n := range now {
		c[name] += n - earlier[name]
	}
}

// per is how many there were for each of what was done.
func (c calls) per(done int) string {
	names := slices.SortedFunc(maps.Keys(c), func(a, b string) int { return c[b] - c[a] })
	var b strings.Builder
	for _, name := range names {
		if n := float64(c[name]) / float64(done); n >= 0.005 {
			fmt.Fprintf(&b, " %s %.2f", name, n)
		}
	}
	return b.String()
}

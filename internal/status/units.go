package status

import (
	"math"
	"strconv"
)

// unit is a unit of measurement, such as MiB. All numbers that stand side by side have the same unit, so that they can
// be compared at a glance.
type unit struct {
	name string
	size float64
}

type units []unit // the smallest first

func byteUnits() units {
	return units{{"B", 1}, {"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}, {"TiB", 1 << 40}, {"PiB", 1 << 50}}
}

func timeUnits() units { return units{{"µs", 1e-6}, {"ms", 1e-3}, {"s", 1}} }

// countUnits are for numbers of things.
func countUnits() units { return units{{"", 1}} }

// of returns the largest unit of which there is one in any of the values.
func (u units) of(values ...float64) unit {
	best := u[0]
	for _, v := range values {
		for _, unit := range u {
			if v >= unit.size && unit.size > best.size {
				best = unit
			}
		}
	}
	return best
}

// number formats a value to about three digits, without the unit.
func (u unit) number(v float64) string {
	v /= u.size
	switch {
	case v > 0 && v < 0.005:
		return "<0.01"
	case v < 1:
		return trimmed(v, 100)
	case v < 100:
		return trimmed(v, 10)
	}
	return trimmed(v, 1)
}

func trimmed(v, part float64) string {
	return strconv.FormatFloat(math.Round(v*part)/part, 'f', -1, 64)
}

// format formats a value with the unit.
func (u unit) format(v float64) string {
	if u.name == "" {
		return u.number(v)
	}
	return u.number(v) + " " + u.name
}

// formatBytes formats bytes, or bytes per second, that stand alone.
func formatBytes(v float64) string { return byteUnits().of(v).format(v) }

// formatPair formats two numbers of bytes that stand side by side.
func formatPair(a, b float64) (string, string) {
	u := byteUnits().of(a, b)
	return u.format(a), u.format(b)
}

// formatRate formats a number of things per second.
func formatRate(v float64) string {
	if v >= 10000 {
		return strconv.FormatFloat(v/1000, 'f', 0, 64) + "k"
	}
	return countUnits().of(v).format(v)
}

package volume

import (
	"cmp"
	"strings"
)

// CompareNames orders names as people do: numbers in them by their value, so team-2 is before team-10.
func CompareNames(a, b string) int {
	restA, restB := a, b
	for restA != "" && restB != "" {
		order := cmp.Compare(restA[0], restB[0])
		if isDigit(restA[0]) && isDigit(restB[0]) {
			var numberA, numberB string
			numberA, restA = cutNumber(restA)
			numberB, restB = cutNumber(restB)
			order = cmp.Or(cmp.Compare(len(numberA), len(numberB)), cmp.Compare(numberA, numberB))
		} else {
			restA, restB = restA[1:], restB[1:]
		}
		if order != 0 {
			return order
		}
	}
	// One is the beginning of the other, or they differ in leading zeros alone.
	return cmp.Or(cmp.Compare(len(restA), len(restB)), cmp.Compare(a, b))
}

// cutNumber cuts off the digits that a name begins with, and returns them without leading zeros.
func cutNumber(name string) (number, rest string) {
	rest = strings.TrimLeft(name, "0123456789")
	return strings.TrimLeft(name[:len(name)-len(rest)], "0"), rest
}

func isDigit(c byte) bool { return '0' <= c && c <= '9' }

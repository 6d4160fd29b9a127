package provisioner

import (
	"fmt"
	"math"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
)

// MinSize is the smallest size of a new volume, in bytes. A smaller one is a quantity
// without its unit. Volumes that exist may be smaller.
const MinSize = 1 << 20

// Bytes returns a quantity in bytes, rounded up as the API server does.
func Bytes(q resource.Quantity) (int64, error) {
	// A quantity above the maximum is either set to it (16Ei), or its Value is 0 (1e30).
	switch {
	case q.Sign() <= 0:
		return 0, fmt.Errorf("%s is no size: it must be greater than 0, for example 1Gi", q.String())
	case q.CmpInt64(math.MaxInt64) >= 0:
		return 0, fmt.Errorf("%s is too large: a size must be less than 8Ei", q.String())
	}
	return q.Value(), nil
}

// NewSize returns the size of a new volume in bytes.
func NewSize(q resource.Quantity) (int64, error) {
	size, err := Bytes(q)
	if err != nil {
		return 0, err
	}
	if size < MinSize {
		return 0, fmt.Errorf("%s is less than 1Mi, the smallest size of a volume: did you mean %s?", q.String(), meant(q))
	}
	return size, nil
}

// meant guesses which quantity was meant by one that is too small: 5Gi by 5, and 5Mi by
// 5m, whose m means thousandths.
func meant(q resource.Quantity) string {
	text := q.String()
	unit := strings.TrimLeft(text, "0123456789")
	number := strings.TrimSuffix(text, unit)
	switch unit {
	case "":
		return number + "Gi"
	case "m":
		return number + "Mi"
	default:
		return "1Gi"
	}
}

package bench

import (
	"math"
	"slices"
)

// Spread is what is said about a set of measurements.
type Spread struct {
	Median float64 `json:"median"`
	Min    float64 `json:"min"`
	Max    float64 `json:"max"`
	N      int     `json:"n"`
}

// spreadOf sums up values; all zero for none.
func spreadOf(values []float64) Spread {
	if len(values) == 0 {
		return Spread{}
	}
	s := slices.Sorted(slices.Values(values))
	return Spread{Median: quantileSorted(s, 0.5), Min: s[0], Max: s[len(s)-1], N: len(s)}
}

// quantile is the q-quantile, 0 <= q <= 1, interpolated between neighbours; 0
// for no values.
func quantile(values []float64, q float64) float64 {
	return quantileSorted(slices.Sorted(slices.Values(values)), q)
}

func quantileSorted(s []float64, q float64) float64 {
	if len(s) == 0 {
		return 0
	}
	at := q * float64(len(s)-1)
	low := int(math.Floor(at))
	high := min(low+1, len(s)-1)
	return s[low] + (s[high]-s[low])*(at-float64(low))
}

// ratios divides pair by pair; a pair whose divisor is not positive is left
// out.
func ratios(a, b []float64) []float64 {
	var r []float64
	for i := range min(len(a), len(b)) {
		if b[i] > 0 {
			r = append(r, a[i]/b[i])
		}
	}
	return r
}

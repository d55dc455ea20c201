package result

import (
	"math"
	"slices"
)

// Median returns the middle of values, NaN of none.
func Median(values []float64) float64 { return Quantile(values, 0.5) }

// Quantile returns the value below which a part q of values lies, between two
// of them in proportion; NaN of none.
func Quantile(values []float64, q float64) float64 {
	if len(values) == 0 {
		return math.NaN()
	}
	sorted := slices.Sorted(slices.Values(values))
	at := q * float64(len(sorted)-1)
	below := int(math.Floor(at))
	above := min(below+1, len(sorted)-1)
	return sorted[below] + (at-float64(below))*(sorted[above]-sorted[below])
}

// QuantilesOf describes values, nil if there are none.
func QuantilesOf(values []float64) *Quantiles {
	if len(values) == 0 {
		return nil
	}
	return &Quantiles{
		Min: slices.Min(values), P50: Median(values), P90: Quantile(values, 0.9),
		P99: Quantile(values, 0.99), Max: slices.Max(values),
	}
}

// Values are the values of the samples of s.
func (s *Series) Values() []float64 {
	values := make([]float64, len(s.Samples))
	for i := range values {
		values[i] = s.Samples[i].Value
	}
	return values
}

// Range is the smallest and the largest value of s.
func (s *Series) Range() (least, most float64) {
	values := s.Values()
	if len(values) == 0 {
		return math.NaN(), math.NaN()
	}
	return slices.Min(values), slices.Max(values)
}

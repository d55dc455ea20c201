package oss

import (
	"testing"
	"time"
)

func TestLatencyEstimateFollowsWhatItSees(t *testing.T) {
	var e latencyEstimate
	if e.p95.Load() != 0 {
		t.Fatal("an estimate without samples")
	}
	within := func(what string, got int64, want time.Duration) {
		t.Helper()
		if d := time.Duration(got); d < want || float64(d) > 1.3*float64(want) {
			t.Errorf("%s is %v, want %v or a little more", what, d, want)
		}
	}
	for i := range 10_000 {
		e.add(time.Duration(i%1000+1) * time.Millisecond / 10) // 0.1 to 100 ms, evenly
	}
	within("p95", e.p95.Load(), 95*time.Millisecond)
	within("p99", e.p99.Load(), 99*time.Millisecond)
	for range 30_000 {
		e.add(2 * time.Millisecond)
	}
	within("p99 after the service became fast", e.p99.Load(), 2*time.Millisecond)
	for _, d := range []time.Duration{-1, 0, 1, time.Hour} {
		e.add(d)
	}
}

func TestLatencyBucketsCoverTheirSamples(t *testing.T) {
	for d := 33 * time.Microsecond; d < 4*time.Minute; d += d/50 + 1 {
		upper := latencyUpper(latencyBucket(d))
		if d >= upper || float64(upper) > 1.26*float64(d) {
			t.Fatalf("%v falls into the class below %v", d, upper)
		}
	}
}

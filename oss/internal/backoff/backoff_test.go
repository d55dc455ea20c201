package backoff_test

import (
	"testing"
	"time"

	"github.com/pailfs/pailfs/oss/internal/backoff"
)

func TestBackoffIsRandomUpToItsCeiling(t *testing.T) {
	for n := 1; n < 100; n++ {
		ceiling := 10 * time.Second
		if n < 8 {
			ceiling = min(ceiling, 100*time.Millisecond<<(n-1))
		}
		var most time.Duration
		for range 200 {
			d := backoff.Wait(n, 100*time.Millisecond, 10*time.Second)
			if d < 0 || d > ceiling {
				t.Fatalf("backoff %d is %v, beyond %v", n, d, ceiling)
			}
			most = max(most, d)
		}
		if most < ceiling/2 {
			t.Fatalf("backoff %d never exceeded %v in 200 draws up to %v", n, most, ceiling)
		}
	}
}

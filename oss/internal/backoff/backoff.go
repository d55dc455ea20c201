// Package backoff says how long to wait before something that failed is tried again.
package backoff

import (
	"math/rand/v2"
	"time"
)

// Wait returns how long to wait before the n-th repetition, n from 1: a
// random time up to base doubled n-1 times, and never more than limit. The whole
// range is random (full jitter), so that clients that failed together do not
// come back together.
func Wait(n int, base, limit time.Duration) time.Duration {
	ceiling := limit
	if shift := n - 1; shift < 30 && base<<shift < limit {
		ceiling = base << max(shift, 0)
	}
	return rand.N(ceiling + 1)
}

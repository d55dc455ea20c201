package oss

import (
	"math"
	"math/bits"
	"sync"
	"sync/atomic"
	"time"
)

// latencyEstimate answers "how long does this usually take": quantiles of recent
// durations. It is a histogram of logarithmic classes that forgets by halving, so
// it costs some nanoseconds a sample and no memory to speak of, and its answers
// are at most a fifth too large.
type latencyEstimate struct {
	// p95 and p99 in nanoseconds; 0 until enough is known.
	p95, p99 atomic.Int64

	mu struct {
		sync.Mutex
		buckets [latencyBuckets]uint32
		total   uint32
		fresh   int
	}
}

const (
	// Four classes for each doubling from 2^15 ns (33 µs) to 2^38 ns (over 4 minutes).
	latencyLowest  = 15
	latencyPerStep = 4
	latencyBuckets = (38 - latencyLowest) * latencyPerStep

	latencyRecompute = 32
	latencyEnough    = 64
	// latencyMemory is about how many samples count: at that many, all are halved.
	latencyMemory = 4096
)

func (e *latencyEstimate) add(d time.Duration) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.mu.buckets[latencyBucket(d)]++
	e.mu.total++
	if e.mu.total >= latencyMemory {
		e.mu.total = 0
		for i := range e.mu.buckets {
			e.mu.buckets[i] /= 2
			e.mu.total += e.mu.buckets[i]
		}
	}
	if e.mu.fresh++; e.mu.fresh < latencyRecompute || e.mu.total < latencyEnough {
		return
	}
	e.mu.fresh = 0
	e.p95.Store(int64(e.quantile(0.95)))
	e.p99.Store(int64(e.quantile(0.99)))
}

// quantile returns the upper end of the class that holds the q-th sample.
func (e *latencyEstimate) quantile(q float64) time.Duration {
	rank := uint32(math.Ceil(q * float64(e.mu.total)))
	var seen uint32
	for i, n := range e.mu.buckets {
		if seen += n; seen >= rank {
			return latencyUpper(i)
		}
	}
	return latencyUpper(latencyBuckets - 1)
}

func latencyBucket(d time.Duration) int {
	n := uint64(max(d, 0))
	top := bits.Len64(n) - 1
	if top < latencyLowest {
		return 0
	}
	quarter := int(n >> (top - 2) & 3)
	return min((top-latencyLowest)*latencyPerStep+quarter, latencyBuckets-1)
}

func latencyUpper(bucket int) time.Duration {
	top, quarter := latencyLowest+bucket/latencyPerStep, bucket%latencyPerStep
	return time.Duration((5 + quarter) << (top - 2))
}

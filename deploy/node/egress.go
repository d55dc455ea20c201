package node

import "time"

// egressWindow is over how long a mount's reading from the object store is averaged: reading
// comes in bursts, and who decides by it does so minutes ahead.
const egressWindow = time.Minute

// egress measures what a mount reads from the object store. Its zero value is ready.
type egress struct{ samples []egressSample }

// egressSample is how many bytes a daemon had received at a time.
type egressSample struct {
	at    time.Time
	bytes uint64
}

// take takes the counter as it is at a time. A daemon that started anew counts from 0.
func (e *egress) take(at time.Time, bytes uint64) {
	if n := len(e.samples); n > 0 && bytes < e.samples[n-1].bytes {
		e.samples = nil
	}
	// One that is older than the window is kept, so that there is an interval to measure.
	for len(e.samples) > 1 && at.Sub(e.samples[1].at) >= egressWindow {
		e.samples = e.samples[1:]
	}
	e.samples = append(e.samples, egressSample{at, bytes})
}

// rate returns the bytes a second, 0 until there are two samples.
func (e *egress) rate() int64 {
	if len(e.samples) < 2 {
		return 0
	}
	first, last := e.samples[0], e.samples[len(e.samples)-1]
	seconds := last.at.Sub(first.at).Seconds()
	if seconds <= 0 {
		return 0
	}
	return int64(float64(last.bytes-first.bytes) / seconds)
}

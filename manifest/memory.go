package manifest

import (
	"slices"
	"time"
)

// directory returns what is known of the directory prefix, which may be nothing.
// l.mu must be held.
func (l *Live) directory(prefix string) *directory {
	d := l.mu.directories[prefix]
	if d == nil {
		d = &directory{prefix: prefix, flights: make(map[string]*flight)}
		l.mu.directories[prefix] = d
		l.account(d.bytes(), 0)
	}
	return d
}

// sweep drops d if it knows nothing and waits for nothing. l.mu must be held.
func (l *Live) sweep(d *directory) {
	if len(d.runs) == 0 && len(d.flights) == 0 && l.mu.directories[d.prefix] == d {
		delete(l.mu.directories, d.prefix)
		l.account(-d.bytes(), 0)
	}
}

// change lets f change the runs of d, which must be remembered, and keeps the
// accounts. l.mu must be held.
func (l *Live) change(d *directory, f func()) {
	bytes, entries := d.bytes(), d.entries()
	f()
	l.account(d.bytes()-bytes, d.entries()-entries)
}

// account adds to what is held. l.mu must be held.
func (l *Live) account(bytes, entries int64) {
	l.mu.bytes += bytes
	l.mu.entries += entries
	l.metrics.bytes.Set(float64(l.mu.bytes))
	l.metrics.entries.Set(float64(l.mu.entries))
}

// expireEvery is how often runs that have expired are dropped at most: every run is looked at.
const expireEvery = 10 * time.Second

// expire drops the runs that nobody may use any more, now and then: whoever mounts with a short TTL and
// comes by many directories would hold MaxBytes of them. What is being asked for is left alone.
// l.mu must be held.
func (l *Live) expire(now time.Time) {
	if now.Sub(l.mu.expiredAt) < max(expireEvery, l.cfg.TTL) {
		return
	}
	l.mu.expiredAt = now
	for _, d := range l.mu.directories {
		if len(d.flights) > 0 || d.readers > 0 || len(d.runs) == 0 {
			continue
		}
		var last *run // of a large directory: what was learned of it stays with one run
		if d.large {
			last = d.runs[len(d.runs)-1]
		}
		old := func(r *run) bool { return r != last && !r.sent.After(now.Add(-l.cfg.TTL)) }
		if !slices.ContainsFunc(d.runs, old) {
			continue
		}
		l.change(d, func() {
			d.runs = slices.DeleteFunc(d.runs, old)
			d.settle(l.cfg.TTL)
		})
		l.sweep(d)
	}
}

// evict drops the runs that were not used for longest, but for keep, if the
// memory is full. It makes more room than is needed at once, because it looks
// at every run. l.mu must be held.
func (l *Live) evict(keep *run) {
	if l.mu.bytes <= l.cfg.MaxBytes {
		return
	}
	type candidate struct {
		d    *directory
		r    *run
		used int64
	}
	var all []candidate
	for _, d := range l.mu.directories {
		for _, r := range d.runs {
			if r != keep {
				all = append(all, candidate{d, r, r.used.Load()})
			}
		}
	}
	slices.SortFunc(all, func(a, b candidate) int {
		switch {
		case a.used < b.used:
			return -1
		case a.used > b.used:
			return 1
		}
		return 0
	})
	changed := make(map[*directory]map[*run]bool)
	freed, wanted := int64(0), l.mu.bytes-l.cfg.MaxBytes/8*7
	for _, c := range all {
		if freed >= wanted {
			break
		}
		if changed[c.d] == nil {
			changed[c.d] = make(map[*run]bool)
		}
		changed[c.d][c.r] = true
		freed += c.r.bytes()
		if len(changed[c.d]) == len(c.d.runs) {
			freed += directoryOverhead
		}
		l.metrics.evicted.Add(float64(c.r.len()))
	}
	for d, gone := range changed {
		l.change(d, func() {
			d.runs = slices.DeleteFunc(d.runs, func(r *run) bool { return gone[r] })
			d.settle(l.cfg.TTL)
		})
		l.sweep(d)
	}
}

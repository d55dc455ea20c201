package manifest

import (
	"slices"
	"sort"
	"time"
)

// directory is what is known of one directory. Live.mu guards it.
type directory struct {
	// prefix begins the keys of the directory.
	prefix string
	// runs are disjoint and in order. Some may have expired.
	runs []*run
	// flights are the requests that will tell more, by the item they begin at.
	flights map[string]*flight
	// large says that the directory has not come in one page, and pageShare how
	// many leading bytes the first and the last item of a page had in common then.
	large     bool
	pageShare int
	// pageItems is how many items a page had that was not the last.
	pageItems int
	// scout asks for pages ahead of readers, once one has waited for a second page;
	// readers counts those who wait.
	scout   *scout
	readers int
	// wholeUntil is the time until which the runs tell everything, or zero.
	wholeUntil time.Time
}

// directoryOverhead is what a directory costs beside its runs, in bytes,
// roughly.
const directoryOverhead = 576

// find returns the run that covers item and was asked for after the time since,
// or nil.
func (d *directory) find(item string, since time.Time) *run {
	i := sort.Search(len(d.runs), func(i int) bool { return d.runs[i].lo > item }) - 1
	if i < 0 || !d.runs[i].covers(item) || !d.runs[i].sent.After(since) {
		return nil
	}
	return d.runs[i]
}

// insert makes r what is known of its stretch.
func (d *directory) insert(r *run, ttl time.Duration) {
	d.cut(r.lo, r.hi, r.toEnd)
	i := sort.Search(len(d.runs), func(i int) bool { return d.runs[i].lo > r.lo })
	d.runs = slices.Insert(d.runs, i, r)
	d.settle(ttl)
}

// cut forgets the stretch from lo to hi, or to the end. settle must follow.
func (d *directory) cut(lo, hi string, toEnd bool) {
	// The first run that reaches beyond lo, and the first that begins at hi or
	// later.
	first := sort.Search(len(d.runs), func(i int) bool { return d.runs[i].toEnd || d.runs[i].hi > lo })
	last := len(d.runs)
	if !toEnd {
		last = sort.Search(len(d.runs), func(i int) bool { return d.runs[i].lo >= hi })
	}
	if first >= last {
		return
	}
	var rest []*run
	if r := d.runs[first]; r.lo < lo {
		rest = append(rest, r.before(lo))
	}
	if r := d.runs[last-1]; !toEnd && (r.toEnd || r.hi > hi) {
		rest = append(rest, r.from(hi))
	}
	d.runs = slices.Replace(d.runs, first, last, rest...)
}

// settle works out anew whether the directory is known as a whole.
func (d *directory) settle(ttl time.Duration) {
	d.wholeUntil = time.Time{}
	at := ""
	var oldest time.Time
	for i, r := range d.runs {
		if r.lo != at {
			return
		}
		if i == 0 || r.sent.Before(oldest) {
			oldest = r.sent
		}
		if r.toEnd {
			d.wholeUntil = oldest.Add(ttl)
			return
		}
		at = r.hi
	}
}

// tokenAt returns the token with which a listing goes on at item, if one is
// remembered since the time since.
func (d *directory) tokenAt(item string, since time.Time) string {
	i := sort.Search(len(d.runs), func(i int) bool { return d.runs[i].lo >= item }) - 1
	if i < 0 || d.runs[i].toEnd || d.runs[i].hi != item || !d.runs[i].sent.After(since) {
		return ""
	}
	return d.runs[i].token
}

// bytes returns what the directory costs in memory.
func (d *directory) bytes() int64 {
	n := int64(len(d.prefix) + directoryOverhead)
	for _, r := range d.runs {
		n += r.bytes()
	}
	return n
}

// entries returns how many items are known.
func (d *directory) entries() int64 {
	n := 0
	for _, r := range d.runs {
		n += r.len()
	}
	return int64(n)
}

// share returns how many leading bytes a and b have in common.
func share(a, b string) int {
	n := min(len(a), len(b))
	for i := range n {
		if a[i] != b[i] {
			return i
		}
	}
	return n
}

package manifest

import (
	"math"
	"time"
)

const (
	// roundPages is how many pages are asked for at once.
	roundPages = 32
	// stretchPages is how many pages, back from where knowledge ends, say how what
	// follows may lie.
	stretchPages = 4
	// countedGuess is how many pages on the first guess is where items count, for nobody
	// knows how far, and chanceGuess the most where they lie by chance, so that how dense
	// they are tells where they end.
	countedGuess, chanceGuess = 8, 64
	// paidGuesses is how many requests there may be for each page that was found, when it
	// is not known whether a guess hits anything, or a tenth more than what overlaps takes;
	// paidPages when it should, and freePages how many there may be in any case then.
	paidGuesses, paidPages, freePages = 1.25, 2, 15
	// mostUnread is which part of the memory may hold what no reader has come to when a
	// round begins. All of it would be filled before a reader who is slow, and what others
	// use would go.
	mostUnread = 4
)

// scout asks for pages of a large directory before its reader comes to them, many at
// once, at places that it guesses from the names that it knows. It does so in rounds:
// the next one begins when the last is over and a reader waits. Live.mu guards it.
//
// The first round is one guess, some pages ahead. If what lies there is as dense as what
// the reader has, what lies between is asked for evenly in the next round. If not, there
// may be nothing in between, and guesses have to be paid for by pages that were found.
type scout struct {
	// out is how many of a round's requests are not back.
	out int
	// began is when scouting began, asked how many requests it and readers have made since.
	began time.Time
	asked int
	// guessed says that there was a first guess.
	guessed bool
	// from is the item that a reader wanted last.
	from string
}

// scout asks for pages ahead of a reader who waits for the item from. l.mu must be held.
func (l *Live) scout(d *directory, from string) {
	if d.scout != nil && d.scout.out == 0 && time.Since(d.scout.began) >= l.cfg.TTL {
		d.scout = nil // what it paid for has expired
	}
	if d.scout == nil {
		d.scout = &scout{began: time.Now(), asked: int(math.Ceil(d.pages())) + len(d.flights)}
		// What is under way already belongs to the first round.
		for _, f := range d.flights {
			if f.ahead && f.scout == nil {
				f.scout = d.scout
				d.scout.out++
			}
		}
		d.scout.from = from
		l.guess(d)
		return
	}
	d.scout.from = from
	l.nextRound(d)
}

// landed notes that a request of a round is back. l.mu must be held.
func (l *Live) landed(d *directory, f *flight) {
	if f.scout == nil || f.scout != d.scout {
		return
	}
	d.scout.out--
	switch {
	case f.err != nil:
		// The store has other worries. The reader goes on by itself.
		d.scout = nil
	case d.readers > 0:
		l.nextRound(d)
	}
}

// nextRound begins the next round if the last one is over. l.mu must be held.
func (l *Live) nextRound(d *directory) {
	if d.scout.out == 0 {
		l.guess(d)
	}
}

// guess sends out one round. l.mu must be held.
func (l *Live) guess(d *directory) {
	if l.mu.closed {
		return
	}
	c := d.chart(d.scout.from, time.Now().Add(-l.cfg.TTL))
	if c == nil || c.unread() >= l.cfg.MaxBytes/mostUnread {
		return
	}
	for _, start := range c.round(d.scout, l.roundPages(c)) {
		f, err := l.launch(d, start, true)
		if err != nil {
			return
		}
		f.scout = d.scout
		d.scout.out++
	}
}

// roundPages returns how many pages a round may have, so that they take an eighth of
// the memory at most.
func (l *Live) roundPages(c *chart) int {
	page := c.fresh[c.edge].bytes() + runOverhead
	return int(min(roundPages, l.cfg.MaxBytes/8/page))
}

// unread returns the bytes of what was asked for ahead of readers, and none has come to.
func (c *chart) unread() (bytes int64) {
	for _, r := range c.fresh {
		if r.used.Load() == r.sent.UnixNano() {
			bytes += r.bytes()
		}
	}
	return bytes
}

// pages returns how many pages the known items would fill.
func (d *directory) pages() float64 {
	return float64(d.entries()) / float64(max(1, d.pageItems))
}

// chart is what is known of the way before a reader.
type chart struct {
	d *directory
	// fresh are the runs that may be relied on; knowledge of what the reader wants ends
	// with fresh[edge].
	fresh []*run
	edge  int
	ruler *ruler
	// page is how far the items of a page reach on the ruler, step how far apart pages
	// are asked for, so that each one reaches the next.
	page, step float64
	// counted says that items count, rather than lie by chance.
	counted bool
}

// chart returns what is known from the item from on by runs that were asked for after
// since, or nil if that is too little, or all.
func (d *directory) chart(from string, since time.Time) *chart {
	c := &chart{d: d, edge: -1}
	for _, r := range d.runs {
		if r.sent.After(since) {
			c.fresh = append(c.fresh, r)
		}
	}
	for i, r := range c.fresh {
		if r.covers(from) || r.hi == from {
			c.edge = i
			break
		}
	}
	if c.edge < 0 {
		return nil
	}
	for c.edge+1 < len(c.fresh) && c.joined(c.edge) {
		c.edge++
	}
	if c.fresh[c.edge].toEnd {
		return nil
	}
	first, n := c.edge, c.fresh[c.edge].len()
	for first > 0 && c.joined(first-1) && n+c.fresh[first-1].len() <= stretchPages*d.pageItems {
		first--
		n += c.fresh[first].len()
	}
	items := make([]string, 0, n)
	for _, r := range c.fresh[first : c.edge+1] {
		for i := range r.len() {
			items = append(items, r.item(i))
		}
	}
	if len(items) < max(2, d.pageItems/2) {
		return nil
	}
	c.ruler = newRuler(items)
	between := float64(len(items)-1) / float64(d.pageItems)
	c.page = (c.ruler.measure(items[len(items)-1]) - c.ruler.measure(items[0])) / between
	if c.page <= 0 {
		return nil
	}
	margin := c.margin(items)
	c.step, c.counted = c.page/(1+margin), margin < 2*leastMargin
	return c
}

// joined reports whether nothing lies between the i-th run and the next.
func (c *chart) joined(i int) bool { return !c.fresh[i].toEnd && c.fresh[i].hi == c.fresh[i+1].lo }

// leastMargin is by how much pages overlap where items count: some may have come in between.
const leastMargin = 0.02

// margin returns by how much of themselves pages should overlap: little where items
// count, and more where they lie by chance, so that next to all pages reach the next one.
func (c *chart) margin(items []string) float64 {
	const parts, deviations, most = 20, 3.5, 0.3
	size := (len(items) - 1) / parts
	if size == 0 {
		return most
	}
	sum, squares := 0.0, 0.0
	for i := range parts {
		way := c.ruler.measure(items[(i+1)*size]) - c.ruler.measure(items[i*size])
		sum, squares = sum+way, squares+way*way
	}
	mean := sum / parts
	if mean <= 0 {
		return most
	}
	// The variance of the way of one item, by the square of its mean: 0 where items
	// count, 1 where they lie by chance.
	variance := max(0, squares/parts/(mean*mean)-1) * float64(size)
	return min(leastMargin+deviations*math.Sqrt(variance/float64(c.d.pageItems)), most)
}

// round returns where to ask next, at most n places. It begins at the edge, goes on up the
// directory, and names no place where something is known or under way.
func (c *chart) round(s *scout, n int) []string {
	r := &round{chart: c, scout: s, most: n, sure: math.Ceil(c.d.pages())}
	if s.guessed {
		r.most = min(n, max(freePages, int(paidPages*r.sure))-s.asked)
	}
	for i := c.edge; i < len(c.fresh) && !r.full(); i++ {
		switch {
		case c.fresh[i].toEnd:
			return r.starts
		case i+1 == len(c.fresh):
			r.open(c.fresh[i].hi, nil)
		case c.joined(i):
		default:
			if page, ok := c.follows(i + 1); ok {
				r.between(c.fresh[i].hi, c.fresh[i+1], page)
			} else {
				r.open(c.fresh[i].hi, c.fresh[i+1])
			}
		}
	}
	return r.starts
}

// follows reports whether what begins with the i-th run looks as if it went on from what
// is known before, with nothing less in between, and how far a page reaches there.
func (c *chart) follows(i int) (page float64, ok bool) {
	const alike = 2.5
	first := c.fresh[i]
	if first.len() == 0 {
		return 0, false
	}
	begin := c.ruler.measure(first.lo)
	if c.ruler.measure(first.item(0))-begin > c.page/2 {
		return 0, false // a hole
	}
	n := 0
	for ; i < len(c.fresh) && n < c.d.pageItems; i++ {
		r := c.fresh[i]
		n += r.len()
		if r.len() > 0 {
			page = (c.ruler.measure(r.item(r.len()-1)) - begin) * float64(c.d.pageItems) / float64(n)
		}
		if r.toEnd || i+1 == len(c.fresh) || !c.joined(i) {
			break
		}
	}
	return page, n >= min(16, c.d.pageItems/2) && page < alike*c.page && page > c.page/alike
}

// round is one round of requests in the making.
type round struct {
	*chart
	scout *scout
	most  int
	// sure is how many pages there are, as far as can be known.
	sure   float64
	starts []string
	// last is where the last of them, or what is under way already, is on the ruler, if
	// any has begun.
	last  float64
	begun bool
}

// full reports whether the round has as many places as it may. A gap may have room for any number.
func (r *round) full() bool { return len(r.starts) >= r.most }

// add asks at start, which is between lo and the run next, or open.
func (r *round) add(start, lo string, next *run) {
	if r.full() || start < lo || (next != nil && start >= next.lo) {
		return
	}
	at := r.ruler.measure(start)
	if r.begun && at-r.last < r.step/2 {
		return // what was asked before reaches as far
	}
	r.begun, r.last = true, at
	if r.d.flights[start] == nil {
		r.starts = append(r.starts, start)
	}
}

// place returns the item at value on the ruler.
func (r *round) place(value float64) string { return r.ruler.at(value, r.step/1024) }

// between asks for all from lo to next, which follows it at the same pace.
func (r *round) between(lo string, next *run, page float64) {
	begin, end := r.ruler.measure(lo), r.ruler.measure(next.lo)
	pages := (end - begin) * (1/r.page + 1/page) / 2
	r.sure += pages
	r.add(lo, lo, next)
	n := int(math.Ceil(pages*r.page/r.step - 0.05))
	for i := 1; i < n && !r.full(); i++ {
		r.add(r.place(begin+(end-begin)*float64(i)/float64(n)), lo, next)
	}
}

// open asks at lo, and at places between lo and next where there may be nothing.
func (r *round) open(lo string, next *run) {
	r.add(lo, lo, next)
	begin, end := r.ruler.measure(lo), 1.0
	if next != nil {
		end = r.ruler.measure(next.lo)
	}
	steps := int(math.Ceil((end - begin) / r.step))
	if !r.scout.guessed {
		if steps > 1 {
			r.add(r.place(begin+r.step*float64(r.firstGuess(steps))), lo, next)
		}
		r.scout.guessed = true
		return
	}
	// One page on, then as far on as it was from the start, then two pages on.
	far := max(countedGuess, int(r.sure))
	guesses := int(max(paidGuesses, 1.1*r.page/r.step)*r.sure) - r.scout.asked - len(r.starts)
	for i := 1; i <= guesses && i < steps && !r.full(); i++ {
		at := i
		if i == guesses && i > 1 && far > i && far < steps {
			at = far
		}
		r.add(r.place(begin+r.step*float64(at)), lo, next)
	}
}

// firstGuess returns how many steps on the first guess is, of so many that fit: before the
// last two, because the last page may be nearly empty and then tells nothing.
func (r *round) firstGuess(steps int) int {
	most := chanceGuess
	if r.counted {
		most = countedGuess
	}
	if steps <= 4 {
		return steps - 1
	}
	return min(steps-2, most)
}

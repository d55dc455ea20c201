package manifest

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/pailfs/pailfs/oss"
)

// pageKeys is how many keys are asked for at once: as many as OSS gives.
const pageKeys = 1000

// flight is one request for a page, which any number of callers wait for.
type flight struct {
	start string
	sent  time.Time
	// done is closed when run or err is set.
	done chan struct{}
	run  *run
	err  error

	// Live.mu guards these.

	// waiters counts the callers, and one more for a flight ahead of a reader, which
	// is worth finishing without them. The last one to go cancels it.
	waiters int
	ahead   bool
	cancel  context.CancelFunc
	// promote makes the request of a flight ahead as urgent as any that is waited for.
	promote func()
	// scout is who sent it out, or nil.
	scout *scout
	// forgotten says that the answer may be older than a call of Forget, so that
	// only those who waited before it may have it.
	forgotten bool
}

// join returns a flight that begins at the item start: one that is under way, else
// instead, if that is not nil, else a new one. The caller must wait for it. l.mu must be
// held.
func (l *Live) join(d *directory, start string, now time.Time, instead *flight) (*flight, error) {
	found := d.flights[start]
	if found == nil {
		found = instead
	}
	if found == nil || !found.sent.Add(l.cfg.TTL).After(now) {
		return l.launch(d, start, false)
	}
	found.waiters++
	found.promote()
	return found, nil
}

// expected returns the flight of a scout that will probably tell of want: the last one
// that begins before. It was sent to where the page before it still reaches.
func (d *directory) expected(want string) *flight {
	var best *flight
	for _, f := range d.flights {
		if f.scout != nil && f.start <= want && (best == nil || f.start > best.start) {
			best = f
		}
	}
	return best
}

// nearest returns the flight that begins closest before want, if it is likely to
// reach it: names that have as much in common as a whole page had are probably
// in one page.
func (d *directory) nearest(want string) *flight {
	var best *flight
	for _, f := range d.flights {
		if f.start <= want && (best == nil || f.start > best.start) {
			best = f
		}
	}
	if best == nil || (best.start != "" && share(best.start, want) < d.pageShare) {
		return nil
	}
	return best
}

// launch starts a flight with one waiter, which is nobody if it is ahead of a
// reader. l.mu must be held.
func (l *Live) launch(d *directory, start string, ahead bool) (*flight, error) {
	if l.mu.closed {
		return nil, fs.ErrClosed
	}
	ctx, cancel := context.WithCancel(l.root)
	ctx, promote := oss.WithPromotion(ctx)
	f := &flight{start: start, sent: time.Now(), done: make(chan struct{}), waiters: 1, ahead: ahead, cancel: cancel, promote: promote}
	d.flights[start] = f
	from := oss.Lister(l.source)
	if ahead {
		from = l.cfg.Ahead
	}
	if ahead && d.scout != nil {
		d.scout.asked++
	}
	token := d.tokenAt(start, f.sent.Add(-l.cfg.TTL))
	l.running.Go(func() {
		defer cancel()
		l.fly(ctx, from, d.prefix, f, token)
	})
	return f, nil
}

// wait waits for f on behalf of one of its waiters.
func (l *Live) wait(ctx context.Context, d *directory, f *flight) (*run, error) {
	select {
	case <-f.done:
		if f.err != nil && l.root.Err() != nil {
			return nil, fs.ErrClosed
		}
		return f.run, f.err
	case <-ctx.Done():
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	f.waiters--
	if f.waiters == 0 {
		f.cancel()
		if d.flights[f.start] == f {
			delete(d.flights, f.start)
		}
		l.sweep(d)
	}
	return nil, ctx.Err()
}

// fly asks for a page and remembers what it tells.
func (l *Live) fly(ctx context.Context, from oss.Lister, prefix string, f *flight, token string) {
	run, large, err := l.list(ctx, from, prefix, f.start, token)
	if errors.Is(err, oss.ErrInvalid) && token != "" {
		// Tokens are the server's own, and may not live as long as ours.
		run, large, err = l.list(ctx, from, prefix, f.start, "")
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	f.run, f.err = run, err
	close(f.done)
	d := l.mu.directories[prefix]
	if d == nil {
		return
	}
	if d.flights[f.start] == f {
		delete(d.flights, f.start)
	}
	defer l.landed(d, f)
	if err != nil {
		l.metrics.failures.Inc()
		if f.ahead && f.waiters == 1 && l.root.Err() == nil {
			// Nobody is told. Whoever wants the page will ask for it again.
			l.log.Warn("listing ahead of a reader failed", "prefix", prefix, "error", err)
		}
		l.sweep(d)
		return
	}
	if large {
		d.large = true
		if n := run.len(); n > 1 {
			d.pageShare = share(run.item(0), run.item(n-1))
			d.pageItems = max(d.pageItems, n)
		}
	} else if run.lo == "" {
		d.large = false
	}
	if !f.forgotten {
		l.change(d, func() { d.insert(run, l.cfg.TTL) })
		l.expire(run.sent)
		l.evict(run)
	}
	l.sweep(d)
}

// list asks for pages from start on until one tells of it. large says that the
// listing goes on after them.
func (l *Live) list(ctx context.Context, from oss.Lister, prefix, start, token string) (r *run, large bool, err error) {
	r = &run{lo: start, sent: time.Now()}
	r.used.Store(r.sent.UnixNano())
	reader := pageReader{prefix: prefix, mounted: l.cfg.Prefix, start: start, problems: l.problems}
	request := oss.ListRequest{Prefix: prefix, Delimiter: "/", Token: token, MaxKeys: pageKeys}
	if token == "" {
		request.StartAfter = startAfter(prefix, start)
	}
	for {
		began := time.Now()
		page, err := from.List(ctx, request)
		l.metrics.duration.Observe(time.Since(began).Seconds())
		if err != nil {
			return nil, false, fmt.Errorf("list directory %q: %w", prefix, err)
		}
		reader.read(&page)
		if page.Next == "" {
			r.toEnd = true
			break
		}
		if reader.reached() {
			r.hi, r.token = afterItem(reader.last), page.Next
			break
		}
		if page.Next == request.Token {
			return nil, false, fmt.Errorf("list directory %q: %w: the server gives the same page again and again", prefix, oss.ErrBadAnswer)
		}
		request.Token = page.Next
	}
	r.inhabited = reader.inhabited
	r.build(reader.records)
	return r, !r.toEnd, nil
}

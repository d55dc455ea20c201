package oss

import (
	"context"
	"sync"
)

// WithPromotion returns a context for a request that may become more urgent
// while it waits, and the function that makes it so. After promote, whatever is
// waiting for its turn under the context, or will be, counts as [Demand]: a
// prefetch that a reader has begun to wait for overtakes the other prefetches. A
// read that is in flight already is hedged from then on if its answer is late.
//
// promote may be called from any goroutine, more than once, and after the request
// has ended.
func WithPromotion(ctx context.Context) (promotable context.Context, promote func()) {
	p := &promotion{}
	return context.WithValue(ctx, promotionKey{}, p), p.promote
}

type promotionKey struct{}

// promotion is what promote and the requests share. Lock order: mu is never held
// while a limiter or a race is called.
type promotion struct {
	mu struct {
		sync.Mutex
		done    bool
		waiting map[*ticket]*Limiter
		// racing are the reads in flight.
		racing map[*race]struct{}
	}
}

func (p *promotion) promote() {
	p.mu.Lock()
	p.mu.done = true
	waiting, racing := p.mu.waiting, p.mu.racing
	p.mu.waiting, p.mu.racing = nil, nil
	p.mu.Unlock()
	for t, l := range waiting {
		l.raise(t)
	}
	for h := range racing {
		h.promoted()
	}
}

// enter says that h is in flight. It is promoted at once if promote has been called.
func (p *promotion) enter(h *race) {
	p.mu.Lock()
	done := p.mu.done
	if !done {
		if p.mu.racing == nil {
			p.mu.racing = make(map[*race]struct{})
		}
		p.mu.racing[h] = struct{}{}
	}
	p.mu.Unlock()
	if done {
		h.promoted()
	}
}

func (p *promotion) leave(h *race) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.mu.racing, h)
}

// add says that t waits in l. It returns false if promote has been called, and
// then t must be raised by the caller.
func (p *promotion) add(t *ticket, l *Limiter) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mu.done {
		return false
	}
	if p.mu.waiting == nil {
		p.mu.waiting = make(map[*ticket]*Limiter)
	}
	p.mu.waiting[t] = l
	return true
}

func (p *promotion) remove(t *ticket) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.mu.waiting, t)
}

func (p *promotion) promoted() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.mu.done
}

func promotionOf(ctx context.Context) *promotion {
	p, _ := ctx.Value(promotionKey{}).(*promotion)
	return p
}

// effective returns the class in which a request under ctx should wait now.
func effective(ctx context.Context, class Class) Class {
	if class == Demand {
		return Demand
	}
	if p := promotionOf(ctx); p != nil && p.promoted() {
		return Demand
	}
	return class
}

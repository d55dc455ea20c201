package limiter

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
	p := &Promotion{}
	return context.WithValue(ctx, promotionKey{}, p), p.promote
}

type promotionKey struct{}

// A Reader is a read in flight under a promotion.
type Reader interface {
	// Promoted says that somebody waits for the read from now on. It is called once at
	// most, by any goroutine.
	Promoted()
}

// Promotion is what promote and the requests share. Lock order: mu is never held
// while a limiter or a reader is called.
type Promotion struct {
	mu struct {
		sync.Mutex
		done    bool
		waiting map[*ticket]*Limiter
		readers map[Reader]struct{}
	}
}

func (p *Promotion) promote() {
	p.mu.Lock()
	p.mu.done = true
	waiting, readers := p.mu.waiting, p.mu.readers
	p.mu.waiting, p.mu.readers = nil, nil
	p.mu.Unlock()
	for t, l := range waiting {
		l.raise(t)
	}
	for r := range readers {
		r.Promoted()
	}
}

// Enter says that r is in flight. It is promoted at once if promote has been called.
func (p *Promotion) Enter(r Reader) {
	p.mu.Lock()
	done := p.mu.done
	if !done {
		if p.mu.readers == nil {
			p.mu.readers = make(map[Reader]struct{})
		}
		p.mu.readers[r] = struct{}{}
	}
	p.mu.Unlock()
	if done {
		r.Promoted()
	}
}

// Leave says that r is not in flight any more.
func (p *Promotion) Leave(r Reader) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.mu.readers, r)
}

// add says that t waits in l. It returns false if promote has been called, and
// then t must be raised by the caller.
func (p *Promotion) add(t *ticket, l *Limiter) bool {
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

func (p *Promotion) remove(t *ticket) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.mu.waiting, t)
}

func (p *Promotion) promoted() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.mu.done
}

// PromotionOf returns the promotion of requests under ctx, nil if there is none.
func PromotionOf(ctx context.Context) *Promotion {
	p, _ := ctx.Value(promotionKey{}).(*Promotion)
	return p
}

// Effective returns the class in which a request under ctx should wait now.
func Effective(ctx context.Context, class Class) Class {
	if class == Demand {
		return Demand
	}
	if p := PromotionOf(ctx); p != nil && p.promoted() {
		return Demand
	}
	return class
}

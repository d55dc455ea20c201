package announced

import (
	"context"
	"errors"
	"sync"

	"github.com/pailfs/pailfs/cache"
	"github.com/pailfs/pailfs/prefetch/internal/life"
	"github.com/pailfs/pailfs/prefetch/internal/scheduler"
	"github.com/pailfs/pailfs/prefetch/session"
)

// resolvers is how many paths are looked up at once.
const resolvers = 32

// fetch is an entry whose objects are held in the cache, or are on their way.
type fetch struct {
	entry *session.Entry
	// life ends when nobody holds the entry any more.
	life life.Life
	// next is the first object that was not begun, left how many have not ended.
	next, left int
	err        error
	// ended says that the book was told what became of it, gone that nobody holds the
	// entry any more.
	ended, gone bool
}

// runResolve looks up what was announced.
func (p *Sessions) runResolve(ctx context.Context) {
	var workers sync.WaitGroup
	defer workers.Wait()
	slots := make(chan struct{}, resolvers)
	for {
		select {
		case slots <- struct{}{}:
		case <-ctx.Done():
			return
		}
		p.mu.Lock()
		e := p.mu.book.NextResolve()
		p.mu.Unlock()
		if e == nil {
			<-slots
			select {
			case <-p.resolve:
			case <-ctx.Done():
				return
			}
			continue
		}
		workers.Go(func() {
			p.resolveEntry(ctx, e)
			<-slots
		})
	}
}

func (p *Sessions) resolveEntry(ctx context.Context, e *session.Entry) {
	path := e.Path()
	found, err := p.objectsOf(ctx, e.Who(), e.Payer(), path)
	p.mu.Lock()
	p.mu.book.Resolved(e, found.objects, found.extra, err)
	budget, _ := p.mu.book.Budget()
	bytes, tell := e.Bytes, e.State() == session.Streamed && !p.mu.toldStreamed
	p.mu.toldStreamed = p.mu.toldStreamed || tell
	p.settleLocked()
	p.cfg.Wake()
	p.mu.Unlock()
	if tell {
		// Hints wait for the lock in an ioctl, and must not for the log.
		p.cfg.Log.Warn("what was announced is larger than all that may be held; it is streamed when it is read, as are others like it",
			"path", path, "bytes", bytes, "budget_bytes", budget, "remedy", "a larger cache-size, or folders of fewer files")
	}
}

// Next is the source of what sessions announced.
func (p *Sessions) Next() (scheduler.Job, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for {
		for len(p.mu.running) > 0 {
			f := p.mu.running[0]
			if f.gone || f.err != nil || f.next == len(f.entry.Objects) {
				p.mu.running[0] = nil
				p.mu.running = p.mu.running[1:]
				f.left -= len(f.entry.Objects) - f.next
				f.next = len(f.entry.Objects)
				p.endLocked(f)
				continue
			}
			obj := f.entry.Objects[f.next]
			f.next++
			return scheduler.Job{Object: obj, Run: func(ctx context.Context) {
				within, done := f.life.Within(ctx)
				defer done()
				p.fetched(f, p.cache.Fetch(within, obj))
			}}, true
		}
		e := p.mu.book.NextFetch()
		if e == nil {
			return scheduler.Job{}, false
		}
		p.admitLocked(e)
	}
}

// admitLocked begins the fetch of an entry: what it needs is held from now on, so
// that what is there already stays.
func (p *Sessions) admitLocked(e *session.Entry) {
	f := &fetch{entry: e, left: len(e.Objects)}
	for _, o := range e.Objects {
		p.cache.Hold(o)
		p.mu.readers[o] = e
	}
	p.mu.fetches[e] = f
	p.mu.running = append(p.mu.running, f)
}

// fetched notes that one object of f has come, or will not.
func (p *Sessions) fetched(f *fetch, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	f.left--
	if err != nil && f.err == nil {
		f.err = err
	}
	p.endLocked(f)
	p.settleLocked()
}

// endLocked tells the book what became of f, when the last of its objects has
// ended.
func (p *Sessions) endLocked(f *fetch) {
	if f.left > 0 || p.mu.fetches[f.entry] != f {
		return
	}
	if f.gone {
		p.forgetLocked(f)
		p.mu.leaving = append(p.mu.leaving, f)
		p.goAway.ring()
		return
	}
	if f.ended {
		return
	}
	f.ended = true
	unheld := errors.Is(f.err, cache.ErrUnavailable) || errors.Is(f.err, cache.ErrNoSpace) || errors.Is(f.err, cache.ErrNever)
	if f.err != nil {
		p.unholdLocked(f)
		p.cfg.Log.Info("an announced file was not fetched", "path", f.entry.Path(), "error", f.err)
	}
	p.mu.book.Fetched(f.entry, unheld, f.err)
}

// dropLocked lets go of an entry that nobody holds.
func (p *Sessions) dropLocked(e *session.Entry) {
	f := p.mu.fetches[e]
	if f == nil {
		p.mu.book.Freed(e)
		return
	}
	f.gone = true
	f.life.End()
	p.endLocked(f)
}

// forgetLocked takes f out of the books of what is held.
func (p *Sessions) forgetLocked(f *fetch) {
	delete(p.mu.fetches, f.entry)
	for _, o := range f.entry.Objects {
		if p.mu.readers[o] == f.entry {
			delete(p.mu.readers, o)
		}
	}
}

// unholdLocked ends the holds of what was not, or is no longer, brought whole.
func (p *Sessions) unholdLocked(f *fetch) {
	p.forgetLocked(f)
	for _, o := range f.entry.Objects {
		p.cache.Unhold(o, false)
	}
}

// runLetGo lets go in the cache of what nobody holds any more, until ctx ends and
// then of what is left. It is not done by who releases: the cache may take its
// time, and a hint must not.
func (p *Sessions) runLetGo(ctx context.Context) {
	for done := false; !done; {
		select {
		case <-p.goAway:
		case <-ctx.Done():
			done = true
		}
		p.mu.Lock()
		leaving := p.mu.leaving
		p.mu.leaving = nil
		p.mu.Unlock()
		if len(leaving) == 0 {
			continue
		}
		for _, f := range leaving {
			p.letGo(f)
		}
		p.mu.Lock()
		for _, f := range leaving {
			p.mu.book.Freed(f.entry)
		}
		p.settleLocked()
		p.mu.Unlock()
		p.cfg.Wake()
	}
}

func (p *Sessions) letGo(f *fetch) {
	for _, o := range f.entry.Objects {
		p.cache.Unhold(o, true)
		if f.entry.Drop {
			if _, err := p.cache.Evict(o); errors.Is(err, cache.ErrInUse) {
				p.mu.Lock()
				p.mu.drop = append(p.mu.drop, o)
				p.mu.Unlock()
			}
		}
	}
}

// recheck finds what the cache had to give up of what is said to be ready.
func (p *Sessions) recheck() {
	p.mu.Lock()
	var ready []*session.Entry
	for e := range p.mu.fetches {
		if e.State() == session.Ready {
			ready = append(ready, e)
		}
	}
	p.mu.Unlock()
	for _, e := range ready {
		for _, o := range e.Objects {
			if o.Size == 0 || p.cache.Residency(o).Whole {
				continue
			}
			p.mu.Lock()
			if f := p.mu.fetches[e]; f != nil && e.State() == session.Ready {
				p.unholdLocked(f)
				p.mu.book.Lost(e)
				p.settleLocked()
			}
			p.mu.Unlock()
			break
		}
	}
}

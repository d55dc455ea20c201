package build

import (
	"context"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/pailfs/pailfs/oss"
)

// lister lists all keys under a prefix with many requests at once. Nothing is
// known of the keys before: one worker begins at the start, and whoever has
// nothing to do takes the upper half of what another one has still before it.
// Where the half lies is guessed from the keys seen so far; a guess that hits
// nothing costs one short request, and the next one is nearer.
type lister struct {
	bucket  oss.Lister
	prefix  string
	workers int
	// emit is given every page, from many goroutines, and the stretch of keys that
	// it is all of.
	emit func(ctx context.Context, objects []oss.ListedObject, all span) error

	mu struct {
		sync.Mutex
		waiting []*stretch // nobody lists them yet
		active  []*stretch
		letters alphabet
		failed  bool
		// splits counts how often a stretch was divided, requests the pages asked for.
		splits, requests int64
	}
	// change is signalled when a worker that waits should look again.
	change *sync.Cond
}

// stretch is a span that one worker lists from its start to its end. The fields
// are guarded by the lister's lock.
type stretch struct {
	// left is what is not listed yet. Its end moves down when the stretch is split.
	left span
	// first is the first key that was listed, keys how many were.
	first string
	keys  int64
	// token continues after a page that was empty and not the last.
	token string
	// credit is how often the stretch may be split: pages that it has given pay for
	// the guesses, so that there are never more than splitsPerPage guesses a page.
	credit int
	// proven counts the pages since the last split.
	proven int
	// from is the stretch that this one was split from, until it has given a key.
	from *stretch
}

const (
	pageKeys      = 1000
	splitsPerPage = 4
	// worthSplitting is how many keys should still be ahead for a split to pay.
	worthSplitting = 2 * pageKeys
	// enoughProof is the number of pages after which a stretch that should have ended
	// is split all the same: the estimate was wrong.
	enoughProof = 3
)

// run lists the spans of todo.
func (l *lister) run(ctx context.Context, todo []span) error {
	l.change = sync.NewCond(&l.mu)
	for _, s := range todo {
		l.mu.waiting = append(l.mu.waiting, &stretch{left: s})
	}
	group, ctx := errgroup.WithContext(ctx)
	stop := context.AfterFunc(ctx, l.fail)
	defer stop()
	for range l.workers {
		group.Go(func() error { return l.work(ctx) })
	}
	return group.Wait()
}

// fail wakes the workers that wait, to end.
func (l *lister) fail() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mu.failed = true
	l.change.Broadcast()
}

// work lists one stretch after another.
func (l *lister) work(ctx context.Context) error {
	for {
		s := l.take()
		if s == nil {
			return ctx.Err()
		}
		for done := false; !done; {
			var err error
			if done, err = l.page(ctx, s); err != nil {
				return err
			}
		}
	}
}

// take returns a stretch to list, or nil when there is nothing left to do.
func (l *lister) take() *stretch {
	l.mu.Lock()
	defer l.mu.Unlock()
	for {
		if l.mu.failed {
			return nil
		}
		if n := len(l.mu.waiting); n > 0 {
			s := l.mu.waiting[n-1]
			l.mu.waiting = l.mu.waiting[:n-1]
			l.mu.active = append(l.mu.active, s)
			return s
		}
		if len(l.mu.active) == 0 {
			l.change.Broadcast()
			return nil
		}
		if s := l.steal(); s != nil {
			l.mu.active = append(l.mu.active, s)
			return s
		}
		l.change.Wait()
	}
}

// steal divides the stretch that has most before it and returns the upper part.
func (l *lister) steal() *stretch {
	var victim *stretch
	most := 0.0
	for _, s := range l.mu.active {
		if s.credit == 0 {
			continue
		}
		ahead := float64(s.keys) * l.mu.letters.ahead(span{After: s.first, Through: s.left.Through}, s.left.After)
		if ahead < worthSplitting && s.proven < enoughProof {
			continue
		}
		if victim == nil || ahead > most {
			victim, most = s, ahead
		}
	}
	if victim == nil {
		return nil
	}
	at, ok := l.mu.letters.split(victim.left)
	if !ok {
		victim.credit = 0
		return nil
	}
	upper := &stretch{left: span{After: at, Through: victim.left.Through}, from: victim}
	victim.left.Through = at
	victim.credit--
	victim.proven = 0
	l.mu.splits++
	return upper
}

// page lists one page of s and passes it on.
func (l *lister) page(ctx context.Context, s *stretch) (done bool, err error) {
	l.mu.Lock()
	request := oss.ListRequest{Prefix: l.prefix, StartAfter: s.left.After, Token: s.token, MaxKeys: pageKeys}
	l.mu.requests++
	l.mu.Unlock()
	page, err := l.bucket.List(ctx, request)
	if err != nil {
		return false, err
	}
	objects, all, done := l.account(s, page)
	return done, l.emit(ctx, objects, all)
}

// account notes what a page says and returns what of it belongs to s.
func (l *lister) account(s *stretch, page oss.ListPage) (objects []oss.ListedObject, all span, done bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	objects = page.Objects
	done = page.Next == ""
	// The end may have moved down since the page was asked for.
	for i := range objects {
		if !s.left.open() && objects[i].Key > s.left.Through {
			objects, done = objects[:i], true
			break
		}
	}
	for i := 0; i < len(objects); i += 16 {
		l.mu.letters.see(objects[i].Key)
	}
	if n := len(objects); n > 0 {
		l.mu.letters.see(objects[n-1].Key)
		done = done || objects[n-1].Key == s.left.Through
	}
	all = s.left
	if s.keys == 0 && len(objects) > 0 {
		s.first = objects[0].Key
	}
	s.keys += int64(len(objects))
	switch {
	case done:
		l.end(s)
		return objects, all, true
	case len(objects) == 0:
		// Nothing is known of the keys that were passed over but that there are none;
		// only the token says where to go on.
		s.token = page.Next
		return nil, span{After: all.After, Through: all.After}, false
	}
	s.token, s.from = "", nil
	all.Through = objects[len(objects)-1].Key
	s.left.After = all.Through
	s.credit = splitsPerPage
	s.proven++
	l.change.Broadcast()
	return objects, all, false
}

// end takes s out. If it held nothing, the guess was wrong and the one it was
// split from may be split once more.
func (l *lister) end(s *stretch) {
	for i, a := range l.mu.active {
		if a == s {
			l.mu.active[i] = l.mu.active[len(l.mu.active)-1]
			l.mu.active = l.mu.active[:len(l.mu.active)-1]
			break
		}
	}
	if s.keys == 0 && s.from != nil && s.from.credit < splitsPerPage {
		s.from.credit++
	}
	l.change.Broadcast()
}

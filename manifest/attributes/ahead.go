package attributes

import (
	"context"
	"time"

	"github.com/pailfs/pailfs/manifest"
	"github.com/pailfs/pailfs/manifest/attributes/internal/walk"
)

const (
	// parallel is how many requests ahead there are at once. How many of them are in flight
	// is for the limiter to say, which knows how the store bears them.
	parallel = walk.Most
	// mostRuns is how many directories are watched.
	mostRuns = 1024
)

// run is a directory of which one name after the other is looked at. Tree.mu guards it.
type run struct {
	walk.Walk
	dir string
	// gone is closed when nobody looks any more: what was not asked yet is withdrawn.
	gone chan struct{}
	// out counts what asks for it, and its requests; while there are any, watch looks
	// whether somebody still wants them.
	out   int
	watch *time.Timer
}

// met notes that e was looked up in dir. asked says that its attributes had to be
// asked: the second such name of a directory begins a run.
func (t *Tree) met(dir string, e *manifest.Entry, asked bool) {
	if e.Kind == manifest.Directory || e.Object.Key == "" {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	r := t.mu.runs[dir]
	switch {
	case t.mu.closed, r == nil && !asked:
	case r == nil:
		t.beginLocked(dir)
	case asked && r.Over():
		r.Again()
	default:
		t.followLocked(r, r.Looked(e.Object.Key, asked, time.Now()))
	}
}

// beginLocked makes a run of dir.
func (t *Tree) beginLocked(dir string) *run {
	if len(t.mu.runs) >= mostRuns {
		for _, r := range t.mu.runs {
			t.withdrawLocked(r)
		}
	}
	r := &run{dir: dir, gone: make(chan struct{})}
	t.mu.runs[dir] = r
	return r
}

// followLocked begins to ask what a walk wants.
func (t *Tree) followLocked(r *run, what walk.Ask) {
	if what.Names == 0 {
		return
	}
	t.heldLocked(r)
	t.running.Add(1)
	go t.askAhead(r, what)
}

// heldLocked notes that something is asked for r.
func (t *Tree) heldLocked(r *run) {
	if r.out++; r.watch == nil {
		r.watch = time.AfterFunc(walk.Idle, func() { t.look(r) })
	}
}

// look withdraws what r asks for if nobody looks at its names any more.
func (t *Tree) look(r *run) {
	t.mu.Lock()
	defer t.mu.Unlock()
	r.watch = nil
	if t.mu.closed || r.out == 0 {
		return
	}
	deserted, again := r.Deserted(time.Now())
	if deserted {
		t.withdrawLocked(r)
		return
	}
	r.watch = time.AfterFunc(again, func() { t.look(r) })
}

// withdrawLocked ends r. What is in flight goes on, and what somebody waits for.
func (t *Tree) withdrawLocked(r *run) {
	if t.mu.runs[r.dir] != r {
		return // it has ended
	}
	delete(t.mu.runs, r.dir)
	close(r.gone)
	for _, f := range t.mu.flights {
		if f.run == r && f.waiters == 0 {
			f.withdraw()
		}
	}
}

// askAhead asks the attributes of names that somebody will look at.
func (t *Tree) askAhead(r *run, what walk.Ask) {
	defer t.running.Done()
	entries, _, err := t.base.ReadDir(t.root, r.dir, manifest.CursorAfter(what.After), what.Names)
	if err != nil {
		entries = nil
	}
	last := ""
	if len(entries) > 0 {
		last = entries[len(entries)-1].Object.Key
	}
	t.mu.Lock()
	r.Found(last, len(entries))
	t.mu.Unlock()
	t.launch(r, entries)
	t.mu.Lock()
	r.Asked()
	r.out--
	t.mu.Unlock()
}

// launch asks the attributes of those entries of which nothing is known, as many at once as
// there are slots, and returns the flights in which they are.
func (t *Tree) launch(r *run, entries []manifest.Entry) (flights []*flight) {
	for i := range entries {
		e := &entries[i]
		if e.Kind == manifest.Directory || t.recall(e) {
			continue
		}
		select {
		case t.slots <- struct{}{}:
		case <-r.gone:
			return flights
		case <-t.root.Done():
			return flights
		}
		f, own, err := t.join(e.Object, r)
		if own == nil {
			<-t.slots
		}
		if err != nil {
			return flights
		}
		flights = append(flights, f)
		if own == nil {
			continue
		}
		obj := e.Object
		go func() {
			defer t.running.Done()
			t.fly(own, f, obj, t.later)
			<-t.slots
		}()
	}
	return flights
}

// Complete asks what the metadata of the entries of dir says of which that is not known, of
// all at once, and returns when it is, or when ctx ends. Whoever lists names together
// with their attributes calls it, then lists them again: the answers are remembered. What has
// no answer yet is asked on for as long as somebody looks at names of dir.
func (t *Tree) Complete(ctx context.Context, dir string, entries []manifest.Entry) {
	if len(entries) == 0 {
		return
	}
	t.mu.Lock()
	if t.mu.closed {
		t.mu.Unlock()
		return
	}
	r := t.mu.runs[dir]
	switch {
	case r == nil:
		r = t.beginLocked(dir)
	case r.Over():
		r.Again()
	}
	r.Waits()
	t.heldLocked(r)
	t.running.Add(1)
	t.mu.Unlock()
	asked := make(chan struct{})
	go t.together(r, entries, asked)
	select {
	case <-asked:
	case <-ctx.Done():
	}
	t.mu.Lock()
	r.Waited(time.Now())
	t.mu.Unlock()
}

// together asks for entries and for what follows them, and closes asked when they have been
// answered.
func (t *Tree) together(r *run, entries []manifest.Entry, asked chan<- struct{}) {
	defer t.running.Done()
	flights := t.launch(r, entries)
	t.mu.Lock()
	if !t.mu.closed && t.mu.runs[r.dir] == r {
		t.followLocked(r, r.Listed(entries[len(entries)-1].Object.Key, len(entries), time.Now()))
	}
	r.out--
	t.mu.Unlock()
	for _, f := range flights {
		<-f.done
	}
	close(asked)
}

package attributes

import (
	"context"
	"errors"
	"io/fs"
	"time"

	"github.com/pailfs/pailfs/manifest"
	"github.com/pailfs/pailfs/manifest/attributes/internal/walk"
	"github.com/pailfs/pailfs/oss"
)

// errDeserted means that nobody looks any more.
var errDeserted = errors.New("nobody looks at the directory")

const (
	// parallel is how many requests ahead there are at once. How many of them are in flight
	// is for the limiter to say, which knows how the store bears them.
	parallel = walk.Most
	// mostRuns is how many directories are watched, but for those whose names somebody waits for.
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
		t.desertLocked()
	}
	r := &run{Walk: walk.Begin(time.Now()), dir: dir, gone: make(chan struct{})}
	t.mu.runs[dir] = r
	return r
}

// desertLocked ends the runs at whose names nobody looks any more, or if there are none, one
// for which nobody waits.
func (t *Tree) desertLocked() {
	now, ended := time.Now(), false
	var victim *run
	for _, r := range t.mu.runs {
		deserted, _ := r.Deserted(now)
		switch {
		case deserted:
			t.withdrawLocked(r)
			ended = true
		case !r.Awaited():
			victim = r
		}
	}
	if !ended && victim != nil {
		t.withdrawLocked(victim)
	}
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
	_, _ = t.launch(t.root, r, entries) // what is not asked is looked up
	t.mu.Lock()
	r.Asked()
	r.out--
	t.mu.Unlock()
}

// launch asks the attributes of those entries of which nothing is known, as many at once as
// there are slots, until ctx ends or nobody looks any more. It returns the flights in which they
// are.
func (t *Tree) launch(ctx context.Context, r *run, entries []manifest.Entry) (flights []*flight, err error) {
	for i := range entries {
		e := entries[i]
		if e.Kind == manifest.Directory || t.recall(&e) {
			continue
		}
		f := t.inFlight(e.Object)
		if f == nil {
			f, err = t.start(ctx, r, e.Object)
		}
		if err != nil {
			return flights, err
		}
		flights = append(flights, f)
	}
	return flights, nil
}

// inFlight returns the flight for obj, nil if there is none.
func (t *Tree) inFlight(obj oss.Object) *flight {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.mu.flights[obj]
}

// start asks for obj as soon as there is a slot, unless somebody else does by then.
func (t *Tree) start(ctx context.Context, r *run, obj oss.Object) (*flight, error) {
	select {
	case t.slots <- struct{}{}:
	case <-r.gone:
		return nil, errDeserted
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-t.root.Done():
		return nil, fs.ErrClosed
	}
	f, own, err := t.join(obj, r)
	if own == nil {
		<-t.slots
		return f, err
	}
	go func() {
		defer t.running.Done()
		t.fly(own, f, obj, t.later)
		<-t.slots
	}()
	return f, nil
}

// Complete asks what the metadata of the entries of dir says of which that is not known, of
// all at once, and returns when it is, or when ctx ends. Whoever lists names together
// with their attributes calls it, then lists them again: the answers are remembered. Requests
// that are made by then go on for as long as somebody looks at names of dir.
func (t *Tree) Complete(ctx context.Context, dir string, entries []manifest.Entry) {
	if len(entries) == 0 {
		return
	}
	r := t.listedBy(dir)
	if r == nil {
		return
	}
	defer t.waited(r)
	flights, err := t.launch(ctx, r, entries)
	if err == nil {
		t.follow(r, entries)
	}
	for _, f := range flights {
		select {
		case <-f.done:
		case <-ctx.Done():
			return
		}
	}
}

// listedBy returns the run of dir for somebody who lists it and waits until waited is called, nil
// if the tree is closed.
func (t *Tree) listedBy(dir string) *run {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.mu.closed {
		return nil
	}
	r := t.mu.runs[dir]
	switch {
	case r == nil:
		r = t.beginLocked(dir)
	case r.Over():
		r.Again()
	}
	r.Waits()
	return r
}

// waited notes that somebody who waited for names of r does no more.
func (t *Tree) waited(r *run) {
	t.mu.Lock()
	defer t.mu.Unlock()
	r.Waited(time.Now())
}

// follow begins to ask for what follows entries.
func (t *Tree) follow(r *run, entries []manifest.Entry) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.mu.closed && t.mu.runs[r.dir] == r {
		t.followLocked(r, r.Listed(entries[len(entries)-1].Object.Key, len(entries), time.Now()))
	}
}

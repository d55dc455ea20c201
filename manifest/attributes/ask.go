package attributes

import (
	"context"
	"errors"
	"io/fs"

	"github.com/pailfs/pailfs/manifest"
	"github.com/pailfs/pailfs/oss"
)

// flight is one request, which any number of lookups may wait for.
type flight struct {
	// promote makes a request that nobody waited for as urgent as others.
	promote func()
	// withdraw ends it if its turn has not come. It is set where a run asks ahead.
	withdraw func()
	// run asks ahead, nil if somebody waits from the beginning; waiters are those who
	// do. Tree.mu guards them.
	run     *run
	waiters int
	done    chan struct{}
	// attr and err are set before done is closed.
	attr *manifest.Attr
	err  error
	// overtaken says that the object was made anew since: what is told of it is not remembered.
	// Tree.mu guards it.
	overtaken bool
}

// ask returns what the metadata of e, an entry of dir, says. [oss.ErrChanged] means that the
// key holds another version by now, or none.
func (t *Tree) ask(ctx context.Context, dir string, e *manifest.Entry) (*manifest.Attr, error) {
	defer t.waiting(dir)()
	for {
		f, own, err := t.join(e.Object, nil)
		if err != nil {
			return nil, err
		}
		if own != nil {
			go func() {
				defer t.running.Done()
				t.fly(own, f, e.Object, t.now)
			}()
		} else {
			f.promote()
		}
		select {
		case <-f.done:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		switch {
		case f.err != nil && t.root.Err() != nil:
			return nil, fs.ErrClosed
		case own == nil && errors.Is(f.err, context.Canceled):
			continue // it was withdrawn just before
		}
		return f.attr, f.err
	}
}

// waiting notes that somebody waits for a name of dir, until the function is called that it
// returns.
func (t *Tree) waiting(dir string) (done func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	r := t.mu.runs[dir]
	if r == nil {
		return func() {}
	}
	r.Waits()
	return func() { t.waited(r) }
}

// join returns the flight for obj, for somebody who waits for it or for a run that asks
// ahead. If there is a context, the caller has to fly it under that, and to count it out of
// t.running afterwards.
func (t *Tree) join(obj oss.Object, r *run) (f *flight, own context.Context, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if f := t.mu.flights[obj]; f != nil {
		if r == nil {
			f.waiters++
		}
		return f, nil, nil
	}
	switch {
	case t.mu.closed:
		return nil, nil, fs.ErrClosed
	case r != nil && t.mu.runs[r.dir] != r:
		return nil, nil, errDeserted // and nobody would withdraw it
	}
	f = &flight{run: r, done: make(chan struct{})}
	own, f.promote = oss.WithPromotion(t.root)
	if r == nil {
		f.waiters++
	} else {
		own, f.withdraw = oss.WithWithdrawal(own)
		t.heldLocked(r)
	}
	t.mu.flights[obj] = f
	t.running.Add(1)
	return f, own, nil
}

// fly makes the request and remembers what it told.
func (t *Tree) fly(ctx context.Context, f *flight, obj oss.Object, from oss.Stater) {
	defer func() {
		t.mu.Lock()
		if t.mu.flights[obj] == f {
			delete(t.mu.flights, obj)
		}
		if f.run != nil {
			f.run.out--
		}
		t.mu.Unlock()
		close(f.done)
	}()
	directory := obj.ETag == ""
	if e := (manifest.Entry{Kind: manifest.File, Object: obj}); !directory && t.recall(&e) {
		f.attr = e.Attr // another flight has just landed
		return
	}
	t.asked.Inc()
	info, err := from.Head(ctx, obj.Key)
	switch {
	case errors.Is(err, oss.ErrNotFound) && directory:
		err = nil
		f.attr = &manifest.Attr{}
	case errors.Is(err, oss.ErrNotFound), err == nil && !directory && (info.Symlink || info.Object != obj):
		err = oss.ErrChanged
	case err == nil:
		if f.attr = manifest.AttrOf(info.Meta); f.attr == nil {
			f.attr = &manifest.Attr{}
		}
	}
	f.err = err
	switch {
	case err != nil:
	case directory:
		t.noteMarker(obj.Key, f.attr)
	default:
		t.mu.Lock()
		defer t.mu.Unlock()
		if !f.overtaken {
			t.notes.SetNote(obj, encodeNote(obj, f.attr, false))
		}
	}
}

// Noted remembers what metadata an object has that was made a moment ago, so that it is not asked
// for; nil makes the next lookup ask. What was made before of the same bytes is the same version,
// and may have other metadata: what a request tells that was on its way is not remembered.
func (t *Tree) Noted(obj oss.Object, meta map[string]string) {
	var note []byte // says nothing
	if meta != nil {
		note = encodeNote(obj, manifest.AttrOf(meta), true)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for of, f := range t.mu.flights {
		if of.Key == obj.Key && of.ETag == obj.ETag && of.Size == obj.Size {
			f.overtaken = true
			delete(t.mu.flights, of)
		}
	}
	t.notes.SetNote(obj, note)
}

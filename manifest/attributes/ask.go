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
	done    chan struct{}
	// attr and err are set before done is closed.
	attr *manifest.Attr
	err  error
	// overtaken says that the object was made anew since: what is told of it is not remembered.
	// Tree.mu guards it.
	overtaken bool
}

// ask returns what the metadata of e says. [oss.ErrChanged] means that the key holds
// another version by now, or none.
func (t *Tree) ask(ctx context.Context, e *manifest.Entry) (*manifest.Attr, error) {
	f, own, err := t.join(e.Object)
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
	if f.err != nil && t.root.Err() != nil {
		return nil, fs.ErrClosed
	}
	return f.attr, f.err
}

// join returns the flight for obj. If there is a context, the caller has to fly it under
// that, and to count it out of t.running afterwards.
func (t *Tree) join(obj oss.Object) (f *flight, own context.Context, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if f := t.mu.flights[obj]; f != nil {
		return f, nil, nil
	}
	if t.mu.closed {
		return nil, nil, fs.ErrClosed
	}
	f = &flight{done: make(chan struct{})}
	own, f.promote = oss.WithPromotion(t.root)
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
			t.notes.SetNote(obj, manifest.EncodeAttr(f.attr))
		}
	}
}

// Noted remembers what metadata an object has that was made a moment ago, so that it is not asked
// for; nil makes the next lookup ask. What was made before of the same bytes is the same version,
// and may have other metadata: what a request tells that was on its way is not remembered.
func (t *Tree) Noted(obj oss.Object, meta map[string]string) {
	var note []byte // says nothing
	if meta != nil {
		note = manifest.EncodeAttr(manifest.AttrOf(meta))
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

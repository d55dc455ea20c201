package attributes

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/pailfs/pailfs/manifest"
	"github.com/pailfs/pailfs/oss"
)

// Base is the tree whose names are shown.
type Base interface {
	manifest.Tree
	Forget(dir, name string)
}

// Bucket is what is asked of the object store.
type Bucket interface {
	oss.RangeReader
	oss.Stater
}

// Notes remembers what was asked of an object, by its version. It may forget.
type Notes interface {
	Note(obj oss.Object) (note []byte, ok bool)
	SetNote(obj oss.Object, note []byte)
}

// Config says what is asked.
type Config struct {
	// Prefix is the mounted part of the bucket: "" or a key ending with a slash.
	Prefix string
	// Markers asks the objects of directories as well. A manifest holds what they say.
	Markers bool
	// TTL is for how long what was asked of a directory is believed; 0 means a minute.
	TTL time.Duration
}

// Tree is a [manifest.Tree] that shows attributes. It is safe for concurrent use.
type Tree struct {
	cfg   Config
	base  Base
	now   Bucket     // for whoever waits
	later oss.Stater // for what is asked ahead
	notes Notes

	asked, known prometheus.Counter

	// root ends when the tree is closed; every request's context derives from it.
	root    context.Context
	stop    context.CancelFunc
	running sync.WaitGroup
	// slots bounds the requests ahead.
	slots chan struct{}

	mu struct {
		sync.Mutex
		closed  bool
		flights map[oss.Object]*flight
		runs    map[string]*run
		markers map[string]marker
	}
}

var _ manifest.Tree = (*Tree)(nil)

// New returns a tree over base. Requests that somebody waits for go to now, those
// ahead to later. It must be closed, before base is.
func New(cfg Config, base Base, now Bucket, later oss.Stater, notes Notes, reg prometheus.Registerer) (*Tree, error) {
	if cfg.TTL == 0 {
		cfg.TTL = time.Minute
	}
	t := &Tree{
		cfg: cfg, base: base, now: now, later: later, notes: notes, slots: make(chan struct{}, parallel),
		asked: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "pailfs_attributes_asked_total", Help: "Requests for the metadata of objects, for the attributes that it holds.",
		}),
		known: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "pailfs_attributes_known_total", Help: "Names looked up whose attributes were remembered.",
		}),
	}
	if reg != nil {
		if err := errors.Join(reg.Register(t.asked), reg.Register(t.known)); err != nil {
			return nil, fmt.Errorf("register metrics of attributes: %w", err)
		}
	}
	t.root, t.stop = context.WithCancel(context.Background())
	t.mu.flights = make(map[oss.Object]*flight)
	t.mu.runs = make(map[string]*run)
	t.mu.markers = make(map[string]marker)
	return t, nil
}

// Close stops the requests that run and waits for them. Calls that wait for one
// fail with [fs.ErrClosed].
func (t *Tree) Close() error {
	t.mu.Lock()
	t.mu.closed = true
	for _, r := range t.mu.runs {
		if r.watch != nil {
			r.watch.Stop()
		}
	}
	t.mu.Unlock()
	t.stop()
	t.running.Wait()
	return nil
}

// Lookup implements [manifest.Tree]. What may not be asked, or changes faster than
// it can be, is shown without attributes.
func (t *Tree) Lookup(ctx context.Context, dir, name string) (manifest.Entry, manifest.Validity, error) {
	for attempt := 0; ; attempt++ {
		e, valid, err := t.base.Lookup(ctx, dir, name)
		if err != nil {
			return e, valid, err
		}
		if t.recall(&e) {
			t.known.Inc()
			t.met(dir, &e, false)
			return e, valid, nil
		}
		attr, err := t.ask(ctx, dir, &e)
		switch {
		case err == nil:
			t.met(dir, &e, true)
			show(&e, attr)
			return e, valid, nil
		case errors.Is(err, oss.ErrChanged) && attempt < 2:
			t.base.Forget(dir, name)
		case errors.Is(err, oss.ErrChanged), errors.Is(err, oss.ErrAccessDenied):
			return e, valid, nil
		default:
			return manifest.Entry{}, manifest.Validity{}, fmt.Errorf("ask for the attributes of %q: %w", e.Object.Key, err)
		}
	}
}

// ReadDir implements [manifest.Tree]. It asks nothing.
func (t *Tree) ReadDir(ctx context.Context, dir, after string, limit int) ([]manifest.Entry, manifest.Validity, error) {
	entries, valid, err := t.base.ReadDir(ctx, dir, after, limit)
	for i := range entries {
		entries[i].Partial = !t.recall(&entries[i])
	}
	return entries, valid, err
}

// recall completes e from what is known, and reports whether nothing has to be
// asked.
func (t *Tree) recall(e *manifest.Entry) bool {
	switch {
	case e.Attr != nil:
		show(e, e.Attr)
		return true
	case e.Kind == manifest.Symlink:
		// A HEAD would follow the link.
		return true
	case e.Kind == manifest.Directory:
		return !t.cfg.Markers || t.recallMarker(e)
	}
	note, ok := t.notes.Note(e.Object)
	if !ok {
		return false
	}
	attr, ok := decodeNote(note, e.Object)
	if ok {
		show(e, attr)
	}
	return ok
}

// show gives e its attributes.
func show(e *manifest.Entry, attr *manifest.Attr) {
	e.Attr = attr
	if e.LinkFile() {
		e.Kind = manifest.Symlink
	}
}

// ReadLink implements [manifest.Tree]. The target of a link of ossfs 1 is the content
// of its object.
func (t *Tree) ReadLink(ctx context.Context, e manifest.Entry) (string, error) {
	if e.Kind != manifest.Symlink {
		return "", fmt.Errorf("read link %q: %w", e.Object.Key, fs.ErrInvalid)
	}
	if note, ok := t.notes.Note(e.Object); ok {
		if attr, ok := decodeNote(note, e.Object); ok {
			e.Attr = attr
		}
	}
	switch {
	case !e.LinkFile():
		return t.base.ReadLink(ctx, e)
	case e.Attr.Known&manifest.AttrTarget != 0:
		return e.Attr.Target, nil
	}
	target := make([]byte, e.Object.Size)
	if _, err := t.now.ReadRange(ctx, oss.RangeRequest{Object: e.Object, Buffer: target}); err != nil {
		return "", fmt.Errorf("read link %q: %w", e.Object.Key, err)
	}
	known := *e.Attr
	known.Known |= manifest.AttrTarget
	known.Target = string(target)
	t.notes.SetNote(e.Object, encodeNote(e.Object, &known, false))
	return known.Target, nil
}

// Problems implements [manifest.Tree].
func (t *Tree) Problems() manifest.Problems { return t.base.Problems() }

// Forget makes the next Lookup of name in dir ask again.
func (t *Tree) Forget(dir, name string) {
	t.forgetMarker(dir, name)
	t.base.Forget(dir, name)
}

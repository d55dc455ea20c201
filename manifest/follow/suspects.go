package follow

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pailfs/pailfs/manifest"
	"github.com/pailfs/pailfs/oss"
)

// mostSuspects bounds the names that are asked of the bucket. Whatever is beyond
// stays as the manifest has it: reading it is ESTALE.
const mostSuspects = 1 << 16

// suspects are names of which the manifest is known to be wrong.
type suspects struct {
	count atomic.Int64
	mu    struct {
		sync.Mutex
		dirs map[string]map[string]*suspect
	}
}

// suspect is one such name.
type suspect struct {
	dir, name string
	mu        struct {
		sync.Mutex // held while the bucket is asked
		// until is how long the answer is believed; zero if there is none.
		until time.Time
		// entry is the name's, if found.
		entry manifest.Entry
		found bool
	}
}

// any reports whether there are any.
func (s *suspects) any() bool { return s.count.Load() > 0 }

// add makes name suspect, and forgets what the bucket said of it. It reports
// whether there was room.
func (s *suspects) add(dir, name string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.dirs[dir][name] == nil && s.count.Load() >= mostSuspects {
		return false
	}
	if s.mu.dirs == nil {
		s.mu.dirs = make(map[string]map[string]*suspect)
	}
	if s.mu.dirs[dir] == nil {
		s.mu.dirs[dir] = make(map[string]*suspect)
	}
	if s.mu.dirs[dir][name] == nil {
		s.count.Add(1)
	}
	s.mu.dirs[dir][name] = &suspect{dir: dir, name: name}
	return true
}

// find returns the suspect of that name, or nil.
func (s *suspects) find(dir, name string) *suspect {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.dirs[dir][name]
}

// correct returns entries of dir with what the bucket said of suspects. What it
// has not been asked for stays.
func (s *suspects) correct(dir string, entries []manifest.Entry, valid manifest.Validity) ([]manifest.Entry, manifest.Validity) {
	s.mu.Lock()
	known := s.mu.dirs[dir]
	here := maps.Clone(known)
	s.mu.Unlock()
	if len(here) == 0 {
		return entries, valid
	}
	corrected := make([]manifest.Entry, 0, len(entries))
	for _, e := range entries {
		one := here[e.Name]
		if one == nil {
			corrected = append(corrected, e)
			continue
		}
		one.mu.Lock()
		until, now, found := one.mu.until, one.mu.entry, one.mu.found
		one.mu.Unlock()
		switch {
		case until.IsZero():
			corrected = append(corrected, e)
		case found:
			now.Cursor = e.Cursor
			corrected = append(corrected, now)
			if v := time.Time(valid); v.IsZero() || until.Before(v) {
				valid = manifest.Validity(until)
			}
		}
	}
	return corrected, valid
}

// settle drops the names of which after says something else than before. What did
// not change was made without knowing better.
func (s *suspects) settle(before, after manifest.Tree) {
	if !s.any() {
		return
	}
	s.mu.Lock()
	var all []*suspect
	for _, names := range s.mu.dirs {
		for _, one := range names {
			all = append(all, one)
		}
	}
	s.mu.Unlock()
	for _, one := range slices.Clip(all) {
		b, _, errBefore := before.Lookup(context.Background(), one.dir, one.name)
		a, _, errAfter := after.Lookup(context.Background(), one.dir, one.name)
		if (errBefore == nil) == (errAfter == nil) && a.Kind == b.Kind && a.Object == b.Object && a.Attr.Equal(b.Attr) {
			continue
		}
		s.mu.Lock()
		if s.mu.dirs[one.dir][one.name] != nil {
			delete(s.mu.dirs[one.dir], one.name)
			s.count.Add(-1)
		}
		if len(s.mu.dirs[one.dir]) == 0 {
			delete(s.mu.dirs, one.dir)
		}
		s.mu.Unlock()
	}
}

// Forget makes the next Lookup of name in dir ask the bucket. It is for callers
// that met [oss.ErrChanged] or [oss.ErrNotFound], and for those who changed the
// bucket themselves. Up to 65,536 names are asked for; further ones stay as the
// manifest has them.
func (t *Tree) Forget(dir, name string) {
	if !t.suspect.add(dir, name) {
		t.metrics.unasked.Inc()
	}
}

// ask answers a lookup with what the bucket says. e is the manifest's entry.
func (t *Tree) ask(ctx context.Context, s *suspect, e manifest.Entry) (manifest.Entry, manifest.Validity, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !time.Now().Before(s.mu.until) {
		if err := t.askBucket(ctx, s, e); err != nil {
			return manifest.Entry{}, manifest.Validity{}, err
		}
	}
	if !s.mu.found {
		return manifest.Entry{}, manifest.Validity(s.mu.until), fs.ErrNotExist
	}
	return s.mu.entry, manifest.Validity(s.mu.until), nil
}

// askBucket fills s. The caller holds s.mu.
func (t *Tree) askBucket(ctx context.Context, s *suspect, e manifest.Entry) error {
	key, ok := manifest.ObjectKey(t.cfg.Prefix, s.dir, s.name)
	if !ok {
		s.mu.until, s.mu.found = time.Now().Add(t.cfg.TTL), false
		return nil
	}
	if e.Kind == manifest.Directory {
		// Whether it is still there is for a listing to say, which is the next generation.
		s.mu.until, s.mu.found, s.mu.entry = time.Now().Add(t.cfg.TTL), true, e
		return nil
	}
	asked := time.Now()
	info, err := t.bucket.Head(ctx, key)
	switch {
	case errors.Is(err, oss.ErrNotFound):
		s.mu.until, s.mu.found = asked.Add(t.cfg.NegativeTTL), false
		return nil
	case err != nil:
		return fmt.Errorf("ask for %q: %w", key, err)
	}
	s.mu.until, s.mu.found = asked.Add(t.cfg.TTL), true
	s.mu.entry = manifest.Entry{Name: s.name, Kind: manifest.File, Object: info.Object}
	return nil
}

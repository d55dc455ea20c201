package prefetch

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/pailfs/pailfs/cache"
	"github.com/pailfs/pailfs/oss"
	"github.com/pailfs/pailfs/prefetch/internal/prefetchtest"
	"github.com/pailfs/pailfs/prefetch/session"
)

// patterns is an object store in which every object is its key over and over. Those
// with "gone" in their key are not there any more.
type patterns struct{}

func pattern(key string, n int) []byte { return bytes.Repeat([]byte(key), n/len(key)+1)[:n] }

func (patterns) ReadRange(ctx context.Context, r oss.RangeRequest) (oss.RangeResult, error) {
	if bytes.Contains([]byte(r.Object.Key), []byte("gone")) {
		return oss.RangeResult{}, oss.ErrNotFound
	}
	if err := ctx.Err(); err != nil {
		return oss.RangeResult{}, err
	}
	end := int(r.Offset) + len(r.Buffer)
	copy(r.Buffer, pattern(r.Object.Key, end)[r.Offset:])
	if r.Arrived != nil {
		r.Arrived(len(r.Buffer))
	}
	return oss.RangeResult{}, nil
}

// trainer is a worker that does what trainers do, and what they should not.
type trainer struct {
	t     *testing.T
	rng   *rand.Rand
	p     *Prefetcher
	cache *cache.Cache
	tree  prefetchtest.Tree
	paths []string
	key   session.Key
	name  session.Name
	// ready is what the daemon said is ready, and that was not let go since.
	ready map[string]bool
}

// patience is longer than anything that works takes.
const patience = 2 * time.Minute

func (w *trainer) open() {
	got, err := w.p.Keeper.Open(context.Background(), w.key, session.Params{Instance: fmt.Sprint(w.rng.IntN(2)), Buffer: 1 + w.rng.IntN(20)})
	if err != nil {
		w.t.Error(err)
	}
	w.name = session.Name{Session: got.Session, UID: w.key.UID}
}

func (w *trainer) some() (paths []string) {
	for range 1 + w.rng.IntN(5) {
		paths = append(paths, w.paths[w.rng.IntN(len(w.paths))])
	}
	return paths
}

func (w *trainer) step() {
	w.name.Index = w.rng.IntN(2)
	switch w.rng.IntN(12) {
	case 0, 1, 2:
		if _, _, err := w.p.Sessions.Preload(w.name, w.some()); err != nil {
			w.t.Error(err)
		}
	case 3:
		if _, _, err := w.p.Sessions.Active(w.name, w.some()); err != nil {
			w.t.Error(err)
		}
	case 4, 5:
		paths := w.some()
		for _, path := range paths {
			delete(w.ready, fmt.Sprint(w.name.Index, path))
		}
		if _, _, err := w.p.Sessions.Release(w.name, paths); err != nil {
			w.t.Error(err)
		}
	case 6, 7:
		w.look()
	case 8, 9:
		w.read(w.paths[w.rng.IntN(len(w.paths))])
	case 10:
		w.p.Paths.Evict(context.Background(), session.Root(), w.some())
	case 11:
		w.leave()
	}
	w.check()
}

// look notes what is said to be ready.
func (w *trainer) look() {
	paths := w.some()
	files, err := w.p.Sessions.Status(context.Background(), session.Root(), w.name, paths)
	if err != nil {
		w.t.Error(err)
	}
	for _, f := range files {
		if f.Ready {
			w.ready[fmt.Sprint(w.name.Index, f.Path)] = true
		}
	}
}

// leave ends the session, or dies and comes back.
func (w *trainer) leave() {
	if w.rng.IntN(4) > 0 {
		return
	}
	if w.rng.IntN(2) == 0 {
		clear(w.ready)
		if _, err := w.p.Keeper.Close(w.name.Session, w.name.UID, false); err != nil {
			w.t.Error(err)
		}
	}
	w.open()
}

// check is what must be true at any moment.
func (w *trainer) check() {
	for held := range w.ready {
		if !w.cache.Residency(w.tree[held[1:]]).Whole {
			w.t.Errorf("%s is held and ready, and not in the cache", held[1:])
		}
	}
	if ssd := w.cache.Stats().SSD; ssd.Used > ssd.Limit {
		w.t.Errorf("%d bytes are in the cache, it may have %d", ssd.Used, ssd.Limit)
	}
	if o := w.p.Overview(); o.Charged > o.Budget {
		w.t.Errorf("sessions hold %d bytes, they may have %d", o.Charged, o.Budget)
	}
}

func (w *trainer) read(path string) {
	o := w.tree[path]
	h, err := w.cache.Open(o)
	if err != nil {
		w.t.Error(err)
		return
	}
	got := make([]byte, min(o.Size, 1<<20))
	_, err = h.ReadAt(context.Background(), got, 0)
	switch {
	case errors.Is(err, oss.ErrNotFound) && bytes.Contains([]byte(path), []byte("gone")):
	case err != nil || !bytes.Equal(got, pattern(o.Key, len(got))):
		w.t.Errorf("read %s: %v, or other bytes", path, err)
	}
	if err := h.Close(); err != nil {
		w.t.Error(err)
	}
}

// TestTrainersOnARealCache lets several trainers announce, read, let go, evict, leave
// and come back as they like, over files that are many times what the cache holds.
func TestTrainersOnARealCache(t *testing.T) {
	const limit = 8 << 20
	c, err := cache.Open(cache.Config{Dir: t.TempDir(), Size: limit, Memory: 64 << 20, Track: 64}, patterns{}, patterns{}, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}()
	tree := prefetchtest.Tree{}
	var paths []string
	add := func(name string, size int64) {
		paths = append(paths, name)
		tree[name] = oss.Object{Key: "data/" + name, ETag: "E", Size: size}
	}
	sizes := rand.New(rand.NewPCG(5, 0))
	for i := range 150 {
		add(fmt.Sprintf("d/%03d", i), 1+sizes.Int64N(400<<10))
	}
	add("d/gone", 1000)
	add("d/empty", 0)
	add("d/huge", 2*limit)
	p, stop := running(t, Config{Prefix: "data/", Guess: true, Width: func() int { return 16 }}, tree, c)
	defer stop()

	seed := rand.Uint64()
	steps := 150
	if testing.Short() {
		steps = 50
	}
	var trainers sync.WaitGroup
	for i := range 4 {
		w := &trainer{
			t: t, rng: rand.New(rand.NewPCG(seed, uint64(i))), p: p, cache: c, tree: tree, paths: paths,
			key: session.Key{UID: uint32(i % 2), Task: "t", Worker: i}, ready: map[string]bool{},
		}
		trainers.Go(func() {
			w.open()
			for range steps {
				w.step()
			}
			if _, err := p.Keeper.Close(w.name.Session, w.name.UID, false); err != nil {
				t.Error(err)
			}
		})
	}
	trainers.Wait()
	if n := c.HoldsBroken(); n != 0 {
		t.Errorf("%d of what was held had to go", n)
	}
	// Nobody holds anything: the whole budget can be had, and everything can be evicted.
	key := session.Key{Task: "last"}
	n := open(t, p, key, 1000)
	var last []string
	room := p.Overview().Budget
	for _, path := range paths[:150] {
		if room -= cache.Cost(tree[path]); room < 0 {
			break
		}
		last = append(last, path)
	}
	if _, _, err := p.Sessions.Preload(n, last); err != nil {
		t.Error(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	files, done, err := p.Sessions.Wait(ctx, session.Root(), n, last)
	for _, f := range files {
		if !done || err != nil || f.State != "ready" {
			t.Errorf("when all have gone %+v, %v", f, err)
		}
	}
	if _, err := p.Keeper.Close(n.Session, n.UID, false); err != nil {
		t.Error(err)
	}
	for left := last; len(left) > 0; {
		var still []string
		for i, e := range p.Paths.Evict(ctx, session.Root(), left) {
			if e.Held > 0 {
				still = append(still, left[i])
			}
		}
		if left = still; ctx.Err() != nil {
			t.Errorf("%v cannot be evicted", left)
			break
		}
	}
	if t.Failed() {
		t.Logf("seed %d", seed)
	}
}

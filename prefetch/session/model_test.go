package session

import (
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pailfs/pailfs/oss"
)

// model says what must be true of a book in the plainest way: who holds what, and
// when each was last heard of.
type model struct {
	sessions map[Key]*modelSession
}

type modelSession struct {
	id       ID
	instance string
	lease    time.Duration
	lastCall time.Time
	restored bool
	holds    map[modelUse]*modelHold
	next     map[int]uint64
	passed   map[int]uint64
}

type modelUse struct {
	index, seq int
	path       string
}

// owned is a path of a user.
type owned struct {
	uid  uint32
	path string
}

type modelHold struct {
	active bool
	named  time.Time
	order  uint64
}

// world is a book, its model, and a cache that is a set of entries.
type world struct {
	t     *testing.T
	rng   *rand.Rand
	book  *Book
	model model
	now   time.Time
	ids   int
	// reads is when each path was read last while its user held it.
	reads map[owned]time.Time
	// resolving and fetching are what was given out; ready what the cache protects.
	resolving, fetching, doomed []*Entry
	ready                       map[*Entry]bool
	budget                      int64
}

func newModelWorld(t *testing.T, seed uint64) *world {
	w := &world{
		t: t, rng: rand.New(rand.NewPCG(seed, 5)), now: time.Unix(1e9, 0), budget: 1000,
		model: model{sessions: map[Key]*modelSession{}}, ready: map[*Entry]bool{}, reads: map[owned]time.Time{},
	}
	w.book = NewBook(Config{Budget: w.budget})
	return w
}

func (w *world) key() Key {
	return Key{UID: uint32(w.rng.IntN(2)), Task: "t", Worker: w.rng.IntN(3)}
}

func (w *world) paths() []string {
	n := 1 + w.rng.IntN(6)
	paths := make([]string, n)
	for i := range paths {
		f := w.rng.IntN(25)
		paths[i] = strings.Repeat("folder/", f%3) + fmt.Sprintf("f%d", f)
	}
	return paths
}

// cost is the size of a path: some are larger than the budget.
func cost(path string) int64 {
	var n int64
	_, _ = fmt.Sscanf(path[strings.LastIndexByte(path, '/')+1:], "f%d", &n)
	switch n {
	case 24:
		return 5000
	case 23:
		return 900
	default:
		return 20 + n*9
	}
}

var errMissing = errors.New("missing")

// keys returns the keys of the sessions, sorted.
func (w *world) keys() []Key {
	var keys []Key
	for key := range w.model.sessions {
		keys = append(keys, key)
	}
	slices.SortFunc(keys, func(a, b Key) int { return int(a.UID)*10 + a.Worker - int(b.UID)*10 - b.Worker })
	return keys
}

// pick returns a random session, or nil.
func (w *world) pick() (Key, *modelSession) {
	keys := w.keys()
	if len(keys) == 0 {
		return Key{}, nil
	}
	key := keys[w.rng.IntN(len(keys))]
	return key, w.model.sessions[key]
}

// step does one random thing to both.
func (w *world) step() {
	switch w.rng.IntN(16) {
	case 0:
		w.open()
	case 1, 2, 3:
		w.preload()
	case 4, 5:
		w.active()
	case 6, 7, 8:
		w.release()
	case 9, 10:
		w.resolve()
	case 11, 12:
		w.fetch()
	case 13:
		w.finish()
	case 14:
		switch w.rng.IntN(8) {
		case 0:
			w.close()
		case 1:
			w.crash()
		case 2:
			w.shrink()
		case 3, 4:
			w.lose()
		default:
			w.read()
		}
	case 15:
		w.pass()
	}
}

func (w *world) open() {
	key := w.key()
	p := Params{Instance: fmt.Sprint(w.rng.IntN(3)), Buffer: 1 + w.rng.IntN(6), Lease: time.Duration(1+w.rng.IntN(3)) * time.Minute}
	w.ids++
	s := w.model.sessions[key]
	want := 0
	if s == nil {
		s = &modelSession{id: ID(fmt.Sprint("s", w.ids)), holds: map[modelUse]*modelHold{}, next: map[int]uint64{}, passed: map[int]uint64{}}
		w.model.sessions[key] = s
	} else if s.restored || s.instance != p.Instance {
		want = len(s.holds)
		for _, h := range s.holds {
			h.active = false
		}
		clear(s.passed)
	}
	s.instance, s.lease, s.lastCall, s.restored = p.Instance, p.Lease, w.now, false
	id, adopted, err := w.book.Open(w.now, ID(fmt.Sprint("s", w.ids)), key, p)
	if id != s.id || adopted != want || err != nil {
		w.t.Errorf("open of %+v gave %q with %d, %v, want %q with %d", key, id, adopted, err, s.id, want)
	}
}

func (w *world) preload() {
	key, s := w.pick()
	if s == nil {
		return
	}
	n := Name{Session: s.id, UID: key.UID, Index: w.rng.IntN(2), Seq: w.rng.IntN(2)}
	paths := w.paths()
	out, err := w.book.Preload(w.now, n, paths, w.rng.IntN(2) == 0)
	if err != nil {
		w.t.Errorf("preload: %v", err)
	}
	if out.Accepted+out.Dropped > len(paths) || out.Accepted < 0 {
		w.t.Errorf("preload of %d paths: %+v", len(paths), out)
	}
	s.lastCall = w.now
	for _, path := range paths[:out.Accepted] {
		w.hold(s, n, path)
	}
}

func (w *world) hold(s *modelSession, n Name, path string) *modelHold {
	u := modelUse{n.Index, n.Seq, path}
	h := s.holds[u]
	if h == nil {
		if o := (owned{n.UID, path}); !w.heldByAny(o) {
			delete(w.reads, o)
		}
		s.next[n.Index]++
		h = &modelHold{order: s.next[n.Index]}
		s.holds[u] = h
	}
	h.named = w.now
	return h
}

func (w *world) heldByAny(o owned) bool {
	for key, s := range w.model.sessions {
		for u := range s.holds {
			if (owned{key.UID, u.path}) == o {
				return true
			}
		}
	}
	return false
}

func (w *world) active() {
	key, s := w.pick()
	if s == nil {
		return
	}
	n := Name{Session: s.id, UID: key.UID, Index: w.rng.IntN(2), Seq: w.rng.IntN(2)}
	paths := w.paths()
	if _, _, err := w.book.Active(w.now, n, paths); err != nil {
		w.t.Errorf("active: %v", err)
	}
	s.lastCall = w.now
	for _, path := range paths {
		h := w.hold(s, n, path)
		h.active = true
		s.passed[n.Index] = max(s.passed[n.Index], h.order)
	}
}

func (w *world) release() {
	key, s := w.pick()
	if s == nil {
		return
	}
	n := Name{Session: s.id, UID: key.UID, Index: w.rng.IntN(2), Seq: w.rng.IntN(2)}
	paths := w.paths()
	want := 0
	s.lastCall = w.now
	for _, path := range paths {
		u := modelUse{n.Index, n.Seq, path}
		if h := s.holds[u]; h != nil {
			want++
			s.passed[n.Index] = max(s.passed[n.Index], h.order)
			delete(s.holds, u)
		}
	}
	released, unknown, err := w.book.Release(w.now, n, paths)
	if err != nil || released != want || unknown != len(paths)-want {
		w.t.Errorf("release gave %d, %d, %v, want %d of %d", released, unknown, err, want, len(paths))
	}
}

func (w *world) resolve() {
	for range 1 + w.rng.IntN(4) {
		if e := w.book.NextResolve(); e != nil {
			w.resolving = append(w.resolving, e)
		}
	}
	if n := len(w.resolving); n > 0 {
		i := w.rng.IntN(n)
		e := w.resolving[i]
		w.resolving = slices.Delete(w.resolving, i, i+1)
		if w.rng.IntN(12) == 0 {
			w.book.Resolved(e, nil, 0, errMissing)
		} else {
			w.book.Resolved(e, []oss.Object{{Key: e.Path(), Size: cost(e.Path())}}, 0, nil)
		}
	}
}

func (w *world) fetch() {
	if e := w.book.NextFetch(); e != nil {
		if !e.Held() {
			w.t.Errorf("%q is fetched for nobody", e.Path())
		}
		if w.ready[e] || slices.Contains(w.fetching, e) {
			w.t.Errorf("%q is fetched twice", e.Path())
		}
		w.fetching = append(w.fetching, e)
		w.ready[e] = true // from now on its bytes are protected
	}
}

func (w *world) finish() {
	if n := len(w.fetching); n > 0 {
		i := w.rng.IntN(n)
		e := w.fetching[i]
		w.fetching = slices.Delete(w.fetching, i, i+1)
		switch w.rng.IntN(10) {
		case 0:
			delete(w.ready, e)
			w.book.Fetched(e, false, errMissing)
		case 1:
			delete(w.ready, e)
			w.book.Fetched(e, true, nil)
		default:
			w.book.Fetched(e, false, nil)
		}
	}
}

// free gives up what nobody holds, as soon as nothing is in flight for it.
func (w *world) free() {
	w.doomed = append(w.doomed, w.book.TakeGone()...)
	w.doomed = slices.DeleteFunc(w.doomed, func(e *Entry) bool {
		if e.Held() {
			w.t.Errorf("%q is given up although it is held", e.Path())
		}
		if slices.Contains(w.fetching, e) {
			return false
		}
		delete(w.ready, e)
		w.book.Freed(e)
		return true
	})
}

func (w *world) lose() {
	for _, e := range w.book.sortedEntries() {
		if e.State() == Ready && w.rng.IntN(3) == 0 {
			delete(w.ready, e)
			w.book.Lost(e)
			return
		}
	}
}

func (w *world) read() {
	entries := w.book.sortedEntries()
	if len(entries) > 0 {
		e := entries[w.rng.IntN(len(entries))]
		w.book.Read(w.now, e)
		w.reads[owned{e.Payer().UID, e.Path()}] = w.now
	}
}

func (w *world) close() {
	key, s := w.pick()
	if s == nil {
		return
	}
	keep := w.rng.IntN(2) == 0
	released, err := w.book.Close(w.now, s.id, key.UID, keep)
	if err != nil || !keep && released != len(s.holds) {
		w.t.Errorf("close gave %d, %v, want %d", released, err, len(s.holds))
	}
	s.lastCall = w.now
	if !keep {
		delete(w.model.sessions, key)
	}
}

// crash is the daemon's death: a new book restores what the old one exported.
func (w *world) crash() {
	old := w.book
	w.book = NewBook(Config{Budget: w.budget})
	w.resolving, w.fetching, w.doomed = nil, nil, nil
	clear(w.ready)
	clear(w.reads)
	for _, key := range w.keys() {
		s := w.model.sessions[key]
		held, p, ok := old.Export(key)
		SortHeld(held)
		if !ok || len(held) != len(s.holds) {
			w.t.Errorf("export of %+v has %d holders, want %d", key, len(held), len(s.holds))
		}
		if !w.book.Restore(w.now, s.id, key, p, held) {
			w.t.Errorf("restore of %+v was refused", key)
		}
		s.restored, s.lastCall = true, w.now
		clear(s.next)
		clear(s.passed)
		for i, h := range held {
			*s.holds[modelUse{h.Index, h.Seq, h.Folder + h.Path}] = modelHold{named: w.now, order: uint64(i + 1)}
			s.next[h.Index] = uint64(i + 1)
		}
	}
}

// shrink changes the budget: what is charged stays, nothing more is.
func (w *world) shrink() {
	w.budget = 500 + int64(w.rng.IntN(600))
	w.book.SetBudget(w.budget)
}

// pass lets time go by, and what is due expire.
func (w *world) pass() {
	w.now = w.now.Add(time.Duration(w.rng.IntN(90)) * time.Second)
	want := 0
	for key, s := range w.model.sessions {
		limit := s.lease
		if s.restored {
			limit = DefaultAdoption
		}
		for u, h := range s.holds {
			last := h.named
			if !h.active && h.order > s.passed[u.index] && s.lastCall.After(last) {
				last = s.lastCall
			}
			if r := w.reads[owned{key.UID, u.path}]; r.After(last) {
				last = r
			}
			if w.now.Sub(last) > limit {
				want++
				delete(s.holds, u)
			}
		}
		if len(s.holds) == 0 && w.now.Sub(s.lastCall) > limit {
			delete(w.model.sessions, key)
		}
	}
	if got := w.book.Expire(w.now); got != want {
		w.t.Errorf("%d holders expired, want %d", got, want)
	}
}

// compare fails the test where book and model differ.
func (w *world) compare(budgetBefore, othersBefore int64) {
	if err := w.book.Check(); err != nil {
		w.t.Error(err)
	}
	// A smaller budget gives nothing up, but lets nothing in either.
	if _, charged := w.book.Budget(); charged > max(w.budget, budgetBefore) {
		w.t.Errorf("%d bytes are charged, the budget is %d", charged, w.budget)
	}
	if others := w.book.shares.others; others > max(w.budget/4*3, othersBefore) {
		w.t.Errorf("%d bytes are charged to who is not privileged, the budget is %d", others, w.budget)
	}
	holders := map[owned]int{}
	for key, s := range w.model.sessions {
		for u := range s.holds {
			holders[owned{key.UID, u.path}]++
		}
		held, _, ok := w.book.Export(key)
		SortHeld(held)
		if !ok || len(held) != len(s.holds) {
			w.t.Errorf("session %+v holds %d, want %d", key, len(held), len(s.holds))
		}
		for _, h := range held {
			if s.holds[modelUse{h.Index, h.Seq, h.Folder + h.Path}] == nil {
				w.t.Errorf("session %+v holds %+v, the model does not", key, h)
			}
		}
	}
	if len(w.book.sessions) != len(w.model.sessions) {
		w.t.Errorf("the book has %d sessions, the model %d", len(w.book.sessions), len(w.model.sessions))
	}
	for n, e := range w.book.entries {
		path := owned{e.Payer().UID, n.String()}
		if len(e.holders) != holders[path] {
			w.t.Errorf("%v has %d holders, want %d", path, len(e.holders), holders[path])
		}
		if e.state == Ready && !w.ready[e] {
			w.t.Errorf("%v is said to be ready and is not protected", path)
		}
	}
	if err := w.book.checkCharges(); err != nil {
		w.t.Error(err)
	}
	if len(w.book.entries) != len(holders) {
		w.t.Errorf("the book has %d entries, the model %d", len(w.book.entries), len(holders))
	}
}

// settle lets everything finish that can, releasing what is ready, and fails if
// something is left that nothing moves.
func (w *world) settle() {
	for range 10_000 {
		for e := w.book.NextResolve(); e != nil; e = w.book.NextResolve() {
			w.resolving = append(w.resolving, e)
		}
		for _, e := range w.resolving {
			w.book.Resolved(e, []oss.Object{{Key: e.Path(), Size: cost(e.Path())}}, 0, nil)
		}
		w.resolving = nil
		for e := w.book.NextFetch(); e != nil; e = w.book.NextFetch() {
			w.fetching = append(w.fetching, e)
			w.ready[e] = true
		}
		for _, e := range w.fetching {
			w.book.Fetched(e, false, nil)
		}
		w.fetching = nil
		_, before := w.book.Budget()
		w.free()
		_, after := w.book.Budget()
		progress := after < before
		for key, s := range w.model.sessions {
			for u := range s.holds {
				n := Name{Session: s.id, UID: key.UID, Index: u.index, Seq: u.seq}
				f, err := w.book.Status(w.now, n, []string{u.path})
				if err != nil {
					w.t.Fatal(err)
				}
				if f[0].State == "streamed" || f[0].State == "failed" || f[0].Ready || f[0].State == "ready" {
					if _, _, err := w.book.Release(w.now, n, []string{u.path}); err != nil {
						w.t.Fatal(err)
					}
					delete(s.holds, u)
					progress = true
				}
			}
		}
		w.free()
		left := 0
		for _, s := range w.model.sessions {
			left += len(s.holds)
		}
		if left == 0 {
			if _, charged := w.book.Budget(); charged != 0 {
				w.t.Errorf("%d bytes are charged though nobody holds anything", charged)
			}
			return
		}
		if !progress {
			w.t.Errorf("%d holders wait for ever", left)
			return
		}
	}
	w.t.Error("it does not come to an end")
}

// sortedEntries returns the entries in a fixed order.
func (b *Book) sortedEntries() []*Entry {
	var all []*Entry
	for _, e := range b.entries {
		all = append(all, e)
	}
	slices.SortFunc(all, func(x, y *Entry) int {
		return cmp.Or(cmp.Compare(x.Path(), y.Path()), cmp.Compare(x.Payer().UID, y.Payer().UID))
	})
	return all
}

func testModel(t *testing.T, seed uint64, steps int) {
	t.Helper()
	w := newModelWorld(t, seed)
	for i := range steps {
		before := w.budget
		_, charged := w.book.Budget()
		others := w.book.shares.others
		w.step()
		w.free()
		w.compare(max(before, charged), max(before/4*3, others))
		if t.Failed() {
			t.Fatalf("seed %d, step %d", seed, i)
		}
	}
	w.settle()
	if t.Failed() {
		t.Fatalf("seed %d, after %d steps", seed, steps)
	}
}

func TestBookAgreesWithModel(t *testing.T) {
	for seed := range uint64(80) {
		testModel(t, seed, 300)
	}
}

func FuzzBookAgreesWithModel(f *testing.F) {
	f.Add(uint64(1))
	f.Fuzz(func(t *testing.T, seed uint64) { testModel(t, seed, 300) })
}

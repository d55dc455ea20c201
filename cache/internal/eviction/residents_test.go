package eviction

import (
	"encoding/binary"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/pailfs/pailfs/cache/internal/content"
)

// evicting returns residents of which eviction follows the limit at once.
func evicting(limit int64) *Residents {
	r := New(func() {})
	r.SetLimit(limit)
	return r
}

// use plays one use of an object of a size: it is read, and written if it is
// absent. It tells whether it was there.
func (r *Residents) play(n uint64, size int64) (hit bool) {
	id := testIdentity(n)
	r.Opened(id)
	if r.State(id) == Present {
		return true
	}
	r.Reserve(id, size, false)
	for {
		bytes, keen := r.Excess()
		if bytes == 0 {
			break
		}
		e := r.Pick(keen)
		if e == nil {
			break
		}
		r.Gone([]*Resident{e})
	}
	return false
}

func testIdentity(n uint64) (id content.Identity) {
	rng := rand.New(rand.NewPCG(n, 17))
	binary.LittleEndian.PutUint64(id[:8], rng.Uint64())
	binary.LittleEndian.PutUint64(id[8:], rng.Uint64())
	return id
}

const (
	testObject = 100_000
	// testResidents is how many of them fit.
	testResidents = 1000
	testLimit     = testResidents * (testObject + Overhead)
)

func TestScanDoesNotDisplaceWhatIsUsed(t *testing.T) {
	r := evicting(testLimit)
	const hot = 500
	for range 3 {
		for n := range uint64(hot) {
			r.play(n, testObject)
		}
	}
	for n := range uint64(20_000) {
		r.play(1_000_000+n, testObject)
	}
	hits := 0
	for n := range uint64(hot) {
		if r.play(n, testObject) {
			hits++
		}
	}
	if hits < hot*95/100 {
		t.Errorf("%d of %d objects in use survived a scan of 20 times the size", hits, hot)
	}
}

func TestEpochsOverMoreThanFitsHitInEveryEpoch(t *testing.T) {
	for name, shuffled := range map[string]bool{"in order": false, "shuffled": true} {
		t.Run(name, func(t *testing.T) {
			r := evicting(testLimit)
			rng := rand.New(rand.NewPCG(3, 4))
			data := make([]uint64, 10*testResidents)
			for i := range data {
				data[i] = uint64(i)
			}
			for epoch := range 6 {
				if shuffled {
					rng.Shuffle(len(data), func(i, j int) { data[i], data[j] = data[j], data[i] })
				}
				hits := 0
				for _, n := range data {
					if r.play(n, testObject) {
						hits++
					}
				}
				// What fits is a tenth; the best that any policy could hit is about that.
				if epoch > 0 && hits < testResidents*75/100 {
					t.Errorf("epoch %d: %d hits with room for %d", epoch, hits, testResidents)
				}
			}
		})
	}
}

func TestAnotherDatasetTakesOver(t *testing.T) {
	r := evicting(testLimit)
	for range 5 {
		for n := range uint64(testResidents * 9 / 10) {
			r.play(n, testObject)
		}
	}
	hits := 0
	for range 12 {
		hits = 0
		for n := range uint64(testResidents * 9 / 10) {
			if r.play(1_000_000+n, testObject) {
				hits++
			}
		}
	}
	if hits < testResidents*7/10 {
		t.Errorf("after 12 epochs %d hits of %d", hits, testResidents*9/10)
	}
}

func TestReleasedObjectsGoFirst(t *testing.T) {
	r := evicting(testLimit)
	for n := range uint64(900) {
		r.play(n, testObject)
	}
	for n := range uint64(100) {
		r.Release(testIdentity(300 + n))
	}
	for n := range uint64(150) {
		r.play(1_000_000+n, testObject)
	}
	for n := range uint64(900) {
		was := n >= 300 && n < 400
		if got := r.State(testIdentity(n)); !was && got != Present {
			t.Errorf("object %d went although others were released", n)
		}
	}
}

func TestOnlyWhatWasHeldWhenItWasPickedIsABrokenHold(t *testing.T) {
	r := evicting(testLimit)
	id := testIdentity(1)
	r.play(1, testObject)
	r.NewRound()
	e := r.Pick(takeIdle)
	if e == nil || e.ID != id {
		t.Fatalf("picked %v", e)
	}
	r.Hold(id) // for whoever fetches it anew when it is gone
	r.Gone([]*Resident{e})
	if r.mu.broken != 0 {
		t.Error("a hold that came while the object left counts as broken")
	}
	r.play(1, testObject)
	if e := r.Pick(TakeWanted); e != nil {
		t.Fatalf("what is held was picked")
	}
	if e = r.Pick(TakeHeld); e == nil || e.ID != id {
		t.Fatalf("picked %v", e)
	}
	r.PutBack(e)
	r.Unhold(id, true)
	r.NewRound()
	r.Gone([]*Resident{r.Pick(takeIdle)})
	if r.mu.broken != 0 {
		t.Error("what was put back, let go and evicted counts as a broken hold")
	}
	r.play(1, testObject)
	r.Hold(id)
	r.NewRound()
	r.Gone([]*Resident{r.Pick(TakeHeld)})
	if r.mu.broken != 1 {
		t.Errorf("%d broken holds, want 1", r.mu.broken)
	}
}

func TestWhatIsAboutToBeWrittenIsNotTakenForEmpty(t *testing.T) {
	r := evicting(testLimit)
	id := testIdentity(1)
	r.Hold(id)
	r.Reserve(id, testObject, true)
	if e := r.TakeEmpty(id); e != nil {
		t.Fatal("an object with room was taken for empty: its file would be nobody's")
	}
	r.Unreserve(id, testObject)
	e := r.TakeEmpty(id)
	if e == nil {
		t.Fatal("an empty object was not taken")
	}
	if answer, _ := r.Reserve(id, testObject, true); answer != Busy {
		t.Errorf("room for what is leaving: %v", answer)
	}
	r.Gone([]*Resident{e})
	if r.mu.broken != 0 || r.mu.size != 0 {
		t.Errorf("%d broken holds and %d bytes after nothing went", r.mu.broken, r.mu.size)
	}
}

func TestWantedObjectsStayUntilTheyWereUsed(t *testing.T) {
	r := evicting(testLimit)
	wanted := func() (left int) {
		for n := range uint64(200) {
			if r.State(testIdentity(n)) == Present {
				left++
			}
		}
		return left
	}
	for n := range uint64(200) {
		r.Reserve(testIdentity(n), testObject, true)
	}
	for n := range uint64(5000) {
		r.play(1_000_000+n, testObject)
	}
	if n := wanted(); n != 200 {
		t.Fatalf("%d of 200 are left", n)
	}
	for n := range uint64(100) {
		r.Opened(testIdentity(n))
		r.Release(testIdentity(100 + n))
	}
	for n := range uint64(5000) {
		r.play(2_000_000+n, testObject)
		r.play(2_000_000+n, testObject)
	}
	if n := wanted(); n > 150 {
		t.Errorf("%d are left although all were used or released", n)
	}
	for n := range uint64(50) {
		r.Reserve(testIdentity(5000+n), testObject, true)
	}
	for r.Pick(TakeWanted) != nil {
	}
	if r.mu.window.len+r.mu.main.len+r.mu.released.len != 0 {
		t.Error("force left something")
	}
}

// TestAccountsBalance plays random operations and compares the sums with what is
// there.
func TestAccountsBalance(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	r := evicting(testLimit)
	var leaving []*Resident
	for range 200_000 {
		n := rng.Uint64N(3000)
		id := testIdentity(n)
		switch rng.IntN(12) {
		case 10:
			r.Hold(id)
		case 11:
			r.Unhold(id, rng.IntN(2) == 0)
		case 0, 1, 2:
			r.Reserve(id, rng.Int64N(2*testObject), rng.IntN(20) == 0)
		case 3:
			if e := r.mu.table[id]; e != nil && e.Size > 5000 {
				r.Unreserve(id, 1000)
			}
		case 4, 5:
			r.Opened(id)
		case 6:
			r.Release(id)
		case 7:
			if e := r.Pick(Keenness(rng.IntN(3))); e != nil {
				leaving = append(leaving, e)
			}
		case 8:
			if len(leaving) > 0 {
				i := rng.IntN(len(leaving))
				if rng.IntN(2) == 0 {
					r.PutBack(leaving[i])
				} else {
					r.Gone(leaving[i : i+1])
				}
				leaving = slices.Delete(leaving, i, i+1)
			}
		case 9:
			if e := r.Take(id); e != nil {
				leaving = append(leaving, e)
			}
		}
	}
	var all, listed, inLists int64
	for _, e := range r.mu.table {
		all += e.Size
		if !e.evicting {
			listed++
		}
	}
	for _, l := range lists(r) {
		var size int64
		for e := l.head.next; e != &l.head; e = e.next {
			size += e.Size
			inLists++
			if kept := e.wanted || r.mu.held[e.ID] > 0; kept != (l == &r.mu.kept) {
				t.Errorf("an object with %d holds, wanted %v, is in the wrong queue", r.mu.held[e.ID], e.wanted)
			}
		}
		if size != l.size {
			t.Errorf("a list of %d bytes says %d", size, l.size)
		}
	}
	if all != r.mu.size || listed != inLists {
		t.Errorf("%d bytes, %d counted; %d objects, %d in lists", all, r.mu.size, listed, inLists)
	}
}

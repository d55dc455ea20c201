package writeback

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/pailfs/pailfs/fs/writeback/internal/journal"
	"github.com/pailfs/pailfs/fs/writeback/internal/state"
)

// TestNamesAreSettledWhenTheyAreDue: whatever is wanted again meanwhile, each is due once, as a look at
// all of them would find.
func TestNamesAreSettledWhenTheyAreDue(t *testing.T) {
	for seed := range uint64(50) {
		r := rand.New(rand.NewPCG(seed, 1))
		var q settling
		type wanted struct {
			pos  int64
			next time.Time
		}
		all := make(map[state.NameID]wanted)
		at, end, synced := time.Unix(0, 0), int64(0), int64(0)
		for range 500 {
			at = at.Add(time.Duration(r.IntN(3)) * time.Second)
			for range r.IntN(4) {
				id := state.NameID{Name: fmt.Sprint(r.IntN(30))}
				end++
				q.add(id, end)
				all[id] = wanted{pos: end}
			}
			synced += int64(r.IntN(int(end-synced) + 1))
			got := q.due(synced, at)
			due := 0
			for _, w := range all {
				if w.pos <= synced && !w.next.After(at) {
					due++
				}
			}
			if len(got) != due {
				t.Fatalf("seed %d: %d are due, want %d", seed, len(got), due)
			}
			for _, x := range got {
				if w := all[x.id]; w.pos > synced || w.next.After(at) {
					t.Fatalf("seed %d: %v is due, and has %+v of %d at %v", seed, x.id, w, synced, at)
				}
				switch w := all[x.id]; r.IntN(3) {
				case 0:
					// It was wanted again before it was looked at.
					end++
					q.add(x.id, end)
					all[x.id] = wanted{pos: end}
					q.end(x)
				case 1:
					w.next = at.Add(time.Duration(1+r.IntN(9)) * time.Second)
					all[x.id] = w
					q.rest(x, w.next)
				default:
					delete(all, x.id)
					q.end(x)
				}
			}
			if len(q.names) != len(all) {
				t.Fatalf("seed %d: %d names, want %d", seed, len(q.names), len(all))
			}
			var first time.Time
			for _, w := range all {
				if due := latest(w.next, at); w.pos <= synced && (first.IsZero() || due.Before(first)) {
					first = due
				}
			}
			if _, when := q.first(synced, at); !when.Equal(first) {
				t.Fatalf("seed %d: the next is due at %v, want %v", seed, when, first)
			}
		}
		if len(q.fresh) > 2*len(q.names)+64 {
			t.Errorf("seed %d: %d are remembered of %d", seed, len(q.fresh), len(q.names))
		}
	}
}

// BenchmarkToSettle takes one name that is due, while so many wait for their time.
func BenchmarkToSettle(b *testing.B) {
	for _, names := range []int{100, 100000} {
		b.Run(fmt.Sprintf("names=%d", names), func(b *testing.B) {
			var s Space
			s.journal = new(journal.Log)
			for i := range names {
				s.mu.settling.add(state.NameID{Name: fmt.Sprint(i)}, 0)
			}
			for i, x := range s.toSettle() {
				s.mu.settling.rest(x, time.Now().Add(time.Hour+time.Duration(i)))
			}
			for b.Loop() {
				s.mu.settling.add(state.NameID{Name: "due"}, 0)
				for _, x := range s.toSettle() {
					s.mu.settling.end(x)
				}
				if when := s.settlesNext(); when.IsZero() {
					b.Fatal("nothing is due")
				}
			}
		})
	}
}

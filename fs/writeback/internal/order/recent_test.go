package order

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
)

// TestRecentSaysWhatALookAtEverythingWould: whatever comes, is committed again or goes.
func TestRecentSaysWhatALookAtEverythingWould(t *testing.T) {
	dirs := []string{"", "a", "a/b", "a/b/c", "a/d", "ab", "e/f/g", "e/f"}
	for seed := range uint64(50) {
		r := rand.New(rand.NewPCG(seed, 1))
		known := NewRecent()
		var all []*Operation
		for now := uint64(1); now < 200; now++ {
			switch i := r.IntN(len(all) + 1); {
			case i == len(all) || len(all) < 4:
				op := &Operation{ID: now, Order: now, Dir: dirs[r.IntN(len(dirs))], Key: fmt.Sprint(r.IntN(20)), Barrier: r.IntN(2) == 0}
				all = append(all, op)
				known.Put(op)
			case r.IntN(3) == 0:
				known.Remove(all[i])
				all = slices.Delete(all, i, i+1)
			default:
				all[i].After, all[i].Barrier = now, all[i].Barrier || r.IntN(4) == 0
				if r.IntN(4) == 0 {
					all[i].Order = uint64(r.IntN(int(now)))
					all[i].After = 0
				}
				known.Put(all[i])
			}
			if len(known.ops) != len(all) {
				t.Fatalf("seed %d: %d operations, want %d", seed, len(known.ops), len(all))
			}
			dir, after := dirs[r.IntN(len(dirs))], uint64(r.IntN(int(now)))
			op := &Operation{Dir: dir, Order: after, Key: fmt.Sprint(r.IntN(20))}
			other := func(x *Operation) bool { return x.Key != op.Key }
			some := func(is func(x *Operation) bool) bool {
				return slices.ContainsFunc(all, func(x *Operation) bool { return x.Lasted() > after && is(x) })
			}
			beside := some(func(x *Operation) bool { return other(x) && Within(dir, x.Dir) })
			apart := some(func(x *Operation) bool { return x.Barrier && !Within(x.Dir, dir) && !Within(dir, x.Dir) })
			below := some(func(x *Operation) bool { return x.Barrier && x.Dir != dir && Within(x.Dir, dir) })
			for _, c := range []struct {
				name      string
				got, want bool
			}{
				{"beside", known.Beside(dir, after, other), beside},
				{"a barrier", known.Barrier(after, other), some(func(x *Operation) bool { return other(x) && x.Barrier })},
				{"below", known.barrierBelow(dir, after), below},
				{"apart", known.barrierApart(dir, after), apart},
				{"yields", known.Yields(op), below && !apart && !beside},
			} {
				if c.got != c.want {
					t.Fatalf("seed %d, moment %d, %q after %d: %s %v, want %v", seed, now, dir, after, c.name, c.got, c.want)
				}
			}
		}
		for _, op := range all {
			known.Remove(op)
		}
		if !known.empty() {
			t.Errorf("seed %d: something is left of nothing: %v", seed, known)
		}
	}
}

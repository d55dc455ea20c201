package writeback

import (
	"fmt"
	"maps"
	"testing"
	"time"
)

// A store that names wrong checksums, and whose answers to writes are lost half of the time:
// what is there is ours, whatever it says.
func TestObjectsOfOursAreNoConflictWhereChecksumsAreToldWrong(t *testing.T) {
	for seed := range uint64(4) {
		bubble(t, func(t *testing.T) {
			w := newWorld(t, seed)
			w.store.lies = true
			w.store.faults = 0.5
			want := map[string]string{}
			for round := range 3 {
				for i := range 12 {
					// Of one size, so that nothing but the bytes tells them apart.
					name, content := fmt.Sprintf("f%02d", i), fmt.Sprintf("%d %02d", round, i)
					w.write("", name, content)
					want["p/"+name] = content
				}
				if round == 1 {
					w.crash(false)
				}
				w.drain()
			}
			for i := range 4 {
				from, to := fmt.Sprintf("f%02d", i), fmt.Sprintf("g%02d", i)
				if _, err := w.space.Rename(t.Context(), "", from, "", to, 0); err != nil {
					t.Fatal(err)
				}
				want["p/"+to] = want["p/"+from]
				delete(want, "p/"+from)
			}
			if err := w.space.Unlink(t.Context(), "", "f11"); err != nil {
				t.Fatal(err)
			}
			delete(want, "p/f11")
			w.drain()
			if got := w.inBucket(); !maps.Equal(got, want) {
				t.Errorf("seed %d: the bucket holds %q, want %q", seed, got, want)
			}
			if s := w.space.Status(); s.ConflictCount != 0 {
				t.Errorf("seed %d: conflicts %v", seed, s.Conflicts)
			}
			w.stop()
		})
	}
}

// Somebody else's object of the same size stays his.
func TestObjectOfTheSameSizeIsAConflictAllTheSame(t *testing.T) {
	for _, lies := range []bool{false, true} {
		bubble(t, func(t *testing.T) {
			w := newWorld(t, 1)
			w.store.lies = lies
			w.write("", "x", "first")
			w.drain()
			w.store.put("p/x", "their")
			w.write("", "x", "later")
			w.drain()
			time.Sleep(10 * time.Minute)
			if got := w.inBucket(); got["p/x"] != "their" || len(got) != 2 || w.space.Status().ConflictCount != 1 {
				t.Errorf("lying %v: the bucket holds %q, want theirs at p/x and ours beside it", lies, got)
			}
			w.stop()
		})
	}
}

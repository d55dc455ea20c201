package writeback

import (
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/pailfs/pailfs/oss"
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

// Somebody replaces an object of which parts are needed by one of the same size as what we may
// have made of it: whether it is ours is found out by reading it once, not at every read of the
// file and every attempt to publish it.
func TestDisputedObjectIsReadOnce(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newPartialWorld(t, func(*Config) {})
		old := filled(1000)
		w.store.put("p/old", old)
		w.space.bucket = &lostAnswers{w.bucket, 1}
		h := w.openToEdit("", "old")
		w.writeAt(h, "<1>", 50)
		if err := h.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		for w.inBucket()["p/old"] == old {
			time.Sleep(time.Millisecond)
		}
		w.store.put("p/old", strings.Repeat("their own ", 100))
		before := w.bytesReadOf("p/old")
		stale := func() {
			t.Helper()
			if _, _, err := h.ReadAt(t.Context(), make([]byte, 9), 500); !errors.Is(err, syscall.ESTALE) {
				t.Errorf("read: %v, want ESTALE", err)
			}
		}
		// Many at once, and later ones, between attempts to publish.
		var readers sync.WaitGroup
		for range 8 {
			readers.Go(stale)
		}
		readers.Wait()
		for range 8 {
			time.Sleep(10 * time.Minute)
			stale()
		}
		if got := w.bytesReadOf("p/old") - before; got != 1000 {
			t.Errorf("%d bytes were read of an object of 1000", got)
		}
		// Another version is another question.
		w.store.put("p/old", strings.Repeat("and again ", 100))
		before = w.bytesReadOf("p/old")
		stale()
		if got := w.bytesReadOf("p/old") - before; got != 1000 {
			t.Errorf("%d bytes were read of the next version", got)
		}
		h.Release()
		w.stop()
	})
}

// bytesReadOf returns how many bytes of a key were read.
func (w *world) bytesReadOf(key string) int64 {
	w.store.Lock()
	defer w.store.Unlock()
	return w.store.got[key]
}

// What is remembered of disputed versions has a bound.
func TestReadSumsHaveABound(t *testing.T) {
	var r readSums
	asked := 0
	for i := range 3 * maxReadSums {
		crc, err := r.of(t.Context(), oss.Object{Key: fmt.Sprint(i)}, func() (uint64, error) { asked++; return uint64(i), nil })
		if err != nil || crc != uint64(i) {
			t.Fatal(crc, err)
		}
	}
	if len(r.known) > maxReadSums || asked != 3*maxReadSums {
		t.Errorf("%d are remembered of %d, want at most %d", len(r.known), asked, maxReadSums)
	}
	// What could not be read is read by the next one who asks.
	failed := errors.New("the store is away")
	if _, err := r.of(t.Context(), oss.Object{Key: "x"}, func() (uint64, error) { return 0, failed }); !errors.Is(err, failed) {
		t.Error(err)
	}
	if crc, err := r.of(t.Context(), oss.Object{Key: "x"}, func() (uint64, error) { return 7, nil }); crc != 7 || err != nil {
		t.Error(crc, err)
	}
}

package writeback

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pailfs/pailfs/fs/writeback/internal/journal"
	"github.com/pailfs/pailfs/fs/writeback/internal/state"
	"github.com/pailfs/pailfs/manifest"
	"github.com/pailfs/pailfs/oss"
)

// deafTree cannot be asked for names while it is deaf.
type deafTree struct {
	*manifest.Live
	deaf atomic.Bool
}

func (d *deafTree) Lookup(ctx context.Context, dir, base string) (manifest.Entry, manifest.Validity, error) {
	if !d.deaf.Load() {
		return d.Live.Lookup(ctx, dir, base)
	}
	return manifest.Entry{}, manifest.Validity{}, oss.ErrUnavailable
}

// The journal is compacted while a small file, which was published before, has been
// opened with O_TRUNC and not been closed.
func TestCompactionBesideATruncatedFile(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t, 1)
		tree := &deafTree{Live: w.base}
		w.space.base = tree
		w.write("", "a", "content")
		// The name stays ours, published or not.
		tree.deaf.Store(true)
		time.Sleep(10 * time.Minute)
		h, err := w.space.Open(t.Context(), "", "a", OpenOptions{Write: true, Truncate: true})
		if err != nil {
			t.Fatal(err)
		}
		if err := w.space.compact(); err != nil {
			t.Fatal(err)
		}
		w.checkJournal()
		w.crash(false)
		if got, err := w.read("", "a"); err != nil || got != "content" {
			t.Errorf("a holds %q, %v: nothing was closed after the truncation", got, err)
		}
		h.Release()
		w.drain()
		w.stop()
	})
}

// The disk fails just after compaction has replaced the journal: from then on no
// change is accepted, since the journal that is open has no name any more.
func TestNothingIsAcceptedAfterABrokenCompaction(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t, 1)
		w.write("", "a", "before")
		w.disk.Lock()
		w.disk.failDir = errors.New("the disk fails")
		w.disk.Unlock()
		if err := w.space.compact(); err == nil {
			t.Fatal("compaction succeeded on a failing disk")
		}
		if err := w.space.Mkdir(t.Context(), "", "d", SetAttr{}); err == nil {
			t.Error("a change was accepted that no journal has")
		}
		w.crash(true)
		if got, err := w.read("", "a"); err != nil || got != "before" {
			t.Errorf("a holds %q, %v", got, err)
		}
		w.drain()
		w.stop()
	})
}

// TestCompactionCarriesLittle: it does not take the content of all small files into
// memory, and what it leaves to the staged files survives the loss of power.
func TestCompactionCarriesLittle(t *testing.T) {
	bubble(t, func(t *testing.T) {
		const most, size = 1000, 100
		w := newWorldWith(t, 1, func(c *Config) {
			l := usualLimits
			l.carried = most
			c.limits = &l
		})
		w.store.Lock()
		for n := range 50 {
			w.store.denied[fmt.Sprintf("p/%d", n)] = true
		}
		w.store.Unlock()
		for n := range 50 {
			w.write("", fmt.Sprint(n), filled(size + n)[n:])
		}
		if err := w.space.compact(); err != nil {
			t.Fatal(err)
		}
		w.checkJournal()
		carried := 0
		w.records(func(r state.Record) {
			if f, ok := r.(*state.SnapFile); ok {
				carried += len(f.Inline)
			}
		})
		// Up to 16 files are so new that they are read at the end.
		if carried == 0 || carried > most+16*size {
			t.Errorf("the journal carries %d bytes of 5000, want some, about %d", carried, most)
		}
		w.crash(true)
		for n := range 50 {
			if got, err := w.read("", fmt.Sprint(n)); err != nil || got != filled(size + n)[n:] {
				t.Errorf("after the loss of power %d holds %q, %v", n, got, err)
			}
		}
		w.store.Lock()
		w.store.denied = nil
		w.store.Unlock()
		// Requests that are under way are refused still.
		time.Sleep(time.Second)
		w.drain()
		w.stop()
	})
}

// TestSmallJournalIsNotComparedWithAllFiles: of one that is too small for a compaction nobody asks what
// the files would take, after each group of commits.
func TestSmallJournalIsNotComparedWithAllFiles(t *testing.T) {
	s := &Space{journal: new(journal.Log), cfg: Config{limits: &usualLimits}}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.compactIfLarge() // which would wait for the lock for ever
}

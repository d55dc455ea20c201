package writeback

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

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
		if err := w.space.Mkdir(t.Context(), "", "d"); err == nil {
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

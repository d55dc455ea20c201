package writeback

import (
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/pailfs/pailfs/fs/writeback/internal/order"
	"github.com/pailfs/pailfs/fs/writeback/internal/state"
	"github.com/pailfs/pailfs/manifest"
	"github.com/pailfs/pailfs/oss"
)

// recounted is what status tells, by a look at everything, while the journal is on the disk up to
// synced. Space.mu is held.
func (s *Space) recounted(synced int64) (st Status) {
	undurable := maps.Clone(s.mu.undurable.files)
	for id, op := range s.mu.Ops {
		st.Pending++
		f, run := s.mu.Files[op.File], s.mu.runs[id]
		if op.Kind == order.Put && run.pos > synced && f != nil && !f.IsSuspect() {
			undurable[op.File] = max(undurable[op.File], 0)
		}
		if at := time.Unix(0, op.At); st.Oldest.IsZero() || at.Before(st.Oldest) {
			st.Oldest = at
		}
		if op.Kind == order.Put && f != nil {
			st.DirtyFiles++
			if f.Staged {
				st.DirtyBytes += f.Own()
			}
		}
		switch {
		case run.failing || s.lostBefore(op) != nil:
			st.FailingCount++
		case run.attempts > 0:
			st.RetryingCount++
		}
		if s.outpaces(op) {
			st.RestlessCount++
		}
	}
	for id, pos := range undurable {
		if _, known := s.mu.undurable.files[id]; pos == 0 || pos > synced || !known {
			st.NotDurable++
		}
	}
	for _, f := range s.mu.Files {
		if f.IsSuspect() {
			st.SuspectCount++
		}
	}
	return st
}

// checkCounters compares what was counted where it changed with a look at everything.
func (w *world) checkCounters() {
	w.Helper()
	s := w.space
	s.mu.Lock()
	defer s.mu.Unlock()
	synced := s.journal.Synced()
	want := s.recounted(synced)
	got := Status{
		Pending: len(s.mu.Ops), NotDurable: s.mu.undurable.settle(synced),
		DirtyFiles: s.mu.Tally.DirtyFiles, DirtyBytes: s.mu.Tally.DirtyBytes, SuspectCount: len(s.mu.Tally.Suspects),
	}
	if at, some := s.mu.Tally.Oldest.Since(s.mu.Ops); some {
		got.Oldest = time.Unix(0, at)
	}
	got.FailingCount, got.RetryingCount = s.failures(func(*order.Operation, bool) {})
	for id := range s.mu.troubles.unsettled {
		if s.outpaces(s.mu.Ops[id]) {
			got.RestlessCount++
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		w.Errorf("the counters differ from a look at everything (-look +counted):\n%s", diff)
	}
	checkTally(w.T, s.mu.State)
}

// checkUsage compares what staged files are said to occupy with what all of them do. Nothing may
// be under way.
func (w *world) checkUsage() {
	w.Helper()
	s := w.space
	got, err := s.used.Bytes(0, s.countWriting)
	if err != nil {
		w.Fatal(err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	want := int64(0)
	for id, f := range s.mu.Files {
		if !f.Staged {
			continue
		}
		bytes, err := s.occupied(id)
		if err != nil {
			w.Fatal(err)
		}
		want += bytes
	}
	if got != want {
		w.Errorf("staged files are said to occupy %d bytes, want %d", got, want)
	}
}

// checkTally compares what is counted of a state with that of one that was counted at once.
func checkTally(t *testing.T, st *state.State) {
	t.Helper()
	want := state.NewTally()
	for _, op := range st.Ops {
		want.Began(op)
	}
	for id, f := range st.Files {
		want.Set(id, f)
	}
	for id := range want.Files {
		want.Set(id, st.Files[id])
	}
	if diff := cmp.Diff(want, st.Tally, cmp.AllowUnexported(state.Tally{}, state.Weight{}), cmpopts.IgnoreFields(state.Tally{}, "Oldest", "touched", "Counted")); diff != "" {
		t.Errorf("the tally differs from a look at everything (-look +counted):\n%s", diff)
	}
}

// pendingSizes are how many files wait in the benchmarks of what must not depend on that.
var pendingSizes = []int{1_000, 10_000, 100_000, 1_000_000}

// withPending returns a space in which files were closed, which nobody publishes, and where its
// metrics are.
func withPending(b *testing.B, files int) (*Space, *prometheus.Registry) {
	b.Helper()
	bucket := &fakeBucket{fakeStore: newFakeStore(rand.New(rand.NewPCG(1, 2)))}
	base, err := manifest.NewLive(manifest.LiveConfig{Prefix: "p/"}, bucket, prometheus.NewRegistry(), slog.New(slog.DiscardHandler))
	if err != nil {
		b.Fatal(err)
	}
	reg := prometheus.NewRegistry()
	cache := &fakeCache{bucket: bucket, content: make(map[oss.Object][]byte)}
	cfg := Config{Dir: b.TempDir(), Endpoint: "e", Bucket: "b", Prefix: "p/", StagingSize: 1 << 50}
	s, err := open(cfg, base, bucket, cache, reg, nil, realDisk{}, "boot")
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := s.Close(); err != nil {
			b.Error(err)
		}
	})
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range files {
		dir, base := fmt.Sprint("d/", i/1000), strconv.Itoa(i)
		key := "p/" + order.Join(dir, base)
		id := s.mu.NextFile
		s.record(&state.Created{File: id, At: state.Place{Dir: dir, Name: base, Key: key, Base: state.Absent(key)}})
		s.record(&state.Closed{File: id, Gen: 1, Size: 4096, At: now()})
	}
	if err := s.journal.Sync(s.journal.End()); err != nil {
		b.Fatal(err)
	}
	// All are measured once, and taken to survive.
	s.mu.undurable.settle(s.journal.Synced())
	s.mu.Unlock()
	_, err = s.used.Bytes(0, s.countWriting)
	if s.mu.Lock(); err != nil {
		b.Fatal(err)
	}
	return s, reg
}

// BenchmarkWithPending is what is done all the time while files wait to be published: none of it
// may cost more the more there are.
func BenchmarkWithPending(b *testing.B) {
	for _, files := range pendingSizes {
		b.Run(fmt.Sprintf("pending=%d", files), func(b *testing.B) {
			s, reg := withPending(b, files)
			b.Run("status", func(b *testing.B) {
				for b.Loop() {
					if _, err := s.used.Bytes(0, s.countWriting); err != nil {
						b.Fatal(err)
					}
					s.Status()
				}
			})
			b.Run("scrape", func(b *testing.B) {
				for b.Loop() {
					if _, err := s.used.Bytes(0, s.countWriting); err != nil {
						b.Fatal(err)
					}
					if _, err := reg.Gather(); err != nil {
						b.Fatal(err)
					}
				}
			})
			b.Run("create", func(b *testing.B) {
				for b.Loop() {
					if _, err := s.used.Bytes(0, s.countWriting); err != nil {
						b.Fatal(err)
					}
					f, err := s.create(b.Context(), "made", fmt.Sprint(s.mu.NextFile), CreateOptions{}, false)
					if err != nil {
						b.Fatal(err)
					}
					(&Handle{file: f, write: true}).Release()
				}
			})
			b.Run("dispatch", func(b *testing.B) {
				for b.Loop() {
					var began []uint64
					s.dispatch(func(op order.Operation, _ bool) { began = append(began, op.ID) })
					for _, id := range began {
						s.mu.runs[id].running = false
					}
					s.mu.running = 0
				}
			})
			b.Run("compact", func(b *testing.B) {
				for b.Loop() {
					s.compactIfLarge()
				}
			})
			b.Run("flush", func(b *testing.B) {
				for b.Loop() {
					s.mu.Lock()
					s.left("", time.Time{})
					s.mu.Unlock()
				}
			})
		})
	}
}

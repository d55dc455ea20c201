package writeback

import (
	"fmt"
	"runtime"
	"testing"
)

// pendingBytes is the most heap that a small file takes that waits to be published: what
// is known of it, its name, and its operation.
const pendingBytes = 2560

func TestMemoryOfAPendingChange(t *testing.T) {
	bubble(t, func(t *testing.T) {
		const files = 700
		w := newWorld(t, 1)
		w.cancel() // nothing is published, nothing is tried
		<-w.ended
		heap := make([]int64, 3)
		for i := range heap {
			for n := range files {
				w.write(fmt.Sprintf("d%d-%d", i, n/100), fmt.Sprintf("checkpoint-%06d.bin", n), "content")
			}
			heap[i] = liveHeap()
		}
		for i := range heap[1:] {
			if each := (heap[i+1] - heap[i]) / files; each > pendingBytes {
				t.Errorf("a pending change takes %d bytes of heap, want %d at most", each, pendingBytes)
			} else {
				t.Logf("%d bytes", each)
			}
		}
		w.stop()
	})
}

// liveHeap returns the bytes of the heap that are in use.
func liveHeap() int64 {
	var m runtime.MemStats
	for range 2 {
		runtime.GC() // the second one frees what finalizers kept
	}
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// TestCompactionReservesWhatItsJournalIsLong: of changes that wait there are many, and each
// takes little.
func TestCompactionReservesWhatItsJournalIsLong(t *testing.T) {
	bubble(t, func(t *testing.T) {
		const files = 300
		w := newWorld(t, 1)
		w.cancel()
		<-w.ended
		for n := range files {
			w.write("d", fmt.Sprintf("checkpoint-%06d.bin", n), "content")
		}
		s := w.space
		inline, err := s.readInline(false)
		if err != nil {
			t.Fatal(err)
		}
		s.mu.Lock()
		made, err := s.mu.Snapshot(inline, s.readContent)
		s.mu.Unlock()
		if err != nil {
			t.Fatal(err)
		}
		if most := len(made) + len(made)/4 + 4096; cap(made) > most {
			t.Errorf("%d bytes were reserved for %d", cap(made), len(made))
		}
		if each := cap(made) / files; each > 420 {
			t.Errorf("%d bytes were reserved for a change, want 420 at most", each)
		}
		w.stop()
	})
}

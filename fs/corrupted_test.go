package fs

import (
	"bytes"
	"context"
	"errors"
	"os"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/pailfs/pailfs/cache"
	"github.com/pailfs/pailfs/oss"
)

// spoilAt makes the store send one wrong byte of every object.
func spoilAt(at int64) func(r oss.RangeRequest) {
	return func(r oss.RangeRequest) {
		if r.Offset <= at && at < r.Offset+int64(len(r.Buffer)) {
			r.Buffer[at-r.Offset] ^= 1
		}
	}
}

// spoilOnceAt makes the store send one wrong byte, once: a request that is on its
// way when the fault ends would bring it again.
func spoilOnceAt(at int64) func(r oss.RangeRequest) {
	var spoilt atomic.Bool
	spoil := spoilAt(at)
	return func(r oss.RangeRequest) {
		if r.Offset <= at && at < r.Offset+int64(len(r.Buffer)) && !spoilt.Swap(true) {
			spoil(r)
		}
	}
}

// Where the kernel does not tell of close, no close can end the life of a handle
// whose content was found corrupted.
func TestCorruptedFileCanBeReadAgainWithoutOpen(t *testing.T) {
	w := newWorld()
	w.sums = true
	o := w.put("file", 6<<20)
	s := mounted(t, w, Config{Immutable: true}, cache.Config{})
	w.spoiling(spoilAt(50_000))
	if _, err := os.ReadFile(s.path("file")); !errors.Is(err, unix.EIO) {
		t.Fatalf("one byte is wrong: %v, want EIO", err)
	}
	w.spoiling(nil)
	var got []byte
	eventually(t, "it can be read again", func() (ok bool) {
		var err error
		got, err = os.ReadFile(s.path("file"))
		return err == nil
	})
	same(t, got, all(o))
	eventually(t, "nothing is left to close", func() bool {
		for _, n := range s.mount.fs.inodes.nodes.all() {
			if st := n.state.Load(); st != nil {
				st.mu.Lock()
				spent := len(st.mu.spent)
				st.mu.Unlock()
				if spent > 0 {
					return false
				}
			}
		}
		return true
	})
}

// Readahead, or another way to the cache, may find out that content is wrong when
// no READ comes any more that could be told.
func TestWrongBytesDoNotStayThoughNoReadFailed(t *testing.T) {
	w := newWorld()
	w.sums = true
	o := w.put("file", 6<<20)
	s := mounted(t, w, Config{}, cache.Config{})
	w.spoiling(spoilOnceAt(3 << 20))
	f, err := os.Open(s.path("file"))
	must(t, err)
	p := make([]byte, 4096)
	_, err = f.ReadAt(p, 3<<20)
	must(t, err)
	if bytes.Equal(p, all(o)[3<<20:3<<20+4096]) {
		t.Fatal("no byte is wrong")
	}
	h, err := s.cache.Open(o)
	must(t, err)
	if _, err := h.ReadAt(context.Background(), make([]byte, o.Size), 0); !errors.Is(err, oss.ErrCorrupted) {
		t.Fatalf("another way: %v", err)
	}
	must(t, h.Close())
	must(t, f.Close())
	eventually(t, "it is released", func() bool { return s.mount.Status().OpenFiles == 0 })
	same(t, readAll(t, s.path("file")), all(o))
}

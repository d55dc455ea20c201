package writeback

import (
	"context"
	"sync"
	"testing"

	"github.com/pailfs/pailfs/oss"
)

// beforeTake is a cache that lets something happen before the first fetch.
type beforeTake struct {
	Cache
	do func()
}

func (c *beforeTake) Take(ctx context.Context, obj oss.Object, dst string) error {
	c.do()
	return c.Cache.Take(ctx, obj, dst)
}

// beforeCopy is a bucket that lets something happen before the first copy.
type beforeCopy struct {
	*fakeBucket
	do func()
}

func (b *beforeCopy) Copy(ctx context.Context, key string, src oss.Object, o oss.PutOptions) (oss.Info, error) {
	b.do()
	return b.fakeBucket.Copy(ctx, key, src, o)
}

// A renamed object is opened for writing while it is being copied. When the content
// is fetched, the old key is deleted already.
func TestOpenDuringTheCopyOfARenamedFile(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t, 1)
		w.store.put("p/a", "content")
		copying, fetching := make(chan struct{}), make(chan struct{})
		w.space.bucket = &beforeCopy{w.bucket, sync.OnceFunc(func() {
			close(copying)
			<-fetching
		})}
		var published error
		w.space.cache = &beforeTake{w.cache, sync.OnceFunc(func() {
			close(fetching)
			published = w.space.Flush(t.Context(), "")
		})}
		if _, err := w.space.Rename(t.Context(), "", "a", "", "b", 0); err != nil {
			t.Fatal(err)
		}
		<-copying
		h, err := w.space.Open(t.Context(), "", "b", OpenOptions{Write: true})
		if err != nil || published != nil {
			t.Fatalf("open: %v, flush: %v", err, published)
		}
		if _, err := h.WriteAt(t.Context(), []byte("C"), 0); err != nil {
			t.Fatal(err)
		}
		if err := h.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		h.Release()
		w.drain()
		if got := w.inBucket()["p/b"]; got != "Content" || len(w.inBucket()) != 1 {
			t.Errorf("the bucket holds %q", w.inBucket())
		}
		w.stop()
	})
}

package writeback

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/pailfs/pailfs/oss"
)

// gate is a cache that fetches nothing before it is opened.
type gate struct {
	Cache
	opened chan struct{}
}

func (g *gate) Take(ctx context.Context, obj oss.Object, dst string) error {
	<-g.opened
	return g.Cache.Take(ctx, obj, dst)
}

// A second open of a file that is being fetched can be called off.
func TestOpenBehindADownloadCanBeCalledOff(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t, 1)
		w.store.put("p/a", "content")
		g := &gate{Cache: w.cache, opened: make(chan struct{})}
		w.space.cache = g
		first := make(chan error)
		go func() {
			h, err := w.space.Open(t.Context(), "", "a", OpenOptions{Write: true})
			if err == nil {
				h.Release()
			}
			first <- err
		}()
		synctest.Wait()
		ctx, cancel := context.WithCancel(t.Context())
		second := make(chan error)
		go func() {
			_, err := w.space.Open(ctx, "", "a", OpenOptions{Write: true})
			second <- err
		}()
		synctest.Wait()
		cancel()
		if err := <-second; !errors.Is(err, context.Canceled) {
			t.Errorf("the second open ended with %v, want %v", err, context.Canceled)
		}
		close(g.opened)
		if err := <-first; err != nil {
			t.Errorf("the first open failed: %v", err)
		}
		w.drain()
		w.stop()
	})
}

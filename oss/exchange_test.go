package oss

import (
	"errors"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// A walk asks for nothing but HEADs: if the client did not tell the limiter how long they
// take, the limit would stay where it began.
func TestHeadsAreObserved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBubble(t, func(w http.ResponseWriter, _ *http.Request, _ int) {
			time.Sleep(10 * time.Millisecond)
			w.WriteHeader(http.StatusNotFound)
		})
		initial := b.client.limiter.Stats().Limit
		var all sync.WaitGroup
		for range initial {
			all.Go(func() {
				for range 30 {
					if _, err := b.client.As(Demand).Head(t.Context(), "absent"); !errors.Is(err, ErrNotFound) {
						t.Error(err)
					}
				}
			})
		}
		all.Wait()
		if got := b.client.limiter.Stats().Limit; got <= initial {
			t.Errorf("prompt answers left the limit at %d of %d", got, initial)
		}
	})
}

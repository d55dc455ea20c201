package writeback

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pailfs/pailfs/oss"
)

// TestRefusedFileIsToldOfBesideManySyncs: each fsync that waits for the bucket has what
// failed tried again at once. Who waits for that is told of it all the same.
func TestRefusedFileIsToldOfBesideManySyncs(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorldWith(t, 1, func(c *Config) { c.Through = func(string) bool { return true } })
		w.deny("p/x/a", true)
		w.slowly(20 * time.Millisecond)
		for _, d := range []string{"x", "y"} {
			if err := w.space.Mkdir(t.Context(), "", d, SetAttr{}); err != nil {
				t.Fatal(err)
			}
		}
		enough, stop := context.WithCancel(t.Context())
		var others sync.WaitGroup
		for i := range 4 {
			others.Go(func() {
				for n := 0; enough.Err() == nil; n++ {
					w.write("y", strconv.Itoa(i)+"-"+strconv.Itoa(n), "content")
					time.Sleep(time.Duration(3+i) * time.Millisecond)
				}
			})
		}
		h, err := w.space.Create(t.Context(), "x", "a", CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := h.WriteAt(t.Context(), []byte("content"), 0); err != nil {
			t.Fatal(err)
		}
		// There is nothing to flush before the first fsync.
		for _, wait := range []func(ctx context.Context) error{
			h.Sync,
			func(ctx context.Context) error { return w.space.Flush(ctx, "x") },
		} {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			if err := wait(ctx); !errors.Is(err, oss.ErrAccessDenied) {
				t.Errorf("fsync or flush of the file that is refused says %v", err)
			}
			cancel()
		}
		stop()
		others.Wait()
		w.deny("p/x/a", false)
		w.finish(h)
		w.drain()
		w.stop()
	})
}

// TestRefusedFileIsNotSentWhenOthersAreSynced: who waits for something else does not have it tried
// again, whether that is new or was there before.
func TestRefusedFileIsNotSentWhenOthersAreSynced(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorldWith(t, 1, func(c *Config) {
			c.Through = func(path string) bool { return strings.HasPrefix(path, "y/") }
		})
		for _, d := range []string{"x", "y"} {
			if err := w.space.Mkdir(t.Context(), "", d, SetAttr{}); err != nil {
				t.Fatal(err)
			}
		}
		w.deny("p/x/a", true)
		w.write("x", "a", "content")
		for n := range 1000 {
			w.write("y", strconv.Itoa(n%10), strconv.Itoa(n))
			time.Sleep(100 * time.Millisecond)
		}
		w.store.Lock()
		refused := w.store.refused
		w.store.Unlock()
		if refused < 2 || refused > 6 {
			t.Errorf("the file was sent %d times in two minutes, want 10, 20, 40 seconds apart", refused)
		}
		// Above it, it is waited for.
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		w.deny("p/x/a", false)
		w.write("", "z", "waits")
		if err := w.space.Flush(ctx, "z"); err != nil {
			t.Errorf("flush of what waits behind it: %v", err)
		}
		w.holds("p/x/a", "content")
		w.drain()
		w.stop()
	})
}

// TestManyBehindARefusedFileDoNotHoldUpOthers: more than are looked at at once.
func TestManyBehindARefusedFileDoNotHoldUpOthers(t *testing.T) {
	bubble(t, func(t *testing.T) {
		const ahead = 300 // more than run at once
		w := newWorldWith(t, 1, func(c *Config) {
			l := usualLimits
			l.ahead = ahead
			c.limits = &l
		})
		w.deny("p/d/a", true)
		for _, d := range []string{"d", "e"} {
			if err := w.space.Mkdir(t.Context(), "", d, SetAttr{}); err != nil {
				t.Fatal(err)
			}
		}
		w.write("d", "a", "refused")
		time.Sleep(5 * time.Second)
		for i := range ahead + 100 {
			w.write("d", strconv.Itoa(i), "x")
		}
		w.write("e", "z", "elsewhere")
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		if err := w.space.Flush(ctx, "e"); err != nil {
			t.Errorf("flush of another directory: %v", err)
		}
		w.holds("p/e/z", "elsewhere")
		w.deny("p/d/a", false)
		w.drain()
		w.stop()
	})
}

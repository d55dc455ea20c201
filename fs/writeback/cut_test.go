package writeback

import (
	"context"
	"testing"
	"time"

	"github.com/pailfs/pailfs/oss"
)

// cutting changes a file while a part of it, or all of it, is sent: with cut before it is read,
// with after when it was read.
type cutting struct {
	*fakeBucket
	cut, after func()
}

func (b *cutting) UploadPart(ctx context.Context, u oss.MultipartUpload, number int, body oss.Body) (oss.Part, error) {
	b.Lock()
	cut, after := b.cut, b.after
	b.cut, b.after = nil, nil
	b.Unlock()
	if cut != nil {
		cut()
	}
	part, err := b.fakeBucket.UploadPart(ctx, u, number, body)
	if after != nil {
		after()
	}
	return part, err
}

// A file that is cut while it is published is no failure that its program is told of.
func TestCutWhilePublishedIsNoFailure(t *testing.T) {
	for name, prepare := range map[string]func(w *world) (*Handle, func()){
		"synced and open": func(w *world) (*Handle, func()) {
			h, err := w.space.Create(w.Context(), "", "a", CreateOptions{})
			if err != nil {
				w.Fatal(err)
			}
			if _, err := h.Append(w.Context(), []byte(filled(70))); err != nil {
				w.Fatal(err)
			}
			if err := h.Truncate(w.Context(), 400); err != nil { // holes, so that nothing is sent early
				w.Fatal(err)
			}
			return h, func() {
				if err := h.Truncate(w.Context(), 150); err != nil {
					w.Error(err)
				}
			}
		},
		"appended to and open": func(w *world) (*Handle, func()) {
			w.store.put("p/a", filled(400))
			h, err := w.space.Open(w.Context(), "", "a", OpenOptions{Write: true})
			if err != nil {
				w.Fatal(err)
			}
			if _, err := h.Append(w.Context(), []byte(filled(300))); err != nil {
				w.Fatal(err)
			}
			return h, func() {
				if err := h.Truncate(w.Context(), 410); err != nil {
					w.Error(err)
				}
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				w := newPartsWorld(t, func(*Config) {})
				h, cut := prepare(w)
				b := &cutting{fakeBucket: w.bucket, cut: cut}
				w.space.bucket = b
				if err := h.Sync(t.Context()); err != nil {
					t.Fatal(err)
				}
				w.noFailure(h, b)
				w.finish(h)
				w.drain()
				w.stop()
			})
		})
	}
}

// The same where it was closed, and is emptied by who opens it next.
func TestEmptiedWhilePublishedIsNoFailure(t *testing.T) {
	for name, old := range map[string]int{"whole": 0, "tail": 400} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				w := newPartsWorld(t, func(c *Config) { c.Attrs = true })
				if old > 0 {
					w.store.put("p/a", filled(old))
				} else {
					w.write("", "a", "")
					w.drain()
				}
				var again *Handle
				b := &cutting{fakeBucket: w.bucket}
				b.cut = func() {
					var err error
					if again, err = w.space.Open(t.Context(), "", "a", OpenOptions{Write: true, Truncate: true}); err != nil {
						t.Error(err)
					}
				}
				w.space.bucket = b
				h, err := w.space.Open(t.Context(), "", "a", OpenOptions{Write: true})
				if err != nil {
					t.Fatal(err)
				}
				if _, err := h.Append(t.Context(), []byte(filled(300))); err != nil {
					t.Fatal(err)
				}
				w.finish(h)
				w.noFailure(nil, b)
				w.finish(again)
				w.drain()
				w.holds("p/a", "")
				w.stop()
			})
		})
	}
}

// noFailure waits until a file was cut, and for what comes of it.
func (w *world) noFailure(h *Handle, b *cutting) {
	w.Helper()
	for range 100 {
		time.Sleep(time.Second)
		w.space.mu.Lock()
		failures := w.space.mu.stats.failures
		w.space.mu.Unlock()
		if failures > 0 {
			w.Errorf("publication counts as failed: %+v", w.space.Pending("", 3))
			break
		}
	}
	b.Lock()
	defer b.Unlock()
	if b.cut != nil {
		w.Fatal("nothing was sent in parts")
	}
	if h == nil {
		return
	}
	if err := h.Flush(w.Context()); err != nil {
		w.Errorf("close: %v", err)
	}
}

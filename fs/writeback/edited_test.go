package writeback

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/pailfs/pailfs/oss"
)

// edit writes content at off to a file that exists, and closes it.
func (w *world) edit(base, content string, off int64) {
	w.Helper()
	h, err := w.space.Open(w.Context(), "", base, OpenOptions{Write: true})
	if err != nil {
		w.Fatal(err)
	}
	if _, err := h.WriteAt(w.Context(), []byte(content), off); err != nil {
		w.Fatal(err)
	}
	w.finish(h)
}

// TestOfAnEditedObjectWhatWasChangedIsSent: the parts are of 40 bytes three times, then
// of 80, and so on; that at the end of 1,000 bytes begins at 840.
func TestOfAnEditedObjectWhatWasChangedIsSent(t *testing.T) {
	old := filled(1000)
	for name, c := range map[string]struct {
		edit func(w *world)
		want string
		sent int64
	}{
		"in the middle": {
			func(w *world) { w.edit("old", "<changed>", 50) },
			old[:50] + "<changed>" + old[59:], 40,
		},
		"across two parts": {
			func(w *world) { w.edit("old", "<changed>", 75) },
			old[:75] + "<changed>" + old[84:], 80,
		},
		"at both ends": {
			func(w *world) { w.edit("old", "<", 0); w.edit("old", ">>", 999) },
			"<" + old[1:999] + ">>", 40 + 161,
		},
		"twice, and published between": {
			func(w *world) { w.edit("old", "<1>", 50); w.drain(); w.edit("old", "<2>", 130) },
			old[:50] + "<1>" + old[53:130] + "<2>" + old[133:], 40 + 80,
		},
		"cut": {
			func(w *world) {
				h, err := w.space.Open(w.Context(), "", "old", OpenOptions{Write: true})
				if err == nil {
					err = h.Truncate(w.Context(), 130)
				}
				if err != nil {
					w.Fatal(err)
				}
				w.finish(h)
			},
			old[:130], 0,
		},
		"written anew": {
			func(w *world) { w.write("", "old", strings.ToUpper(old)) },
			strings.ToUpper(old), 1000,
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				w := newPartsWorld(t, func(*Config) {})
				w.store.put("p/old", old)
				c.edit(w)
				w.drain()
				w.holds("p/old", c.want)
				if _, sent := w.inUploads(); sent != c.sent {
					t.Errorf("%d bytes were sent; want %d", sent, c.sent)
				}
				if told := w.space.Status().UploadedBytes; told != c.sent {
					t.Errorf("status: %d bytes were sent, want %d", told, c.sent)
				}
				w.stop()
			})
		})
	}
}

// TestEditIsResumedAfterAKill: what was copied or sent before it is neither again.
func TestEditIsResumedAfterAKill(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newPartsWorld(t, func(c *Config) { c.Bandwidth = 100 })
		old := filled(4000)
		w.store.put("p/old", old)
		w.edit("old", strings.Repeat("#", 600), 200)
		for sent := int64(0); sent == 0; {
			time.Sleep(time.Millisecond)
			_, sent = w.inUploads()
		}
		w.crash(false)
		w.drain()
		w.holds("p/old", old[:200]+strings.Repeat("#", 600)+old[800:])
		if parts, sent := w.inUploads(); sent > 1600 || len(parts) > 0 {
			t.Errorf("%d bytes were sent, left are %v", sent, parts)
		}
		w.stop()
	})
}

// copying does something before the first part is copied.
type copying struct {
	*fakeBucket
	before func()
	// refuses is the error of every copy, hides that of every list, if set.
	refuses, hides error
	// mute servers do not say which CRC-64 a part has.
	mute bool
}

func (b *copying) CopyPart(ctx context.Context, u oss.MultipartUpload, number int, src oss.Object, offset, size int64) (oss.Part, error) {
	b.Lock()
	before := b.before
	b.before = nil
	b.Unlock()
	if before != nil {
		before()
	}
	if b.refuses != nil {
		return oss.Part{}, b.refuses
	}
	return b.fakeBucket.CopyPart(ctx, u, number, src, offset, size)
}

func (b *copying) ListParts(ctx context.Context, u oss.MultipartUpload) ([]oss.Part, error) {
	if b.hides != nil {
		return nil, b.hides
	}
	parts, err := b.fakeBucket.ListParts(ctx, u)
	for i := range parts {
		if b.mute {
			parts[i].CRC64 = 0
		}
	}
	return parts, err
}

func TestEditBesideAnotherIsAConflict(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newPartsWorld(t, func(*Config) {})
		old := filled(1000)
		w.store.put("p/old", old)
		w.space.bucket = &copying{fakeBucket: w.bucket, before: func() { w.store.put("p/old", "theirs") }}
		w.edit("old", "<changed>", 50)
		w.drain()
		w.holds("p/old", "theirs")
		kept := 0
		for key, content := range w.inBucket() {
			if strings.HasPrefix(key, "p/old.conflict-") && content == old[:50]+"<changed>"+old[59:] {
				kept++
			}
		}
		if kept != 1 {
			t.Errorf("ours is there %d times: %v", kept, w.inBucket())
		}
		w.stop()
	})
}

// TestAllIsSentWhereCopiesAreOfNoUse: a server that does not say what the copies are, or
// makes none.
func TestAllIsSentWhereCopiesAreOfNoUse(t *testing.T) {
	old := filled(1000)
	for name, b := range map[string]copying{
		"no checksums":  {mute: true},
		"not to list":   {hides: oss.ErrAccessDenied},
		"archived":      {refuses: oss.ErrInvalid},
		"not to read":   {refuses: oss.ErrAccessDenied},
		"replaced once": {refuses: oss.ErrChanged},
	} {
		for change, off := range map[string]int64{"edited": 50, "appended to": 1000} {
			if b.refuses == nil && off == 1000 {
				continue // it needs no list
			}
			t.Run(name+"/"+change, func(t *testing.T) {
				bubble(t, func(t *testing.T) {
					w := newPartsWorld(t, func(*Config) {})
					w.store.put("p/old", old)
					c := b
					c.fakeBucket = w.bucket
					w.space.bucket = &c
					w.edit("old", "<changed>", off)
					w.drain()
					want := old[:off] + "<changed>" + old[min(off+9, 1000):]
					w.holds("p/old", want)
					if parts, sent := w.inUploads(); sent < int64(len(want)) || len(parts) > 0 {
						t.Errorf("%d bytes were sent; want all; left are %v", sent, parts)
					}
					w.stop()
				})
			})
		}
	}
}

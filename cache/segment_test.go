package cache

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/pailfs/pailfs/cache/internal/content"
	"github.com/pailfs/pailfs/oss"
)

// What a failed request leaves in the list of extents would be found by the next
// one that is corrupted, which gives all of them back a second time: their buffer
// then belongs to two.
func TestRequestThatBringsNothingLeavesNoExtent(t *testing.T) {
	for _, size := range []int{1, 200_000, content.SmallObject} {
		s := newFakeStore()
		c := openCache(t, s, Config{})
		obj := s.put("object", size)
		h := openObject(t, c, obj)
		for i := range 6 {
			want := oss.ErrUnavailable
			s.mu.Lock()
			s.mu.fail = func(oss.RangeRequest) error { return oss.ErrUnavailable }
			s.mu.Unlock()
			if i%2 == 1 {
				want = oss.ErrCorrupted
				s.mu.Lock()
				s.mu.fail = nil
				s.mu.Unlock()
				s.corrupt("object", 0)
			}
			if _, err := h.ReadAt(context.Background(), make([]byte, size), 0); !errors.Is(err, want) {
				t.Errorf("%d bytes: %v, want %v", size, err, want)
			}
			if i%2 == 1 {
				s.corrupt("object", 0)
			}
			o := h.object
			o.mu.Lock()
			for _, seg := range o.mu.segments {
				if seg == nil {
					continue
				}
				for _, e := range seg.extents {
					if e.span.Len() == 0 || e.holds == 0 {
						t.Errorf("%d bytes: extent %+v is left with holds %d", size, e.span, e.holds)
					}
				}
			}
			o.mu.Unlock()
		}
		// Whoever was given a buffer that is free twice would see another's bytes.
		var handles []*Handle
		for i := range 20 {
			handles = append(handles, openObject(t, c, s.put(fmt.Sprint("other", i), size)))
		}
		for range 2 {
			for _, h := range handles {
				checkRead(t, s, h, 0, size)
			}
		}
	}
}

package session

import (
	"fmt"
	"testing"
	"time"

	"github.com/pailfs/pailfs/oss"
)

// TestQuotaComesBackWithRoomThoughTheBufferIsLarger announces through a buffer of far
// more files than the budget has room for. What is free again must be offered again.
func TestQuotaComesBackWithRoomThoughTheBufferIsLarger(t *testing.T) {
	const size, room = 1000, 50
	now := time.Unix(1000, 0)
	b := NewBook(Config{Budget: room * size})
	id, _, _ := b.Open(now, "s", Key{Task: "t"}, Params{Buffer: 4096})
	n := Name{Session: id}
	paths := make([]string, room)
	for i := range paths {
		paths[i] = fmt.Sprint(i)
	}
	if out, err := b.Preload(now, n, paths, false); err != nil || out.Accepted != room {
		t.Fatalf("%+v, %v", out, err)
	}
	for e := b.NextResolve(); e != nil; e = b.NextResolve() {
		b.Resolved(e, []oss.Object{{Key: e.Path(), Size: size}}, 0, nil)
	}
	for e := b.NextFetch(); e != nil; e = b.NextFetch() {
		b.Fetched(e, false, nil)
	}
	quota := func() int {
		q, err := b.Quota(now, n)
		if err != nil {
			t.Fatal(err)
		}
		return q
	}
	if q := quota(); q != 0 {
		t.Errorf("the quota is %d, and the budget is used up", q)
	}
	for released, want := range []int{0, 0, 0, 0, 0, 5, 6} {
		if released > 0 {
			if _, _, err := b.Release(now, n, paths[released-1:released]); err != nil {
				t.Fatal(err)
			}
			for _, e := range b.TakeGone() {
				b.Freed(e)
			}
		}
		if q := quota(); q != want {
			t.Errorf("after %d of %d files were released the quota is %d, want %d", released, room, q, want)
		}
	}
}

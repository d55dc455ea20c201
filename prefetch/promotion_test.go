package prefetch

import (
	"bytes"
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/pailfs/pailfs/cache"
	"github.com/pailfs/pailfs/oss"
	"github.com/pailfs/pailfs/oss/limiter"
	"github.com/pailfs/pailfs/prefetch/internal/prefetchtest"
)

// TestWhoReadsWhatWasAnnouncedOvertakesTheOthers has an object store that bears one
// request at a time. All that was announced waits for it when the last file is read.
func TestWhoReadsWhatWasAnnouncedOvertakesTheOthers(t *testing.T) {
	const size = 10_000
	paths := prefetchtest.Names("d", 20)
	arrived, answer := make(chan string), make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		key := strings.TrimPrefix(r.URL.Path, "/bucket/")
		select {
		case arrived <- key:
		case <-r.Context().Done():
		}
		select {
		case <-answer:
		case <-r.Context().Done():
		}
		w.Header().Set("ETag", `"E"`)
		http.ServeContent(w, r, key, time.Time{}, bytes.NewReader(pattern(key, size)))
	}))
	defer server.Close()
	single, err := limiter.New(limiter.Config{Initial: 1, Min: 1, Max: 1}, nil)
	if err != nil {
		t.Fatal(err)
	}
	client, err := oss.Open(oss.Config{Endpoint: server.URL, Bucket: "bucket", PathStyle: true, HedgeShare: -1}, single, nil, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = client.Close() }()
	c, err := cache.Open(cache.Config{Dir: t.TempDir(), Size: 8 << 20, Memory: 64 << 20}, client.As(oss.Demand), client.As(oss.Prefetch), nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}()
	tree := prefetchtest.NewTree(size, paths...)
	p, stop := running(t, Config{}, tree, c)
	defer stop()
	n := open(t, p, one, 100)
	if _, _, err := p.Sessions.Preload(n, paths); err != nil {
		t.Fatal(err)
	}
	next := func() string {
		t.Helper()
		select {
		case key := <-arrived:
			return key
		case <-time.After(patience):
			t.Fatal("no request came")
			return ""
		}
	}
	waiting := func(class oss.Class, least int) {
		t.Helper()
		for limit := time.Now().Add(patience); single.Stats().Waiting[class] < least; time.Sleep(time.Millisecond) {
			if time.Now().After(limit) {
				t.Fatalf("%d requests wait, want %d", single.Stats().Waiting[class], least)
			}
		}
	}
	first := next()
	waiting(oss.Prefetch, len(paths)-1)
	last := tree[paths[len(paths)-1]]
	if first == last.Key {
		last = tree[paths[0]]
	}
	read := make(chan error, 1)
	go func() {
		h, err := c.Open(last)
		if err == nil {
			got := make([]byte, size)
			if _, err = h.ReadAt(context.Background(), got, 0); err == nil && !bytes.Equal(got, pattern(last.Key, size)) {
				t.Error("other bytes were read")
			}
			if e := h.Close(); err == nil {
				err = e
			}
		}
		read <- err
	}()
	waiting(oss.Demand, 1)
	answer <- struct{}{}
	if second := next(); second != last.Key {
		t.Errorf("after %s came %s, and somebody waits for %s", first, second, last.Key)
	}
	answer <- struct{}{}
	if err := <-read; err != nil {
		t.Error(err)
	}
	go func() {
		for range paths[2:] {
			<-arrived
			answer <- struct{}{}
		}
	}()
	for _, f := range wait(t, p, n, paths) {
		if f.State != "ready" {
			t.Errorf("%+v", f)
		}
	}
}

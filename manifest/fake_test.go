package manifest

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	"github.com/pailfs/pailfs/oss"
)

func TestMain(m *testing.M) {
	// A hundred cases, rapid's own default, are over in a blink. The command line
	// is parsed later and can ask for more.
	if err := flag.Set("rapid.checks", "500"); err != nil {
		panic(err)
	}
	goleak.VerifyTestMain(m)
}

// fakeBucket lists keys as OSS does, and counts what it is asked.
type fakeBucket struct {
	// latency is how long a request takes.
	latency time.Duration
	// pageKeys, if set, is the most that a page holds.
	pageKeys int
	// foldsFirst makes the listing compare StartAfter with folded prefixes instead
	// of keys: stores differ in it.
	foldsFirst bool
	// repeatsPrefix makes every page begin with the prefix that ended the one before.
	repeatsPrefix bool
	// emptyPages makes every second page empty, with a token.
	emptyPages bool

	mu struct {
		sync.Mutex
		keys    []string
		objects map[string]oss.ListedObject
		targets map[string]string
		lists   []oss.ListRequest
		heads   int
		fail    error
		version int
		// during, if set, runs while a request is under way.
		during func()
	}
}

func newFakeBucket(keys ...string) *fakeBucket {
	b := &fakeBucket{}
	b.mu.objects = make(map[string]oss.ListedObject)
	b.mu.targets = make(map[string]string)
	for _, key := range keys {
		b.put(key, int64(len(key)))
	}
	return b
}

// put stores a new version of key.
func (b *fakeBucket) put(key string, size int64) oss.Object {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.mu.version++
	o := oss.Object{
		Key:     key,
		ETag:    fmt.Sprintf("%032X", b.mu.version),
		Size:    size,
		ModTime: time.Date(2026, 1, 2, 3, 4, b.mu.version, 0, time.UTC),
	}
	b.store(oss.ListedObject{Object: o})
	return o
}

// store stores o. b.mu must be held.
func (b *fakeBucket) store(o oss.ListedObject) {
	if _, ok := b.mu.objects[o.Key]; !ok {
		i, _ := slices.BinarySearch(b.mu.keys, o.Key)
		b.mu.keys = slices.Insert(b.mu.keys, i, o.Key)
	}
	b.mu.objects[o.Key] = o
}

func (b *fakeBucket) symlink(key, target string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.mu.targets[key] = target
	b.store(oss.ListedObject{Object: oss.Object{Key: key, ETag: "LINK", Size: int64(len(target))}, Symlink: true})
}

func (b *fakeBucket) remove(key string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if i, ok := slices.BinarySearch(b.mu.keys, key); ok {
		b.mu.keys = slices.Delete(b.mu.keys, i, i+1)
		delete(b.mu.objects, key)
	}
}

func (b *fakeBucket) failWith(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.mu.fail = err
}

// requests returns how many requests came since the last call.
func (b *fakeBucket) requests() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := len(b.mu.lists) + b.mu.heads
	b.mu.lists, b.mu.heads = nil, 0
	return n
}

// asked returns the listings since the last call.
func (b *fakeBucket) asked() []oss.ListRequest {
	b.mu.Lock()
	defer b.mu.Unlock()
	lists := b.mu.lists
	b.mu.lists = nil
	return lists
}

func (b *fakeBucket) List(ctx context.Context, r oss.ListRequest) (oss.ListPage, error) {
	b.mu.Lock()
	b.mu.lists = append(b.mu.lists, r)
	nth, fail, during := len(b.mu.lists), b.mu.fail, b.mu.during
	b.mu.Unlock()
	if b.latency > 0 {
		select {
		case <-time.After(b.latency):
		case <-ctx.Done():
			return oss.ListPage{}, ctx.Err()
		}
	}
	if fail != nil {
		return oss.ListPage{}, fail
	}
	limit := r.MaxKeys
	if limit == 0 || limit > 1000 {
		return oss.ListPage{}, fmt.Errorf("%w: max-keys %d", oss.ErrInvalid, r.MaxKeys)
	}
	if b.pageKeys > 0 {
		limit = min(limit, b.pageKeys)
	}
	if b.emptyPages && nth%2 == 1 {
		if r.Token == "" {
			return oss.ListPage{Next: "start:" + r.StartAfter}, nil
		}
		return oss.ListPage{Next: "again " + r.Token}, nil
	}
	page := b.page(r, limit)
	if during != nil {
		during()
	}
	return page, nil
}

func (b *fakeBucket) page(r oss.ListRequest, limit int) oss.ListPage {
	b.mu.Lock()
	defer b.mu.Unlock()
	// A token is "key:" or "prefix:" and what the page before ended with.
	startAfter, skipPrefix := r.StartAfter, ""
	if r.Token != "" {
		kind, value, _ := strings.Cut(r.Token, ":")
		startAfter = value
		if strings.HasSuffix(kind, "prefix") {
			skipPrefix = value
		}
	}
	var page oss.ListPage
	if b.repeatsPrefix && skipPrefix != "" {
		page.Prefixes = append(page.Prefixes, skipPrefix)
		limit++
	}
	i, found := slices.BinarySearch(b.mu.keys, max(startAfter, r.Prefix))
	if found && b.mu.keys[i] <= startAfter {
		i++
	}
	last := ""
	for ; i < len(b.mu.keys); i++ {
		key := b.mu.keys[i]
		if !strings.HasPrefix(key, r.Prefix) {
			break
		}
		if skipPrefix != "" && strings.HasPrefix(key, skipPrefix) {
			continue
		}
		fold := ""
		if r.Delimiter != "" {
			if j := strings.Index(key[len(r.Prefix):], r.Delimiter); j >= 0 {
				fold = key[:len(r.Prefix)+j+1]
			}
		}
		if fold != "" && len(page.Prefixes) > 0 && page.Prefixes[len(page.Prefixes)-1] == fold {
			continue
		}
		if fold != "" && b.foldsFirst && fold <= startAfter {
			continue
		}
		if len(page.Objects)+len(page.Prefixes) == limit {
			page.Next = last
			break
		}
		if fold != "" {
			page.Prefixes = append(page.Prefixes, fold)
			last = "prefix:" + fold
		} else {
			page.Objects = append(page.Objects, b.mu.objects[key])
			last = "key:" + key
		}
	}
	return page
}

func (b *fakeBucket) Head(_ context.Context, key string) (oss.Info, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.mu.heads++
	o, ok := b.mu.objects[key]
	if !ok {
		return oss.Info{}, oss.ErrNotFound
	}
	return oss.Info{Object: o.Object}, nil
}

func (b *fakeBucket) SymlinkTarget(_ context.Context, key string) (string, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.mu.heads++
	target, ok := b.mu.targets[key]
	if !ok {
		return "", oss.ErrNotFound
	}
	return target, nil
}

// newTestLive returns a Live over b that is closed at the end of the test.
func newTestLive(t testing.TB, cfg LiveConfig, b Source) *Live {
	t.Helper()
	l, err := NewLive(cfg, b, prometheus.NewRegistry(), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	return l
}

// readAll reads a whole directory, a few entries at a time.
func readAll(t testing.TB, l *Live, dir string, limit int) []Entry {
	t.Helper()
	entries, err := tryReadAll(l, dir, limit)
	if err != nil {
		t.Fatalf("read %q: %v", dir, err)
	}
	return entries
}

func tryReadAll(l *Live, dir string, limit int) ([]Entry, error) {
	var all []Entry
	cursor := ""
	for {
		entries, _, err := l.ReadDir(context.Background(), dir, cursor, limit)
		if err != nil {
			return nil, err
		}
		if len(entries) == 0 {
			return all, nil
		}
		all = append(all, entries...)
		cursor = entries[len(entries)-1].Cursor
	}
}

func names(entries []Entry) []string {
	var names []string
	for _, e := range entries {
		names = append(names, e.Name)
	}
	return names
}

package fs

import (
	"bytes"
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/pailfs/pailfs/cache"
	"github.com/pailfs/pailfs/fs/writeback"
	"github.com/pailfs/pailfs/manifest"
	"github.com/pailfs/pailfs/manifest/attributes"
	"github.com/pailfs/pailfs/oss"
	"github.com/pailfs/pailfs/oss/credentials"
	"github.com/pailfs/pailfs/oss/ossemu"
	"github.com/pailfs/pailfs/oss/ossemu/ossemutest"
)

// written is a mount that can be written, over an emulated bucket.
type written struct {
	*ossemutest.Emulator
	dir   string // the mount point
	mount *Mounted
	space *writeback.Space
	cache *cache.Cache
	stop  func()
}

// writtenOptions change how a written mount is made. The zero value will do.
type writtenOptions struct {
	config Config
	space  writeback.Config
	cache  cache.Config
	// ttl is for how long names are believed; 0 means a second.
	ttl time.Duration
	// reader, if set, is put between the cache and the bucket.
	reader func(oss.RangeReader) oss.RangeReader
	// shown, if set, is put between the names with their attributes and the mount.
	shown func(*attributes.Tree) manifest.Tree
	// base holds the cache and staging directories; "" makes new ones.
	base string
	// log, if set, is where the mount logs.
	log *slog.Logger
}

// mountWritten mounts the bucket of an emulator. At the end of the test everything
// is taken down, and was in use by nobody.
func mountWritten(t testing.TB, e *ossemutest.Emulator, o writtenOptions) *written {
	t.Helper()
	log := o.log
	if log == nil {
		log = testLog(t)
	}
	if o.base == "" {
		o.base = tempDir(t)
	}
	for _, dir := range []string{"mnt", "cache", "staging"} {
		must(t, os.MkdirAll(filepath.Join(o.base, dir), 0o700))
	}
	w := &written{Emulator: e, dir: filepath.Join(o.base, "mnt")}
	client := writtenClient(t, e, log)
	if o.ttl == 0 {
		o.ttl = time.Second
	}
	live, err := manifest.NewLive(manifest.LiveConfig{TTL: o.ttl, NegativeTTL: o.ttl}, client.As(oss.Demand), prometheus.NewRegistry(), log)
	must(t, err)
	o.cache.Dir, o.cache.Bucket = filepath.Join(o.base, "cache"), "test"
	o.cache.MinFreeBytes = 1 << 20
	if o.cache.Memory == 0 {
		o.cache.Memory = 64 << 20
	}
	if o.reader == nil {
		o.reader = func(r oss.RangeReader) oss.RangeReader { return r }
	}
	w.cache, err = cache.Open(o.cache, o.reader(client.As(oss.Demand)), o.reader(client.As(oss.Prefetch)), nil, log)
	must(t, err)
	tree, closeTree := manifest.Tree(live), func() error { return nil }
	// Objects are asked for their attributes, as the daemon does that keeps them.
	if o.config.Attrs {
		shown, err := attributes.New(attributes.Config{Markers: true, TTL: o.ttl}, live, client.As(oss.Demand), client.As(oss.Prefetch), w.cache, nil)
		must(t, err)
		tree, closeTree = shown, shown.Close
		if o.shown != nil {
			tree = o.shown(shown)
		}
		o.space.Noted = shown.Noted
	}
	o.space.Dir, o.space.Endpoint, o.space.Bucket = filepath.Join(o.base, "staging"), e.Endpoint, e.Bucket
	o.space.Attrs = o.config.Attrs
	o.space.Changed = func(dir, name string) {
		if w.mount != nil {
			w.mount.Changed(dir, name)
		}
	}
	w.space, err = writeback.Open(o.space, tree, client.As(oss.Upload), w.cache, nil, log)
	must(t, err)
	o.config.Space, o.config.Mountpoint = w.space, w.dir
	w.mount, err = Mount(o.config, tree, w.cache, prometheus.NewRegistry(), log)
	must(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { must(t, w.space.Run(ctx)) })
	w.stop = sync.OnceFunc(func() {
		if err := w.mount.Unmount(); err != nil {
			_ = w.mount.Detach()
			t.Errorf("unmount: %v", err)
		}
		cancel()
		running.Wait()
		must(t, w.space.Close())
		must(t, closeTree())
		must(t, live.Close())
		must(t, w.cache.Close())
		must(t, client.Close())
	})
	t.Cleanup(w.stop)
	return w
}

// startStore serves an emulated bucket.
func startStore(t testing.TB) *ossemutest.Emulator {
	t.Helper()
	return ossemutest.Start(t, ossemu.Config{})
}

func writtenClient(t testing.TB, e *ossemutest.Emulator, log *slog.Logger) *oss.Client {
	t.Helper()
	source, err := credentials.Open(credentials.Config{
		Kind: credentials.Static, AccessKeyID: e.AccessKeyID, AccessKeySecret: e.AccessKeySecret,
	}, log)
	must(t, err)
	t.Cleanup(func() { must(t, source.Close()) })
	client, err := oss.Open(oss.Config{Endpoint: e.Endpoint, Bucket: e.Bucket, Credentials: source}, nil, nil, log)
	must(t, err)
	return client
}

// path returns the absolute path of a name in the mount.
func (w *written) path(name string) string { return filepath.Join(w.dir, name) }

// drain waits until everything is in the bucket.
func (w *written) drain(t testing.TB) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	must(t, w.space.Flush(ctx, ""))
}

// holds fails unless the bucket has content at key.
func (w *written) holds(t testing.TB, key string, content []byte) {
	t.Helper()
	if got := w.Get(key); !bytes.Equal(got, content) {
		t.Errorf("%s holds %d bytes, want %d: %.40q, want %.40q", key, len(got), len(content), got, content)
	}
}

// random returns n bytes that depend on seed alone.
func random(seed uint64, n int) []byte {
	b := make([]byte, n)
	x := seed*2862933555777941757 + 3037000493
	for i := range b {
		x ^= x << 13
		x ^= x >> 7
		x ^= x << 17
		b[i] = byte(x)
	}
	return b
}

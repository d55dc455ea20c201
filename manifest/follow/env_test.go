package follow

import (
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	"github.com/pailfs/pailfs/manifest"
	"github.com/pailfs/pailfs/manifest/publish"
	"github.com/pailfs/pailfs/oss"
	"github.com/pailfs/pailfs/oss/credentials"
	"github.com/pailfs/pailfs/oss/ossemu"
	"github.com/pailfs/pailfs/oss/ossemu/ossemutest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// world is an emulated bucket, its publisher and what was published.
type world struct {
	*ossemutest.Emulator
	t      *testing.T
	bucket oss.Bucket
	number uint64
	logged strings.Builder
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{t: t, Emulator: ossemutest.Start(t, ossemu.Config{})}
	source, err := credentials.Open(credentials.Config{
		Kind: credentials.Static, AccessKeyID: w.AccessKeyID, AccessKeySecret: w.AccessKeySecret,
	}, nil)
	w.must(err)
	client, err := oss.Open(oss.Config{Endpoint: w.Endpoint, Bucket: w.Bucket, Credentials: source}, nil, nil, slog.New(slog.DiscardHandler))
	w.must(err)
	t.Cleanup(func() { w.must(client.Close()) })
	w.bucket = client.As(oss.Demand)
	return w
}

func (w *world) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

// put stores an object and returns its version.
func (w *world) put(key, content string) oss.Object {
	w.t.Helper()
	_, err := w.Server.Put(w.Bucket, key, strings.NewReader(content))
	w.must(err)
	info, err := w.bucket.Head(w.t.Context(), key)
	w.must(err)
	return info.Object
}

func (w *world) remove(key string) {
	w.t.Helper()
	w.must(w.bucket.Delete(w.t.Context(), key))
}

// build writes the manifest of objects as the next generation to a file.
func (w *world) build(objects ...oss.Object) string {
	w.t.Helper()
	w.number++
	b, err := manifest.NewBuilder(manifest.BuilderConfig{SpillDir: w.t.TempDir()})
	w.must(err)
	for _, o := range objects {
		w.must(b.Add(manifest.Record{Key: o.Key, ETag: o.ETag, Size: o.Size, ModTime: o.ModTime}))
	}
	path := filepath.Join(w.t.TempDir(), "built")
	_, err = b.Finish(w.t.Context(), path, manifest.Header{Generation: w.number, Began: time.Now(), Ended: time.Now()})
	w.must(errors.Join(err, b.Close()))
	return path
}

// publish publishes the manifest of objects.
func (w *world) publish(objects ...oss.Object) publish.Generation {
	w.t.Helper()
	return w.publishFile(w.build(objects...), int64(len(objects)))
}

func (w *world) publishFile(path string, objects int64) publish.Generation {
	w.t.Helper()
	now := time.Now()
	g, err := publish.Publish(w.t.Context(), w.bucket, "", path,
		publish.Facts{Number: w.number, Objects: objects, Began: now, Ended: now}, publish.Options{})
	w.must(err)
	return g
}

// open follows what is published. The tree is closed at the end of the test.
func (w *world) open(cfg Config) *Tree {
	w.t.Helper()
	t, err := w.tryOpen(cfg)
	w.must(err)
	w.t.Cleanup(func() { w.must(t.Close()) })
	return t
}

func (w *world) tryOpen(cfg Config) (*Tree, error) {
	return Open(w.t.Context(), cfg, w.bucket, prometheus.NewRegistry(), slog.New(slog.NewTextHandler(&w.logged, nil)))
}

// names returns what dir lists.
func (w *world) names(t *Tree, dir string) []string {
	w.t.Helper()
	var names []string
	cursor := ""
	for {
		entries, _, err := t.ReadDir(w.t.Context(), dir, cursor, 2)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		w.must(err)
		if len(entries) == 0 {
			return names
		}
		for _, e := range entries {
			names = append(names, e.Name)
		}
		cursor = entries[len(entries)-1].Cursor
	}
}

// find looks a name up.
func (w *world) find(t *Tree, dir, name string) (oss.Object, manifest.Validity, bool) {
	w.t.Helper()
	e, valid, err := t.Lookup(w.t.Context(), dir, name)
	if errors.Is(err, fs.ErrNotExist) {
		return oss.Object{}, valid, false
	}
	w.must(err)
	return e.Object, valid, true
}

// files lists a local directory.
func (w *world) files(dir string) []string {
	w.t.Helper()
	entries, err := os.ReadDir(dir)
	w.must(err)
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

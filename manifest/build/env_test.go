package build

import (
	"bytes"
	"context"
	"log/slog"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	sdk "github.com/aliyun/aliyun-oss-go-sdk/oss"
	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/pailfs/pailfs/manifest"
	"github.com/pailfs/pailfs/oss"
	"github.com/pailfs/pailfs/oss/credentials"
	"github.com/pailfs/pailfs/oss/ossemu"
	"github.com/pailfs/pailfs/oss/ossemu/ossemutest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// store returns an emulator and a bucket of it.
func store(t testing.TB) (*ossemutest.Emulator, oss.Bucket) {
	t.Helper()
	e := ossemutest.Start(t, ossemu.Config{})
	source, err := credentials.Open(credentials.Config{
		Kind: credentials.Static, AccessKeyID: e.AccessKeyID, AccessKeySecret: e.AccessKeySecret,
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	client, err := oss.Open(oss.Config{Endpoint: e.Endpoint, Bucket: e.Bucket, Credentials: source}, nil, nil, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := client.Close(); err != nil {
			t.Error(err)
		}
	})
	return e, client.As(oss.Prefetch)
}

// config is what the tests build with: a listing of everything into a state
// directory of its own.
func config(t testing.TB, b Bucket) Config {
	return Config{
		Bucket: b, Name: ossemutest.Bucket, StateDir: filepath.Join(t.TempDir(), "state"), Source: &Listing{},
		Output: filepath.Join(t.TempDir(), "out"), BuiltBy: "test", Parallel: 8, MemoryBytes: 8 << 20,
	}
}

// try builds once and keeps the state.
func try(ctx context.Context, cfg Config) (Result, error) {
	b, err := Open(cfg)
	if err != nil {
		return Result{}, err
	}
	result, err := b.Run(ctx)
	if closed := b.Close(); err == nil {
		err = closed
	}
	return result, err
}

// mustBuild builds and returns the manifest's records.
func mustBuild(t testing.TB, cfg Config) ([]manifest.Record, Result) {
	t.Helper()
	result, err := try(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	return recordsOf(t, open(t, result.Path)), result
}

// open opens a manifest for the time of the test.
func open(t testing.TB, path string) *manifest.Snapshot {
	t.Helper()
	s, err := manifest.OpenSnapshot(path, manifest.SnapshotConfig{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func recordsOf(t testing.TB, s *manifest.Snapshot) []manifest.Record {
	t.Helper()
	var out []manifest.Record
	for r, err := range s.Records(t.Context(), "") {
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, r)
	}
	return out
}

// inBucket is what a manifest of prefix must hold, as a single listing tells it.
func inBucket(t testing.TB, b oss.Bucket, prefix string) []manifest.Record {
	t.Helper()
	var out []manifest.Record
	request := oss.ListRequest{Prefix: prefix}
	for {
		page, err := b.List(t.Context(), request)
		if err != nil {
			t.Fatal(err)
		}
		for i := range page.Objects {
			o := &page.Objects[i]
			if strings.HasPrefix(o.Key, ".pailfs/") || strings.HasPrefix(o.Key, prefix+".pailfs/") {
				continue
			}
			r := manifest.RecordOf(o)
			if o.Symlink {
				target, err := b.SymlinkTarget(t.Context(), o.Key)
				if err != nil {
					t.Fatal(err)
				}
				r.Attr = &manifest.Attr{Known: manifest.AttrTarget, Target: target}
			}
			out = append(out, r)
		}
		if page.Next == "" {
			return out
		}
		request.Token = page.Next
	}
}

// same fails unless both are equal.
func same(t testing.TB, want, got []manifest.Record) {
	t.Helper()
	if len(want) != len(got) {
		t.Errorf("the manifest holds %d objects, want %d", len(got), len(want))
	}
	if !slices.EqualFunc(want, got, func(a, b manifest.Record) bool { return a.Equal(&b) }) {
		t.Errorf("the manifest differs (-want +got):\n%.4000s", cmp.Diff(keysOf(want), keysOf(got)))
	}
}

func keysOf(records []manifest.Record) []string {
	var keys []string
	for i := range records {
		keys = append(keys, records[i].Key+" "+records[i].ETag)
	}
	return keys
}

// fill stores an object under each key, past the protocol.
func fill(t testing.TB, e *ossemutest.Emulator, keys []string) {
	t.Helper()
	for _, key := range keys {
		if _, err := e.Server.Put(e.Bucket, key, strings.NewReader("content of "+key)); err != nil {
			t.Fatal(err)
		}
	}
}

// stopAfter is a bucket that fails for good after some requests of a kind.
type stopAfter struct {
	oss.Bucket
	err error

	mu          sync.Mutex
	lists       int // how many more listings work
	heads       int
	ranges      int
	made        int
	unlimited   bool
	askedHeads  map[string]int
	listedAfter []string
}

func (s *stopAfter) step(left *int) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.made++
	if s.unlimited {
		return nil
	}
	if *left--; *left < 0 {
		return s.err
	}
	return nil
}

func (s *stopAfter) List(ctx context.Context, r oss.ListRequest) (oss.ListPage, error) {
	if err := s.step(&s.lists); err != nil {
		return oss.ListPage{}, err
	}
	s.mu.Lock()
	s.listedAfter = append(s.listedAfter, r.StartAfter)
	s.mu.Unlock()
	return s.Bucket.List(ctx, r)
}

func (s *stopAfter) Head(ctx context.Context, key string) (oss.Info, error) {
	if err := s.step(&s.heads); err != nil {
		return oss.Info{}, err
	}
	s.mu.Lock()
	if s.askedHeads == nil {
		s.askedHeads = map[string]int{}
	}
	s.askedHeads[key]++
	s.mu.Unlock()
	return s.Bucket.Head(ctx, key)
}

func (s *stopAfter) ReadRange(ctx context.Context, r oss.RangeRequest) (oss.RangeResult, error) {
	if err := s.step(&s.ranges); err != nil {
		return oss.RangeResult{}, err
	}
	return s.Bucket.ReadRange(ctx, r)
}

// putMeta stores an object with metadata.
func putMeta(t testing.TB, b oss.Bucket, key string, meta map[string]string) {
	t.Helper()
	if _, err := b.Put(t.Context(), key, bytes.NewReader([]byte(key)), oss.PutOptions{Meta: meta}); err != nil {
		t.Fatal(err)
	}
}

// symlink makes an OSS symlink object, which only the vendor's SDK can.
func symlink(t testing.TB, e *ossemutest.Emulator, key, target string) {
	t.Helper()
	client, err := sdk.New(e.Endpoint, e.AccessKeyID, e.AccessKeySecret, sdk.HTTPClient(&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}))
	if err != nil {
		t.Fatal(err)
	}
	bucket, err := client.Bucket(e.Bucket)
	if err != nil {
		t.Fatal(err)
	}
	if err := bucket.PutSymlink(key, target); err != nil {
		t.Fatal(err)
	}
}

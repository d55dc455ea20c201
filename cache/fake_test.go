package cache

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/pailfs/pailfs/oss"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m)
}

// fakeStore is an object store in memory. It counts what is asked of it.
type fakeStore struct {
	mu struct {
		sync.Mutex
		objects  map[string]fakeObject
		requests []oss.RangeRequest
		// gate, if set, is called before a request is answered, and with every step of
		// its answer; it may block.
		gate func(ctx context.Context, r oss.RangeRequest, arrived int) error
		// step is how many bytes arrive at once; 0 means all.
		step int
		// noCRC leaves out the checksum.
		noCRC bool
		// fail, if set, decides how a request ends.
		fail func(r oss.RangeRequest) error
	}
}

type fakeObject struct {
	oss.Object
	content []byte
	crc     uint64
}

func newFakeStore() *fakeStore {
	s := new(fakeStore)
	s.mu.objects = make(map[string]fakeObject)
	return s
}

// set changes how the store behaves.
func (s *fakeStore) set(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
}

// put makes an object with n random bytes.
func (s *fakeStore) put(key string, n int) oss.Object {
	return s.putContent(key, randomBytes(uint64(len(key))*7919+uint64(n)+hashString(key), n))
}

// randomBytes returns n bytes that seed determines.
func randomBytes(seed uint64, n int) []byte {
	rng := rand.NewChaCha8([32]byte{byte(seed), byte(seed >> 8), byte(seed >> 16), byte(seed >> 24), 1})
	p := make([]byte, n)
	_, _ = rng.Read(p)
	return p
}

func hashString(s string) uint64 {
	h := uint64(14695981039346656037)
	for i := range len(s) {
		h = (h ^ uint64(s[i])) * 1099511628211
	}
	return h
}

func (s *fakeStore) putContent(key string, content []byte) oss.Object {
	crc := oss.CRC64(content)
	obj := oss.Object{
		Key: key, ETag: fmt.Sprintf("%016X", crc), Size: int64(len(content)),
		ModTime: time.Date(2025, 1, 2, 3, 4, 5, 0, time.UTC),
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.objects[key] = fakeObject{obj, content, crc}
	return obj
}

// content returns what the object holds.
func (s *fakeStore) content(obj oss.Object) []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.objects[obj.Key].content
}

// corrupt changes a byte that is sent without changing the checksum.
func (s *fakeStore) corrupt(key string, off int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	o := s.mu.objects[key]
	o.content = bytes.Clone(o.content)
	o.content[off] ^= 0x40
	s.mu.objects[key] = o
}

func (s *fakeStore) ReadRange(ctx context.Context, r oss.RangeRequest) (oss.RangeResult, error) {
	s.mu.Lock()
	s.mu.requests = append(s.mu.requests, r)
	obj, ok := s.mu.objects[r.Object.Key]
	gate, step, noCRC, fail := s.mu.gate, s.mu.step, s.mu.noCRC, s.mu.fail
	s.mu.Unlock()
	switch {
	case !ok:
		return oss.RangeResult{}, oss.ErrNotFound
	case obj.ETag != r.Object.ETag:
		return oss.RangeResult{}, oss.ErrChanged
	case len(r.Buffer) == 0 || r.Offset+int64(len(r.Buffer)) > obj.Size:
		return oss.RangeResult{}, oss.ErrInvalid
	}
	if step == 0 {
		step = len(r.Buffer)
	}
	for n := 0; n < len(r.Buffer); {
		if gate != nil {
			if err := gate(ctx, r, n); err != nil {
				return oss.RangeResult{}, err
			}
		}
		if err := ctx.Err(); err != nil {
			return oss.RangeResult{}, err
		}
		n += copy(r.Buffer[n:min(n+step, len(r.Buffer))], obj.content[r.Offset+int64(n):])
		if r.Arrived != nil {
			r.Arrived(n)
		}
	}
	if fail != nil {
		if err := fail(r); err != nil {
			return oss.RangeResult{}, err
		}
	}
	return oss.RangeResult{CRC64: obj.crc, HasCRC64: !noCRC}, nil
}

// requests returns how many requests there were.
func (s *fakeStore) requests() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.mu.requests)
}

// asked returns how many bytes were asked for.
func (s *fakeStore) asked() (n int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range s.mu.requests {
		n += int64(len(r.Buffer))
	}
	return n
}

// wasAsked tells whether a request covered the byte at off.
func (s *fakeStore) wasAsked(obj oss.Object, off int64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range s.mu.requests {
		if r.Object == obj && r.Offset <= off && off < r.Offset+int64(len(r.Buffer)) {
			return true
		}
	}
	return false
}

func (s *fakeStore) resetRequests() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.requests = nil
}

// openCache opens a cache on s that is closed, and checked, at the end of the
// test.
func openCache(t testing.TB, s *fakeStore, cfg Config) *Cache {
	t.Helper()
	if cfg.Memory == 0 {
		cfg.Memory = 128 << 20
	}
	if cfg.Dir != "" {
		cfg.MinFreeBytes, cfg.MinFreeInodes = 1, 1
	}
	c, err := Open(cfg, s, s, nil, testLog(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closeCache(t, c) })
	return c
}

// closeCache closes c, unless the test did, and checks that everything was given
// back.
func closeCache(t testing.TB, c *Cache) {
	t.Helper()
	if c.closed() != nil {
		return
	}
	if err := c.Close(); err != nil {
		t.Errorf("close: %v", err)
	}
	if n := c.memory.budget.inUse(); n != 0 {
		t.Errorf("%d bytes of memory are still in use", n)
	}
	if n := c.objects.count(); n != 0 {
		t.Errorf("%d objects are still referred to", n)
	}
	if n := c.memory.kept.Load(); n != 0 {
		t.Errorf("%d bytes are still kept", n)
	}
	if n := c.memory.ahead.Load(); n != 0 {
		t.Errorf("windows of %d bytes are still open", n)
	}
}

func testLog(t testing.TB) *slog.Logger {
	return slog.New(slog.NewTextHandler(testWriter{t}, &slog.HandlerOptions{Level: slog.LevelWarn}))
}

type testWriter struct{ t testing.TB }

func (w testWriter) Write(p []byte) (int, error) {
	w.t.Logf("%s", bytes.TrimSpace(p))
	return len(p), nil
}

// open opens a handle that is closed at the end of the test.
func openObject(t testing.TB, c *Cache, obj oss.Object) *Handle {
	t.Helper()
	h, err := c.Open(obj)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = h.Close() })
	return h
}

// read reads n bytes at off and compares them with what the store has.
func checkRead(t testing.TB, s *fakeStore, h *Handle, off int64, n int) {
	t.Helper()
	if err := compareRead(s, h, off, n); err != nil {
		t.Fatal(err)
	}
}

func compareRead(s *fakeStore, h *Handle, off int64, n int) error {
	want := s.content(h.Object())
	want = want[min(off, int64(len(want))):]
	want = want[:min(n, len(want))]

	p := make([]byte, n)
	got, err := h.ReadAt(context.Background(), p, off)
	if err != nil && (err.Error() != "EOF" || got == n) {
		return fmt.Errorf("read %d at %d: %w", n, off, err)
	}
	if !bytes.Equal(p[:got], want) {
		return fmt.Errorf("read %d at %d: wrong bytes", n, off)
	}
	v, err := h.View(context.Background(), off, n)
	if err != nil {
		return fmt.Errorf("view %d at %d: %w", n, off, err)
	}
	defer v.Release()
	if !bytes.Equal(bytes.Join(v.Slices(), nil), want) {
		return fmt.Errorf("view %d at %d: wrong bytes", n, off)
	}
	return nil
}

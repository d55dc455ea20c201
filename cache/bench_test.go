package cache

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pailfs/pailfs/cache/internal/content"
	"github.com/pailfs/pailfs/oss"
)

// patternStore holds objects of any size, all of whose segments are the same, and
// sends them as fast as memory allows, or as a link does.
type patternStore struct {
	segment  []byte
	crc      uint64
	step     int
	requests atomic.Int64
	link     *fakeLink // nil: as fast as memory
}

func newPatternStore() *patternStore {
	p := randomBytes(42, content.SegmentSize)
	return &patternStore{segment: p, crc: oss.CRC64(p), step: 256 << 10}
}

func (s *patternStore) object(key string, segments int) oss.Object {
	return oss.Object{Key: key, ETag: "E", Size: int64(segments) * content.SegmentSize}
}

func (s *patternStore) ReadRange(ctx context.Context, r oss.RangeRequest) (oss.RangeResult, error) {
	s.requests.Add(1)
	if s.link != nil {
		defer s.link.leave()
		s.link.enter()
	}
	for n := 0; n < len(r.Buffer); {
		step := min(s.step, len(r.Buffer)-n)
		if s.link != nil {
			s.link.transfer(step)
		}
		if err := ctx.Err(); err != nil {
			return oss.RangeResult{}, err
		}
		from := (r.Offset + int64(n)) % content.SegmentSize
		n += copy(r.Buffer[n:n+step], s.segment[from:])
		if r.Arrived != nil {
			r.Arrived(n)
		}
	}
	crc := s.crc
	for i := int64(1); i < r.Object.Size/content.SegmentSize; i++ {
		crc = content.CombineCRC64(crc, s.crc, content.SegmentSize)
	}
	return oss.RangeResult{CRC64: crc, HasCRC64: r.Object.Size%content.SegmentSize == 0}, nil
}

// fakeLink behaves like a network: 30 ms to the first byte, with a long tail, 100
// MB/s for a connection and 600 MB/s for all.
type fakeLink struct {
	mu   sync.Mutex
	free time.Time // when the link has sent what was given to it
	rng  *rand.Rand
}

func newFakeLink() *fakeLink { return &fakeLink{rng: rand.New(rand.NewPCG(7, 11))} }

func (l *fakeLink) enter() {
	l.mu.Lock()
	wait := 30 * math.Exp(0.35*l.rng.NormFloat64())
	l.mu.Unlock()
	time.Sleep(time.Duration(wait * float64(time.Millisecond)))
}

func (l *fakeLink) leave() {}

func (l *fakeLink) transfer(n int) {
	now := time.Now()
	l.mu.Lock()
	if l.free.Before(now) {
		l.free = now
	}
	l.free = l.free.Add(time.Duration(float64(n) / 600e6 * 1e9))
	done := l.free
	l.mu.Unlock()
	if own := now.Add(time.Duration(float64(n) / 100e6 * 1e9)); own.After(done) {
		done = own
	}
	time.Sleep(time.Until(done))
}

func benchCache(b *testing.B, s oss.RangeReader, cfg Config) *Cache {
	b.Helper()
	if cfg.Memory == 0 {
		cfg.Memory = 1 << 30
	}
	if cfg.Dir != "" {
		cfg.MinFreeBytes, cfg.MinFreeInodes = 1, 1
	}
	c, err := Open(cfg, s, s, nil, nil)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = c.Close() })
	return c
}

// readThrough reads the whole object in views of n bytes, as many at once.
func readThrough(b *testing.B, h *Handle, n, readers int) {
	var next atomic.Int64
	var group sync.WaitGroup
	size := h.Object().Size
	for range readers {
		group.Go(func() {
			for {
				off := next.Add(int64(n)) - int64(n)
				if off >= size {
					return
				}
				v, err := h.View(context.Background(), off, n)
				if err != nil {
					b.Error(err)
					return
				}
				v.Release()
			}
		})
	}
	group.Wait()
}

func BenchmarkColdStream(b *testing.B) {
	for _, c := range []struct {
		name string
		ssd  bool
		link bool
	}{{"source=memory/ssd=no", false, false}, {"source=memory/ssd=yes", true, false}, {"source=seed/ssd=no", false, true}} {
		b.Run(c.name, func(b *testing.B) {
			s := newPatternStore()
			segments := 128
			if c.link {
				s.link, s.step = newFakeLink(), 64<<10
			}
			cfg := Config{}
			if c.ssd {
				cfg.Dir = b.TempDir()
			}
			cache := benchCache(b, s, cfg)
			b.SetBytes(int64(segments) * content.SegmentSize)
			i := 0
			for b.Loop() {
				i++
				h, err := cache.Open(s.object(fmt.Sprint(i), segments))
				if err != nil {
					b.Fatal(err)
				}
				readThrough(b, h, 1<<20, 8)
				_ = h.Close()
			}
			b.ReportMetric(float64(s.requests.Load())/float64(i), "requests/op")
			if st := cache.Stats(); st.SSD != nil {
				b.ReportMetric(float64(st.SSD.DroppedBytes)/float64(i)/1e6, "droppedMB/op")
			}
		})
	}
}

func BenchmarkMemoryHit(b *testing.B) {
	for _, n := range []int{4 << 10, 128 << 10, 1 << 20} {
		b.Run(fmt.Sprintf("bytes=%d", n), func(b *testing.B) {
			s := newPatternStore()
			c := benchCache(b, s, Config{})
			h, err := c.Open(s.object("hit", 8))
			if err != nil {
				b.Fatal(err)
			}
			defer h.Close()
			readThrough(b, h, 1<<20, 1)
			b.SetBytes(int64(n))
			off := int64(0)
			for b.Loop() {
				v, err := h.View(context.Background(), off, n)
				if err != nil {
					b.Fatal(err)
				}
				v.Release()
				if off += int64(n); off+int64(n) > h.Object().Size {
					off = 0
				}
			}
		})
	}
}

func BenchmarkSSDHit(b *testing.B) {
	for _, n := range []int{4 << 10, 128 << 10, 1 << 20} {
		b.Run(fmt.Sprintf("bytes=%d", n), func(b *testing.B) {
			s := newPatternStore()
			c := benchCache(b, s, Config{Dir: b.TempDir()})
			obj := s.object("hit", 8)
			if err := c.Fetch(context.Background(), obj); err != nil {
				b.Fatal(err)
			}
			h, err := c.Open(obj)
			if err != nil {
				b.Fatal(err)
			}
			defer h.Close()
			before := c.Stats().Reads
			b.SetBytes(int64(n))
			off := int64(0)
			for b.Loop() {
				v, err := h.View(context.Background(), off, n)
				if err != nil {
					b.Fatal(err)
				}
				v.Release()
				if off += int64(n); off+int64(n) > h.Object().Size {
					off = 0
				}
			}
			if after := c.Stats().Reads; after.Memory != before.Memory || after.OSS != before.OSS {
				b.Fatal("not read from SSD")
			}
		})
	}
}

func BenchmarkSmallFiles(b *testing.B) {
	for _, ssd := range []bool{false, true} {
		b.Run(fmt.Sprintf("bytes=115000/ssd=%v", ssd), func(b *testing.B) {
			s := newPatternStore()
			cfg := Config{}
			if ssd {
				cfg.Dir = b.TempDir()
			}
			c := benchCache(b, s, cfg)
			b.SetBytes(115_000)
			i := 0
			for b.Loop() {
				i++
				h, err := c.Open(oss.Object{Key: fmt.Sprint(i), ETag: "E", Size: 115_000})
				if err != nil {
					b.Fatal(err)
				}
				v, err := h.View(context.Background(), 0, 128<<10)
				if err != nil {
					b.Fatal(err)
				}
				v.Release()
				_ = h.Close()
			}
			if st := c.Stats(); st.SSD != nil {
				b.ReportMetric(100*float64(st.SSD.DroppedBytes)/float64(i)/115_000, "dropped%")
			}
		})
	}
}

func BenchmarkOpenClose(b *testing.B) {
	s := newPatternStore()
	c := benchCache(b, s, Config{})
	obj := s.object("key/of/some/length/as/they/are.jpg", 1)
	for b.Loop() {
		h, err := c.Open(obj)
		if err != nil {
			b.Fatal(err)
		}
		_ = h.Close()
	}
}

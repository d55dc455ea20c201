package store

import (
	"bytes"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
)

func appendTo(t testing.TB, s *Store, position int64, body []byte) *Object {
	t.Helper()
	o, err := s.Append(testBucket, "log", bytes.NewReader(body), AppendOptions{Position: position, Limit: 1 << 30})
	if err != nil {
		t.Fatal(err)
	}
	return o
}

func TestAppendsOfAllSizesMakeOneContent(t *testing.T) {
	s := newStore(t)
	var want []byte
	for i, n := range []int{10, 20, 0, packLimit, packLimit + 1, tailLimit, tailLimit + 1, 5, 3 << 20, 1} {
		body := pattern(i, n)
		o := appendTo(t, s, int64(len(want)), body)
		want = append(want, body...)
		if o.Size != int64(len(want)) {
			t.Fatalf("size %d, want %d", o.Size, len(want))
		}
		if i == 4 {
			s = reopen(t, s)
		}
	}
	for range 2 {
		if got := read(t, s, "log"); !bytes.Equal(got, want) {
			t.Error("content differs")
		}
		s = abandon(t, s)
	}
}

func TestManySmallAppendsShareAFile(t *testing.T) {
	s := newStore(t)
	var want []byte
	for i := range 1000 {
		body := pattern(i, 100)
		appendTo(t, s, int64(len(want)), body)
		want = append(want, body...)
	}
	if got := read(t, s, "log"); !bytes.Equal(got, want) {
		t.Error("content differs")
	}
	o, err := s.Object(testBucket, "log")
	if err != nil {
		t.Fatal(err)
	}
	if len(o.extents) > 2 {
		t.Errorf("%d extents", len(o.extents))
	}
	if _, err := s.Delete(testBucket, "log"); err != nil {
		t.Fatal(err)
	}
	s = reopen(t, s)
	if left := dataFiles(t, s); len(left) != 0 {
		t.Errorf("files left behind: %v", left)
	}
}

func TestACopyOfALogDoesNotGrowWithIt(t *testing.T) {
	s := newStore(t)
	first := pattern(1, 100_000)
	appendTo(t, s, 0, first)
	copyOf(t, s, "log", "copy")
	appendTo(t, s, 100_000, pattern(2, 100_000))
	if got := read(t, s, "copy"); !bytes.Equal(got, first) {
		t.Error("the copy changed")
	}
	_, err := s.Append(testBucket, "copy", bytes.NewReader(first), AppendOptions{Position: 100_000, Limit: 1 << 30})
	if !errors.Is(err, ErrNotAppendable) {
		t.Errorf("append to a copy: %v", err)
	}
}

func TestAReaderOfALogKeepsItsLength(t *testing.T) {
	s := newStore(t)
	first := pattern(1, 100_000)
	appendTo(t, s, 0, first)
	o, c, err := s.Open(testBucket, "log")
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	appendTo(t, s, 100_000, pattern(2, 10))
	if got := readContent(t, o, c); !bytes.Equal(got, first) {
		t.Error("the open version changed")
	}
}

func TestOfAppendsAtOnePositionOneWins(t *testing.T) {
	s := newStore(t)
	size := int64(0)
	for round := range 30 {
		var won atomic.Int64
		var wg sync.WaitGroup
		for i := range 4 {
			wg.Go(func() {
				_, err := s.Append(testBucket, "log", bytes.NewReader(pattern(i, 90_000)), AppendOptions{Position: size, Limit: 1 << 30})
				switch {
				case err == nil:
					won.Add(1)
				case !errors.Is(err, ErrPosition):
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if won.Load() != 1 {
			t.Fatalf("round %d: %d appends succeeded", round, won.Load())
		}
		size += 90_000
		read(t, s, "log")
	}
}

func TestAnAppendThatFailsDoesNotHarmTheNext(t *testing.T) {
	s := newStore(t)
	appendTo(t, s, 0, pattern(1, 100_000))
	refused := errors.New("digest differs")
	_, err := s.Append(testBucket, "log", bytes.NewReader(pattern(2, 1000)), AppendOptions{
		Position: 100_000, Limit: 1 << 30, Verify: func([16]byte) error { return refused },
	})
	if !errors.Is(err, refused) {
		t.Fatalf("error %v", err)
	}
	// As a death between the bytes and their record leaves it.
	o, err := s.Object(testBucket, "log")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.data.extend(o.extents[len(o.extents)-1], pattern(3, 500)); err != nil {
		t.Fatal(err)
	}
	s = abandon(t, s)
	appendTo(t, s, 100_000, pattern(4, 1000))
	if got, want := read(t, s, "log"), append(pattern(1, 100_000), pattern(4, 1000)...); !bytes.Equal(got, want) {
		t.Error("content differs")
	}
	if _, err := s.Append(testBucket, "log", bytes.NewReader(make([]byte, 10)), AppendOptions{Position: 101_000, Limit: 101_005}); !errors.Is(err, ErrTooLarge) {
		t.Errorf("append over the limit: %v", err)
	}
}

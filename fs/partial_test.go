package fs

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/pailfs/pailfs/oss"
)

// fetchCounter counts the bytes that the cache asks for.
type fetchCounter struct {
	oss.RangeReader
	bytes *atomic.Int64
}

func (c fetchCounter) ReadRange(ctx context.Context, r oss.RangeRequest) (oss.RangeResult, error) {
	c.bytes.Add(int64(len(r.Buffer)))
	return c.RangeReader.ReadRange(ctx, r)
}

// editLarge puts an object of size bytes at "large" and calls do on mounts in both modes, with
// what was fetched so far.
func editLarge(t *testing.T, size int, do func(t *testing.T, w *written, content []byte, fetched *atomic.Int64)) {
	for _, mode := range []Choice{On, Off} {
		t.Run("passthrough "+mode.String(), func(t *testing.T) {
			var fetched atomic.Int64
			e := startStore(t)
			content := random(5, size)
			e.Put("large", content)
			w := mountWritten(t, e, writtenOptions{
				config: Config{Passthrough: mode, PassthroughMin: 1},
				reader: func(r oss.RangeReader) oss.RangeReader { return fetchCounter{r, &fetched} },
			})
			do(t, w, content, &fetched)
		})
	}
}

// TestPageOfALargeObjectIsChangedWithoutFetchingIt, through write and through a mapping, and
// what was appended costs no download.
func TestPageOfALargeObjectIsChangedWithoutFetchingIt(t *testing.T) {
	editLarge(t, 64<<20, func(t *testing.T, w *written, want []byte, fetched *atomic.Int64) {
		f, err := os.OpenFile(w.path("large"), os.O_RDWR, 0)
		must(t, err)
		page := bytes.Repeat([]byte("page"), 1024)
		_, err = f.WriteAt(page, 20<<20+4096)
		must(t, err)
		copy(want[20<<20+4096:], page)
		_, err = storeMapped(f, 40<<20, []byte("mapped"))
		must(t, err)
		copy(want[40<<20:], "mapped")
		must(t, f.Close())
		appendTo(t, w.path("large"), []byte("a line\n"))
		want = append(want, "a line\n"...)
		if got := fetched.Load(); got > 6<<20 {
			t.Errorf("%d bytes were fetched", got)
		}
		sent := w.Server.Stats().BytesIn
		w.drain(t)
		if got := w.Server.Stats().BytesIn - sent; got > 3<<20 {
			t.Errorf("%d bytes were sent", got)
		}
		w.holds(t, "large", want)
		same(t, readAll(t, w.path("large")), want)
	})
}

// appendTo appends to a file that exists.
func appendTo(t *testing.T, path string, more []byte) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)
	must(t, err)
	_, err = f.Write(more)
	must(t, errors.Join(err, f.Close()))
}

// TestLargeObjectIsEditedAsALocalFile does random reads, writes, stores through mappings and
// changes of size to an object that is not fetched, and to a local file.
func TestLargeObjectIsEditedAsALocalFile(t *testing.T) {
	editLarge(t, 12<<20+123, func(t *testing.T, w *written, content []byte, _ *atomic.Int64) {
		seed := rand.Uint64()
		t.Logf("seed %d", seed)
		r := rand.New(rand.NewPCG(seed, 1))
		local := filepath.Join(tempDir(t), "large")
		must(t, os.WriteFile(local, content, 0o600))
		names := []string{local, w.path("large")}
		for round := range 6 {
			var open [2][]*os.File
			for range 2 {
				for k, name := range names {
					f, err := os.OpenFile(name, os.O_RDWR, 0)
					must(t, err)
					open[k] = append(open[k], f)
				}
			}
			for step := range 25 {
				i, what, off, n, fill := r.IntN(2), r.IntN(9), r.Int64N(14<<20), r.IntN(300_000), random(r.Uint64(), 300_000)
				if r.IntN(2) == 0 {
					off &^= 1<<20 - 1
				}
				var got [2]result
				for k := range names {
					got[k] = editStep(open[k][i], what, off, fill[:n])
				}
				if got[0] != got[1] {
					t.Fatalf("seed %d, round %d, step %d: operation %d of %d bytes at %d: local %v, here %v", seed, round, step, what, n, off, got[0], got[1])
				}
			}
			for k := range names {
				for _, f := range open[k] {
					must(t, f.Close())
				}
			}
			want, err := os.ReadFile(local)
			must(t, err)
			if got := readAll(t, w.path("large")); !bytes.Equal(got, want) {
				t.Fatalf("seed %d, round %d: it reads otherwise", seed, round)
			}
			if r.IntN(2) == 0 {
				w.drain(t)
				w.holds(t, "large", want)
			}
			if r.IntN(3) == 0 {
				for k, name := range names {
					next := filepath.Join(filepath.Dir(name), fmt.Sprint("moved", round))
					must(t, os.Rename(name, next))
					must(t, os.Rename(next, name))
					names[k] = name
				}
			}
		}
		want, err := os.ReadFile(local)
		must(t, err)
		w.drain(t)
		w.holds(t, "large", want)
	})
}

// editStep does one operation to an open file.
func editStep(f *os.File, what int, off int64, content []byte) (r result) {
	switch what {
	case 0, 1, 2:
		_, r.errno = f.WriteAt(content, off)
	case 3:
		r.errno = f.Truncate(off)
	case 4:
		r.errno = f.Sync()
	case 5:
		info, err := f.Stat()
		if err != nil || info.Size() < 8192 {
			return result{errno: err}
		}
		at := off % (info.Size() - 4096) &^ 4095
		r.text, r.errno = storeMapped(f, at, content[:min(len(content), 4096)])
	case 6:
		r.errno = unix.Fallocate(int(f.Fd()), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, off, int64(len(content))+1)
	default:
		b := make([]byte, len(content))
		n, err := f.ReadAt(b, off)
		r.text = fmt.Sprint(n, err, oss.CRC64(b[:n]))
	}
	return r
}

// TestLargeObjectThatIsReplacedElsewhereWhileItIsEdited: what was not fetched is ESTALE, and
// flush says why it cannot be published.
func TestLargeObjectThatIsReplacedElsewhereWhileItIsEdited(t *testing.T) {
	editLarge(t, 16<<20, func(t *testing.T, w *written, _ []byte, _ *atomic.Int64) {
		f, err := os.OpenFile(w.path("large"), os.O_RDWR, 0)
		must(t, err)
		must(t, ignore(f.WriteAt(bytes.Repeat([]byte("#"), 1<<20), 1<<20)))
		w.Put("large", []byte("theirs"))
		buf := make([]byte, 100)
		if _, err := f.ReadAt(buf, 12<<20); !errors.Is(err, syscall.ESTALE) {
			t.Errorf("read: %v, want ESTALE", err)
		}
		if _, err := f.ReadAt(buf, 1<<20); err != nil || buf[0] != '#' {
			t.Errorf("what was written reads as %q, %v", buf[:4], err)
		}
		must(t, f.Sync())
		must(t, f.Close())
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		if err := w.space.Flush(ctx, ""); !errors.Is(err, syscall.ESTALE) {
			t.Errorf("flush: %v, want ESTALE", err)
		}
		if s := w.space.Status(); s.FailingCount != 1 || len(s.Conflicts) != 1 {
			t.Errorf("status %+v", s)
		}
		if got := string(w.Get("large")); got != "theirs" {
			t.Errorf("theirs is %.20q", got)
		}
	})
}

func ignore(_ int, err error) error { return err }

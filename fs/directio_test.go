package fs

import (
	"fmt"
	"os"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

// TestAsynchronousDirectWritesLeaveNoOldPages: pages that somebody reads while they are
// written behind the page cache must not stay in it.
func TestAsynchronousDirectWritesLeaveNoOldPages(t *testing.T) {
	w := mountWritten(t, startStore(t), writtenOptions{config: Config{Passthrough: Off}})
	must(t, os.WriteFile(w.path("file"), make([]byte, 64<<10), 0o644))
	var r exerciseResult
	inReader(t, "overtake", exerciseArgs{Roots: [2]string{w.path("file")}, Operations: 200 * stressFactor()}, &r)
	for kind, why := range r.LeftOut {
		fmt.Fprintf(os.Stderr, "LEFT OUT of %s: %s, which this machine does not permit: %s\n", t.Name(), kind, why)
	}
}

// overtake writes a file directly and asynchronously while others read it, and looks at what
// reads find after that.
func overtake(a exerciseArgs) (exerciseResult, error) {
	r := exerciseResult{LeftOut: map[string]string{}}
	fd, err := unix.Open(a.Roots[0], unix.O_RDWR, 0)
	if err != nil {
		return r, err
	}
	direct, err := unix.Open(a.Roots[0], unix.O_RDWR|unix.O_DIRECT, 0)
	if err != nil {
		return r, err
	}
	io, err := newAIO()
	if err != nil {
		r.LeftOut["io_submit"] = err.Error()
		return r, nil
	}
	defer func() { _ = io.close() }() // nothing is under way
	p, err := offHeap(64 << 10)
	if err != nil {
		return r, err
	}
	stop := make(chan struct{})
	var readers sync.WaitGroup
	defer readers.Wait()
	defer close(stop)
	for range 2 {
		readers.Go(func() {
			q := make([]byte, len(p))
			for {
				select {
				case <-stop:
					return
				default:
					_, _ = unix.Pread(fd, q, 0) // what it finds is old or new
				}
			}
		})
	}
	q := make([]byte, len(p))
	for i := range a.Operations {
		for j := range p {
			p[j] = byte(i + 1)
		}
		if n, err := io.do(true, direct, p, 0); err != nil || n != len(p) {
			return r, fmt.Errorf("write: %d, %w", n, err)
		}
		if n, err := unix.Pread(fd, q, 0); err != nil || n != len(q) {
			return r, fmt.Errorf("read: %d, %w", n, err)
		}
		if err := differs(q, p); err != nil {
			return r, fmt.Errorf("write %d: %w", i, err)
		}
	}
	return r, nil
}
